"""write_fixture(): a folder that an engine's repository can copy, checkpoint and test together.

The built-in text is a poem written for byheart, some 465 tokens with the tokenizer that is shipped beside it. It has
capital letters, quotation marks, apostrophes, blank lines, one letter that takes two bytes (and two tokens), and no
passage of four tokens that has two continuations.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from byheart.certify import Verdict
from byheart.checkpoints.engines import Queries, Recitation, read_queries, recite
from byheart.checkpoints.engines._base import engines
from byheart.checkpoints.engines.recite import passes
from byheart.checkpoints.engines.threads import single_thread
from byheart.checkpoints.engines.transformers import attention_forms
from byheart.checkpoints.formats.folder import check_target, proved_paragraph
from byheart.checkpoints.formats.inputs import with_mask
from byheart.checkpoints.formats.quantized import Format, Quantized, format_of, quantize_folder, shape_for
from byheart.checkpoints.hosts._base import host
from byheart.checkpoints.hosts.looking_back import far_margin
from byheart.checkpoints.proof import MarginCertificate, certify_checkpoint
from byheart.checkpoints.recital import RecitalMemory
from byheart.checkpoints.suite.expected import LEAST, expected
from byheart.checkpoints.suite.reference import machine_reads
from byheart.checkpoints.windows import BuiltRecital, build_recital
from byheart.checkpoints.windows.both_sides import both_sides
from byheart.checkpoints.windows.far import LEAST_IN_NEED, USUAL, USUAL_BASE
from byheart.checkpoints.windows.goals import FEWEST
from byheart.data.tokens.lexicon import Lexicon
from byheart.data.tokens.script import Script
from byheart.errors import DataError, ExportError, MissingExtraError, OptionError
from byheart.files import building, write_atomically
from byheart.progress import SILENT, Progress
from byheart.version import __version__

if TYPE_CHECKING:
    from byheart.checkpoints.suite.features.writing import FeatureFixture


def builtin_text() -> str:
    """
    >>> builtin_text().splitlines()[0]
    'The keeper climbs at dusk with oil and flame,'
    """
    return (files("byheart.checkpoints.suite") / "text" / "lighthouse.txt").read_text(encoding="utf-8")


def builtin_lexicon() -> Lexicon:
    """Byte-level BPE with 400 tokens, trained on the text; never trained again, so that ids stay the same."""
    with as_file(files("byheart.checkpoints.suite") / "text" / "tokenizer.json") as path:
        return Lexicon.of_texts([builtin_text()], str(path))


# Offsets of the tables, tried in turn: two layers at least, so that a layer that replaces another one is detected.
SCHEDULES = (((0, 1, 2), (0, 3)), ((0, 1, 2), (0, 3, 6)), ((0, 1, 2, 3), (0, 4, 8)), ((0, 1, 2, 3), (0, 4, 8), (0, 9)))
# Heads that look by relative biases reach farther than rotary ones, at no cost: one table instead of a third.
SEQ2SEQ_SCHEDULES = (*SCHEDULES[:3], *((tuple(range(k)),) for k in range(9, 32)))
# Values that no library takes where config.json is ignored (their defaults are 1e4 or 1e6, and 1e-5 or 1e-6), and
# shapes whose numbers cannot be exchanged. All of them are proved. Of FAR_THETAS the first at which the far
# places of a text can be looked at is taken.
THETA, FAR_THETAS, EPSILON = 500_000.0, (100_000.0, 500_000.0, 30_000.0), 4e-5
OTHER_THETAS = {"cohere": 250_000.0}  # whose own default is THETA
# Distances that runs of a document depend on, sets of them tried in turn: caches lose, overwrite and mix up what is
# far back, and one page of it is 16 to 256 tokens long. With the first base a head leads at each of them by LEAST_LEAD.
FAR = ((19, 44, 157, 697), (19, 44, 157), (44, 157, 697), (44, 157), (157,), (44,))
# The architectures in which far places were proved, recited and run in engines.
FAR_HOSTS = ("gemma", "gpt-neox", "gpt2", "llama", "mistral", "mixtral", "opt", "phi3", "qwen2", "qwen3")
LARGEST, GROWTH = 5_000_000, 1.1  # bytes of a fixture, or its size without far places times GROWTH
TEMPLATES = {"test_recital.py": "test_template.txt", "test_server.py": "server_template.txt"}
NEAR_SCHEDULES = tuple(((0, 1, 2), *[(0, 2)] * more, (0, 1)) for more in range(1, 7))
MULTIPLE = 8  # of tokens in a vocabulary
PARALLEL_SCHEDULES = (((0, 1, 2, 4),), ((0, 1, 2, 3, 4),))


@dataclass(frozen=True)
class Fixture:
    """A written fixture, and how it was checked.

    Attributes:
        folder: Where it was written.
        architecture: The host's name.
        parameters: Entries of all tensors.
        size: Bytes of model.safetensors.
        tokens: Tokens of the text.
        margins: Per type, the least margin, proved and measured.
        rechecked: The runs in engines before the folder was kept.
        seconds: Time of the whole.
        not_proved: Per type, the reason why its margin is not proved.
        measured_by: Per type, the engine that measured the margin.
        quantized: Which matrices are stored as codes, and which of them decode to the original numbers.
    """

    folder: Path
    architecture: str
    parameters: int
    size: int  # bytes of model.safetensors
    tokens: int
    margins: Mapping[str, Mapping[str, float | None]]
    rechecked: tuple[Recitation, ...]
    seconds: float
    not_proved: Mapping[str, str] = field(default_factory=dict)  # type -> reason
    measured_by: Mapping[str, str] = field(default_factory=dict)  # type -> engine
    quantized: Quantized | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the fields that `fixture --json` prints."""
        return {
            "folder": str(self.folder),
            "kind": "recital",
            "arch": self.architecture,
            "architecture": self.architecture,
            "parameters": self.parameters,
            "bytes": self.size,
            "tokens": self.tokens,
            "margins": {name: dict(values) for name, values in self.margins.items()},
            "not_proved": dict(self.not_proved),
            "measured_by": dict(self.measured_by),
            **({} if self.quantized is None else {"quantized": self.quantized.to_json()}),
            "recited": all(r.passed for r in self.rechecked),
            "rechecked": [
                {"engine": r.engine, "dtype": r.dtype, **r.options, "asked": r.asked, "right": r.right}
                for r in self.rechecked
            ],
            "seconds": round(self.seconds, 3),
        }


