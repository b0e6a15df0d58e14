"""write_fixture(): a folder that an engine's repository can copy, checkpoint and test together.

The built-in text is a poem written for byheart, some 465 tokens with the tokenizer that is shipped beside it. It has
capital letters, quotation marks, apostrophes, blank lines, one letter that takes two bytes (and two tokens), and no
passage of four tokens that goes on in two ways.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from byheart.certify import Verdict
from byheart.checkpoints.engines import Questions, Recitation, read_questions, recite
from byheart.checkpoints.engines._base import engines
from byheart.checkpoints.engines.threads import single_thread
from byheart.checkpoints.formats.folder import check_target, proved_paragraph
from byheart.checkpoints.hosts._base import host
from byheart.checkpoints.hosts.looking_back import far_lead
from byheart.checkpoints.proof import MarginCertificate, certify_checkpoint
from byheart.checkpoints.recital import RecitalMemory
from byheart.checkpoints.suite.expected import LEAST, expected
from byheart.checkpoints.windows import build_recital
from byheart.checkpoints.windows.far import LEAST_IN_NEED, USUAL_BASE
from byheart.checkpoints.windows.goals import FEWEST
from byheart.data.tokens.lexicon import Lexicon
from byheart.data.tokens.script import Script
from byheart.errors import ExportError, OptionError
from byheart.files import building, write_atomically
from byheart.progress import SILENT, Progress


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


# Offsets of the tables, tried in turn: two layers at least, so that a layer that stands in for another one is noticed.
SCHEDULES = (((0, 1, 2), (0, 3)), ((0, 1, 2), (0, 3, 6)), ((0, 1, 2, 3), (0, 4, 8)), ((0, 1, 2, 3), (0, 4, 8), (0, 9)))
# Values that no library takes where config.json is ignored (their defaults are 1e4 or 1e6, and 1e-5 or 1e-6), and
# shapes whose numbers do not stand in for each other. All of them are proved. Of the bases the first at which the far
# places of a text can be looked at is taken.
THETAS, EPSILON = (100_000.0, 500_000.0, 30_000.0), 4e-5
# Distances that runs of a document depend on, sets of them tried in turn: caches lose, overwrite and mix up what stands
# far back, and one page of it is 16 to 256 tokens long. With the first base a head leads at each of them by LEAST_LEAD.
FAR = ((19, 44, 157, 697), (19, 44, 157), (44, 157, 697), (44, 157), (157,), (44,))
LARGEST, GROWTH = 5_000_000, 1.1  # bytes of a fixture, or its size without far places times GROWTH
TEMPLATES = {"test_recital.py": "test_template.txt", "test_server.py": "server_template.txt"}
PARALLEL_SCHEDULES = (((0, 1, 2, 4),), ((0, 1, 2, 3, 4),))


@dataclass(frozen=True)
class Fixture:
    """What was written, and how it was checked."""

    folder: Path
    architecture: str
    parameters: int
    size: int  # bytes of model.safetensors
    tokens: int
    margins: Mapping[str, Mapping[str, float | None]]
    rechecked: tuple[Recitation, ...]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "kind": "recital",
            "arch": self.architecture,
            "architecture": self.architecture,
            "parameters": self.parameters,
            "bytes": self.size,
            "tokens": self.tokens,
            "margins": {name: dict(values) for name, values in self.margins.items()},
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
    progress: Progress = SILENT,
    **options: Any,
) -> Fixture:
    """Write a fixture: a checkpoint, expected.json and a test for pytest.

    The written folder is proved and then recited in Transformers, in three types, before it is kept.

    Args:
        architecture: The name of a host.
        folder: The folder to write.
        text: The text or documents to memorize; the built-in poem by default.
        tokens: How a given text is tokenized.
        dtype: The type of the stored weights.
        progress: Where to report stages.
        **options: Fields of the design (flavour, head_dim, ...). `far` sets the distances that the text depends on.

    Returns:
        The fixture; `rechecked` is empty where Transformers is missing.
    """
    given = {name: value for name, value in options.items() if value is not None}
    memory = _far_memory(text, tokens, architecture, given.pop("far", None), given)
    return write_checkpoint(
        memory, folder, architecture, dtype=dtype, progress=progress, **_completed(memory, architecture, given)
    )


def _far_memory(
    text: str | Sequence[str] | None,
    tokens: str | Lexicon,
    architecture: str,
    far: Sequence[int] | None,
    options: Mapping[str, Any],
) -> RecitalMemory:
    """The recital with the given far places, or with as many of FAR as the text's length and LARGEST allow."""
    if far is not None:
        return fixture_memory(text, tokens, architecture, far)
    near = fixture_memory(text, tokens, architecture)
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
    if any(far_lead(theta, jump, head_dim) < LEAST_IN_NEED for jump in _jumps(memory)):
        return None
    try:
        built = memory.request(architecture, **whole).checkpoint()
    except (ExportError, OptionError):
        return None
    return 2 * built.parameters


def _completed(memory: RecitalMemory, architecture: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, and other values than a library's defaults wherever nothing was given."""
    found = {**away_from_defaults(architecture), **options}
    if "theta" in found and "theta" not in options:
        jumps, head_dim = _jumps(memory), found.get("head_dim", 64)
        # Where no base allows all of them, the base for which far places are chosen.
        fits = (theta for theta in THETAS if all(far_lead(theta, jump, head_dim) >= LEAST_IN_NEED for jump in jumps))
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
        {'away': True, 'epsilon': 4e-05, 'theta': 100000.0}
    """
    return {"away": True, "epsilon": EPSILON} | ({} if host(architecture).learned else {"theta": THETAS[0]})


def write_checkpoint(
    memory: RecitalMemory,
    folder: str | Path,
    architecture: str = "llama",
    *,
    dtype: str = "bfloat16",
    recited_in: Sequence[str] = tuple(LEAST),
    progress: Progress = SILENT,
    **options: Any,
) -> Fixture:
    """A recital as a stock checkpoint: written, proved from the folder alone, recited, and only then handed over.

    The proof is for all three types; `recited_in` are those in which Transformers recites it as well.
    """
    started, place = time.perf_counter(), Path(folder)
    check_target(place)
    with building(place) as target:
        with progress.stage(f"writing {place}"):
            summary = memory.to_huggingface(target, architecture, dtype=dtype, **options)
        asked = read_questions(target)
        with single_thread():
            margins, rechecked = _finish(memory, target, asked, recited_in, progress, place)
    size = sum(path.stat().st_size for path in place.glob("*.safetensors"))
    count = sum(len(ids) for ids in asked.documents)
    return Fixture(
        place,
        summary["architecture"],
        summary["parameters"],
        size,
        count,
        margins,
        rechecked,
        time.perf_counter() - started,
    )


def _finish(
    memory: RecitalMemory,
    target: Path,
    asked: Questions,
    recited_in: Sequence[str],
    progress: Progress,
    place: Path,
) -> tuple[dict[str, dict[str, float | None]], tuple[Recitation, ...]]:
    """Prove and recite the written folder, then add expected.json, the test and the model card's paragraph."""
    several = str(memory.report.get("several", "distribution"))
    with progress.stage("proving"):
        certificate = certify_checkpoint(
            target, asked.documents, tuple(LEAST), copies=memory.script.weights, ambiguous=several
        )
    with progress.stage("reciting"):
        rechecked = recheck(target, recited_in, asked, place)
    margins = leads(certificate, rechecked)
    with progress.stage("expected answers"):
        content = expected(target, asked, memory.lexicon, margins, certificate.error_model)
    write_atomically(target / "expected.json", (json.dumps(content, ensure_ascii=False) + "\n").encode())
    card = (target / "README.md").read_text(encoding="utf-8")
    proved = proved_paragraph({"sentence": "\n".join(certificate.lines())})
    write_atomically(target / "README.md", card.replace(proved_paragraph(None), proved).encode())
    for name, template in TEMPLATES.items():
        write_atomically(target / name, (files("byheart.checkpoints.suite") / template).read_bytes())
    return margins, rechecked


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
        lexicon = tokens if isinstance(tokens, Lexicon) else Lexicon.of_texts(texts, tokens)
    script = Script(tuple(lexicon.document(t) for t in texts))
    for schedule in (*PARALLEL_SCHEDULES, *SCHEDULES) if host(architecture).parallel else SCHEDULES:
        try:
            built = build_recital(script, lexicon.size, lexicon.failure, schedule=schedule, far=far)
            break
        except OptionError:
            continue
    else:
        built = build_recital(script, lexicon.size, lexicon.failure, far=far)
    return RecitalMemory(built.recital, lexicon, script, built.summary())


def leads(certificate: MarginCertificate, rechecked: Sequence[Recitation]) -> dict[str, dict[str, float | None]]:
    """Per type: the least lead that is proved for every engine of the error model, and the least that was measured."""
    measured: dict[str, float] = {}
    for one in rechecked:
        if one.margin is not None:
            measured[one.dtype] = min(measured.get(one.dtype, one.margin), one.margin)
    proved = {t.type: t.margin if t.verdict is Verdict.PROVED else None for t in certificate.types}
    return {name: {"proved": proved.get(name), "measured": measured.get(name)} for name in LEAST}


def recheck(
    folder: Path,
    types: Sequence[str] = tuple(LEAST),
    asked: Questions | None = None,
    place: Path | None = None,
) -> tuple[Recitation, ...]:
    """Recite the folder in Transformers, in these types and in both forms of attention.

    Eager attention adds a mask to the scores, fused attention does not: only the first can overflow in padded rows.
    The first type is recited in full; the others in every prefix, in noise, and in a padded batch through the cache.
    `place` is the final name of a draft folder.

    Raises:
        ExportError: An answer is incorrect; the message names the first.
    """
    if engines()["transformers"].version is None:
        return ()
    found, asked = [], read_questions(folder) if asked is None else asked
    for dtype in types:
        for form in ("sdpa", "eager"):
            recitation = recite(
                folder, "transformers", dtype=dtype, options={"attention": form}, limit=16, asked=asked,
                brief=form == "eager" or dtype != types[0],
            )  # fmt: skip
            wrong = next((check for check in recitation.checks if not check.passed), None)
            if wrong is not None:
                raise ExportError(
                    f"Transformers in {dtype}, {form} attention, does not recite {place or folder}: "
                    f"{wrong.name}: {wrong.wrong}"
                )
            found.append(recitation)
    return tuple(found)