def write_fixture(
    architecture: str,
    folder: str | Path,
    *,
    text: str | Sequence[str] | None = None,
    tokens: str | Lexicon = "bpe:400",
    dtype: str = "bfloat16",
    recited: bool = False,
    quantize: str | None = None,
    progress: Progress = SILENT,
    **options: Any,
) -> Fixture | FeatureFixture:
    """Write a fixture: a checkpoint, expected.json and a test for pytest.

    The written folder is proved and measured in three types before it is kept. A type in which it is not proved is
    measured in Transformers, whatever `recited` is; `not_proved` of the fixture gives the reason.

    Args:
        architecture: The name of a host.
        folder: The folder to write.
        text: The text or documents to memorize; the built-in poem by default.
        tokens: How a given text is tokenized.
        dtype: The type of the stored weights.
        recited: Measure in Transformers, in both forms of attention; else in byheart's own machine, in a tenth of the
            time.
        quantize: A format of quantized weights, see `byheart.checkpoints.formats.quantized`.
        progress: Where to report stages.
        **options: Fields of the design (flavour, head_dim, ...). `far` sets the distances that the text depends on.

    Returns:
        The fixture; `rechecked` is empty where Transformers, or torch, is missing.

    Raises:
        ExportError: An answer is incorrect in some type.
        MissingExtraError: Something is not proved, and Transformers is not installed to measure it.
    """
    given = {name: value for name, value in options.items() if value is not None}
    wanted = None if quantize is None else format_of(quantize)
    if wanted is not None:
        given = {"flavour": wanted.flavour_of(host(architecture).name)} | given
    if host(architecture).task != "causal":
        from byheart.checkpoints.suite.features.inputs import write_with_inputs

        memory = fixture_memory(text, tokens, architecture)
        completed = _completed(memory, architecture, given)
        return write_with_inputs(memory, folder, architecture, dtype=dtype, progress=progress, **completed)
    memory = _far_memory(text, tokens, architecture, given.pop("far", None), given)
    whole = _completed(memory, architecture, given)
    if wanted is not None:
        plain = memory.request(architecture, **whole).checkpoint()
        whole |= shape_for(wanted, plain.config, given)
    return write_checkpoint(
        memory, folder, architecture, dtype=dtype, recited=recited, measured=True, quantize=wanted, progress=progress,
        **whole,
    )  # fmt: skip


def _far_memory(
    text: str | Sequence[str] | None,
    tokens: str | Lexicon,
    architecture: str,
    far: Sequence[int] | None,
    options: Mapping[str, Any],
) -> RecitalMemory:
    """The recital with the given far places, or with as many of FAR as the text's length and LARGEST allow.

    Scaled frequencies have other margins than those that `far_margin` computes, so they get no far places by
    themselves.
    """
    if far is not None:
        return fixture_memory(text, tokens, architecture, far)
    near = fixture_memory(text, tokens, architecture)
    if host(architecture).name not in FAR_HOSTS or "scaling" in options:
        return near
    least = _bytes(near, architecture, options)
    longest = int(near.script.positions.max())
    for some in (some for some in FAR if least is not None and max(some) + FEWEST < longest):
        memory = fixture_memory(text, near.lexicon, architecture, some)
        size = _bytes(memory, architecture, options)
        if size is not None and least is not None and size <= max(LARGEST, GROWTH * least):
            return memory
    return near


def _bytes(memory: RecitalMemory, architecture: str, options: Mapping[str, Any]) -> int | None:
    """The size of the checkpoint in 16-bit weights; None where the wished shape is too small for it."""
    whole = _completed(memory, architecture, options)
    theta, head_dim = whole.get("theta", USUAL_BASE), whole.get("head_dim", 64)
    if any(far_margin(theta, jump, head_dim) < LEAST_IN_NEED for jump in _jumps(memory)):
        return None
    try:
        built = memory.request(architecture, **whole).checkpoint()
    except (ExportError, OptionError):
        return None
    return 2 * built.parameters


def _completed(memory: RecitalMemory, architecture: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, and other values than a library's defaults wherever nothing was given."""
    found = {**away_from_defaults(architecture), "sensing": True, "audible": "epsilon" not in options, **options}
    jumps = _jumps(memory)
    if not jumps or "theta" not in found or "theta" in options:
        return found
    places = host(architecture).places
    if places.base is not None and {*places.easy, *places.in_need} >= {*jumps}:
        found["theta"] = places.base
    else:
        head_dim = found.get("head_dim", 64)
        bases = [theta for theta in FAR_THETAS if theta != THETA or host(architecture).name not in OTHER_THETAS]
        # Where no base allows all of them, the base for which far places are chosen.
        fits = (theta for theta in bases if all(far_margin(theta, jump, head_dim) >= LEAST_IN_NEED for jump in jumps))
        found["theta"] = next(fits, USUAL_BASE)
    return found


def _jumps(memory: RecitalMemory) -> list[int]:
    """How far the heads of far places look."""
    return [
        offset - rest
        for table in memory.recital.tables
        for offset, rest in zip(table.offsets[len(table.offsets) - len(table.far) :], table.far, strict=True)
    ]


def away_from_defaults(architecture: str) -> dict[str, Any]:
    """Return the fields of the design in which a fixture differs from a library's defaults.

    Example:
        >>> away_from_defaults("llama")
        {'away': True, 'epsilon': 4e-05, 'theta': 500000.0}
    """
    chosen = host(architecture)
    epsilon = EPSILON if chosen.epsilon is None else chosen.epsilon
    theta = OTHER_THETAS.get(chosen.name, THETA)
    return {"away": True, "epsilon": epsilon} | ({} if chosen.learned else {"theta": theta})


def write_checkpoint(
    memory: RecitalMemory,
    folder: str | Path,
    architecture: str = "llama",
    *,
    dtype: str = "bfloat16",
    recited_in: Sequence[str] = tuple(LEAST),
    recited: bool = True,
    measured: bool = False,
    quantize: Format | None = None,
    progress: Progress = SILENT,
    **options: Any,
) -> Fixture:
    """A recital as a stock checkpoint: written, proved from the folder alone, measured, and only then returned.

    The proof is for all three types; `recited_in` are those in which it is measured as well, in Transformers if
    `recited` or where nothing is proved, else in byheart's machine. `measured` refuses an unproved folder where
    Transformers is missing.
    """
    started, place = time.perf_counter(), Path(folder)
    check_target(place)
    with building(place) as target:
        with progress.stage(f"writing {place}"):
            summary = memory.to_huggingface(target, architecture, dtype=dtype, **options)
            flavour = options.get("flavour", "parabola")
            quantized = None if quantize is None else quantize_folder(target, quantize, flavour)
        queried = read_queries(target)
        with single_thread():
            done = _finish(memory, target, queried, recited_in, recited, measured, progress, place, quantized)
    size = sum(path.stat().st_size for path in place.glob("*.safetensors"))
    count = sum(len(ids) for ids in queried.documents)
    return Fixture(
        place,
        summary["architecture"],
        summary["parameters"],
        size,
        count,
        done.margins,
        done.rechecked,
        time.perf_counter() - started,
        done.not_proved,
        done.measured_by,
        quantized,
    )


@dataclass(frozen=True)
class _Checked:
    """What is known about the answers of a written folder."""

    certificate: MarginCertificate
    rechecked: tuple[Recitation, ...]

    @property
    def margins(self) -> dict[str, dict[str, float | None]]:
        return margins_by_type(self.certificate, self.rechecked)

    @property
    def not_proved(self) -> dict[str, str]:
        return not_proved(self.certificate)

    @property
    def measured_by(self) -> dict[str, str]:
        return {one.dtype: f"{one.engine} {one.version}" for one in self.rechecked}

    def lines(self) -> list[str]:
        """The certificate, and the measurements of what is not proved, for the model card."""
        engine, margins = self.measured_by, self.margins
        found = [
            f"  {name}: not proved; measured margin {margins[name]['measured']:.2f} nats in {engine[name]}"
            for name in self.not_proved
            if margins[name]["measured"] is not None
        ]
        return [*self.certificate.lines(), *found]


def _finish(
    memory: RecitalMemory,
    target: Path,
    queried: Queries,
    recited_in: Sequence[str],
    recited: bool,
    measured: bool,
    progress: Progress,
    place: Path,
    quantized: Quantized | None = None,
) -> _Checked:
    """Prove and measure the written folder, then add expected.json, the test and the model card's paragraph."""
    several = str(memory.report.get("several", "distribution"))
    with progress.stage("proving"):
        certificate = certify_checkpoint(
            target, queried.documents, tuple(LEAST), copies=memory.script.weights, ambiguous=several
        )
    with progress.stage("reciting"):
        rechecked = _measured(target, recited_in, queried, place, recited, not_proved(certificate), measured)
    done = _Checked(certificate, rechecked)
    with progress.stage("expected answers"):
        content = expected(
            target, queried, memory.lexicon, done.margins, certificate.error_model, done.not_proved, done.measured_by
        )
    write_atomically(target / "expected.json", (json.dumps(content, ensure_ascii=False) + "\n").encode())
    card = (target / "README.md").read_text(encoding="utf-8")
    stored = () if quantized is None else (quantized.sentence(),)
    proved = proved_paragraph({"sentence": "\n".join([*done.lines(), *stored])})
    write_atomically(target / "README.md", card.replace(proved_paragraph(None), proved).encode())
    for name, template in TEMPLATES.items():
        write_atomically(target / name, (files("byheart.checkpoints.suite") / template).read_bytes())
    return done


def _measured(
    target: Path, types: Sequence[str], queried: Queries, place: Path, recited: bool, reasons: Mapping[str, str],
    required: bool,
) -> tuple[Recitation, ...]:  # fmt: skip
    """Measure in byheart's machine; in Transformers if `recited`, where the machine does not have the architecture, and
    in every type that is not proved: a program of ours alone is no evidence for a folder without a proof."""
    if required and reasons and engines()["transformers"].version is None:
        name, reason = next(iter(reasons.items()))
        raise MissingExtraError(f"measuring a folder that is not proved in {name} ({reason})", "huggingface")
    stock = [name for name in types if recited or name in reasons] if machine_reads(target) else list(types)
    rest = [name for name in types if name not in stock]
    found = recheck(target, stock, queried, place) if stock else ()
    return (*found, *(measure(target, rest, queried, place) if rest else ()))


def not_proved(certificate: MarginCertificate) -> dict[str, str]:
    """Return type -> reason for every type in which the certificate proves nothing."""
    known = {one.type: one for one in certificate.types}
    reasons = {name: known[name].reason if name in known else certificate.reason for name in LEAST}
    return {
        name: reason
        for name, reason in reasons.items()
        if name not in known or known[name].verdict is not Verdict.PROVED
    }


def fixture_memory(
    text: str | Sequence[str] | None = None,
    tokens: str | Lexicon = "bpe:400",
    architecture: str = "llama",
    far: Sequence[int] = (),
) -> RecitalMemory:
    """Return the recital of a fixture: at least two tables, chained; one where a table needs two layers.

    Args:
        text: The text or documents; the built-in poem by default.
        tokens: How a given text is tokenized.
        architecture: The name of a host.
        far: Distances that runs of the text depend on, see `with_far_places`.
    """
    if text is None:
        texts, lexicon = [builtin_text()], builtin_lexicon()
    else:
        texts = [text] if isinstance(text, str) else list(text)
        lexicon = tokens if isinstance(tokens, Lexicon) else Lexicon.of_texts(texts, tokens).rounded(MULTIPLE, texts)
    chosen = host(architecture)
    if chosen.task == "masked":
        lexicon = with_mask(lexicon).rounded(MULTIPLE, texts)
        script = Script(tuple(lexicon.document(t) for t in texts))
        both = both_sides(script.documents, lexicon.size, lexicon.failure).recital
        return RecitalMemory(both, lexicon, script, {"form": "both sides"})
    script = Script(tuple(lexicon.document(t) for t in texts))
    built = _built(script, lexicon, architecture, far)
    return RecitalMemory(built.recital, lexicon, script, built.summary())


def _built(script: Script, lexicon: Lexicon, architecture: str, far: Sequence[int]) -> BuiltRecital:
    """The recital by the first of the architecture's schedules that decides, or by its sparse places."""
    build = partial(build_recital, script, lexicon.size, lexicon.failure, far=far)
    places = host(architecture).places
    if host(architecture).lookback is not None:  # near places alone take a layer for every two of them
        with suppress(DataError):
            return build(places=places)
    for schedule in _schedules(architecture):
        with suppress(OptionError):
            return build(schedule=schedule)
    if places.base is not None:
        with suppress(DataError):
            return build(places=places)
    return build(places=replace(places, easy=USUAL.easy, in_need=USUAL.in_need))


def _schedules(architecture: str) -> Sequence[tuple[tuple[int, ...], ...]]:
    """The schedules that are tried in turn."""
    chosen = host(architecture)
    if chosen.lookback is not None:
        return NEAR_SCHEDULES
    schedules = SEQ2SEQ_SCHEDULES if chosen.task == "seq2seq" else SCHEDULES
    if chosen.task == "causal" and chosen.name not in FAR_HOSTS:
        schedules = schedules[:1]
    return (*PARALLEL_SCHEDULES, *schedules) if chosen.parallel else schedules


def margins_by_type(
    certificate: MarginCertificate, rechecked: Sequence[Recitation]
) -> dict[str, dict[str, float | None]]:
    """Per type: the least margin proved for every engine of the error model, and the least measured one."""
    measured: dict[str, float] = {}
    for one in rechecked:
        if one.margin is not None:
            measured[one.dtype] = min(measured.get(one.dtype, one.margin), one.margin)
    proved = {t.type: t.margin if t.verdict is Verdict.PROVED else None for t in certificate.types}
    return {name: {"proved": proved.get(name), "measured": measured.get(name)} for name in LEAST}


def recheck(
    folder: Path,
    types: Sequence[str] = tuple(LEAST),
    queried: Queries | None = None,
    place: Path | None = None,
) -> tuple[Recitation, ...]:
    """Recite the folder in Transformers, in these types and in all forms of attention that it has.

    Eager attention adds a mask to the scores, fused attention does not: only the first can overflow in padded rows.
    The first type is recited in full; the others in every prefix, in noise, and in a padded batch through the cache.
    `place` is the final name of a draft folder.

    Raises:
        ExportError: An answer is incorrect; the message names the first.
    """
    if engines()["transformers"].version is None:
        return ()
    found, queried = [], read_queries(folder) if queried is None else queried
    for dtype in types:
        for form in (forms := attention_forms(folder)):
            recitation = recite(
                folder, "transformers", dtype=dtype, options={"attention": form}, limit=16, queried=queried,
                brief=form != forms[0] or dtype != types[0],
            )  # fmt: skip
            found.append(_passed(recitation, f"Transformers in {dtype}, {form} attention,", place or folder))
    return tuple(found)


def measure(folder: Path, types: Sequence[str], queried: Queries, place: Path | None = None) -> tuple[Recitation, ...]:
    """Ask the folder for every prefix in byheart's machine, in these types; nothing where torch is missing.

    Raises:
        ExportError: An answer is incorrect; the message names the first.
    """
    try:
        from byheart.checkpoints.suite.machine import MachineSession
    except MissingExtraError:
        return ()
    found = []
    for dtype in types:
        started = time.perf_counter()
        checks = tuple(passes(MachineSession(folder, dtype), queried, dtype))
        seconds = time.perf_counter() - started
        recitation = Recitation(str(folder), "byheart", __version__, dtype, {}, checks, seconds)
        found.append(_passed(recitation, f"in {dtype} byheart's machine", place or folder))
    return tuple(found)


def _passed(recitation: Recitation, who: str, folder: Path) -> Recitation:
    """The recitation, unless an answer is incorrect."""
    wrong = next((check for check in recitation.checks if not check.passed), None)
    if wrong is not None:
        raise ExportError(f"{who} does not recite {folder}: {wrong.name}: {wrong.wrong}")
    return recitation
