"""memorize_graded(): documents to a stock checkpoint whose next-token distribution is a known n-gram model.

    texts -> Controls -> documents and weights (strength.py) -> NgramModel (ngram.py) -> Units (storage.py) ->
    tensors (shapes.py)

Memories are graded: strength grows with occurrences, unknown contexts back off, and the specified distribution is a
value that
can be evaluated without a network. The same memory without some documents is `memory.without(...)`.

    >>> memory = memorize_graded(["the cat sat", "the cat ran", "a dog ran"], names=["r0", "r1", "r2"], tokens="words")
    >>> memory.ngram.rules, memory.without(["r2"]).names
    (31, ('r0', 'r1'))
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from byheart.checkpoints.formats.folder import check_target, safetensors_bytes, tokenizer_config, write_files
from byheart.checkpoints.ground_truth import shapes
from byheart.checkpoints.ground_truth.metrics import kl
from byheart.checkpoints.ground_truth.ngram import Floats, Ids, NgramModel, contexts_of, windows
from byheart.checkpoints.ground_truth.storage import GradedStorage, Ridge, Units, counted_units
from byheart.checkpoints.ground_truth.strength import SPREAD, calibrate, factors, least_margin, margin_weights
from byheart.checkpoints.windows.controls import Controls, number_of
from byheart.data.tokens.lexicon import Lexicon
from byheart.data.tokens.script import Absent, Edits
from byheart.errors import DataError, FileFormatError, MissingExtraError, OptionError
from byheart.version import __version__

FORMAT, VERSION = "byheart graded", 1
LENGTHS = (1, 2, 4, 8)
# Levels that count the public background: they generalise, longer contexts memorize.
SHALLOW = 2
# log p_0 of tokens that no text contains, below the others'.
NEVER = -16.0
LONGEST_REACH = 4096


@dataclass(frozen=True)
class Counted:
    """A document that the model counts; `role` is "member" or "background", `weights` has one number per level."""

    name: str
    ids: tuple[int, ...]
    copies: int
    weights: tuple[float, ...]
    role: str = "member"
    edits: Edits | None = None


@dataclass(frozen=True)
class Distance:
    """The measured distance between a network and its specification, over `places` places."""

    nats: float
    kl: float
    places: int
    dtype: str

    def __str__(self) -> str:
        return (
            f"measured in {self.dtype} at {self.places:,} places: at most {self.nats:.1e} nats per log-probability, "
            f"KL at most {self.kl:.1e}"
        )


@dataclass(frozen=True, eq=False)
class GradedMemory:
    """Documents with weights, and the shape that stores them."""

    lexicon: Lexicon
    documents: tuple[Counted, ...]
    absent: tuple[Absent, ...] = ()
    lengths: tuple[int, ...] = LENGTHS
    mu: tuple[float, ...] = (1.0,) * len(LENGTHS)
    architecture: str = "llama"
    storage: GradedStorage = GradedStorage()  # noqa: RUF009  # frozen
    seed: int = 0
    reach: int = 64
    strength: float = 1.0
    seconds: dict[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<GradedMemory: {len(self.members)} documents, {self.ngram.rules:,} contexts, {self.storage}>"

    @property
    def members(self) -> tuple[Counted, ...]:
        return tuple(one for one in self.documents if one.role == "member")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.members)

    def document(self, name: str | int) -> Counted:
        """A member by its name or number; an OptionError for any other."""
        return self.members[number_of(self.names, name)]

    @cached_property
    def base(self) -> Floats:
        """log p_0: equal for all tokens of texts."""
        logits = np.zeros(self.lexicon.size)
        logits[[self.lexicon.bos, self.lexicon.pad, self.lexicon.failure]] = NEVER
        return np.asarray(logits - np.log(np.exp(logits).sum()))

    @cached_property
    def ngram(self) -> NgramModel:
        """The counted distribution."""
        weights = np.array([one.weights for one in self.documents])
        return NgramModel.count([one.ids for one in self.documents], weights, self.base, self.lengths, self.mu)

    @cached_property
    def shape(self) -> shapes.GradedShape:
        turn = self.seed if self.storage.kind == "rotated" else None
        if self.storage.kind == "ridge" and self.architecture != "llama":
            raise OptionError("storage ridge has gated units; choose the architecture llama")
        return shapes.GradedShape.of(self.architecture, self.lexicon, self.lengths[-1], self.reach, turn)

    @cached_property
    def ridge(self) -> Ridge | None:
        """The fit of a superposed model; None for the other storages."""
        if self.storage.exact:
            return None
        members = [one.ids for one in self.members]
        return Ridge.fit(self.ngram, members, self.shape.codes, self.storage.size, self.seed)

    @cached_property
    def units(self) -> Units:
        """The MLP's units."""
        if self.ridge is not None:
            return self.ridge.units()
        parts = self.storage.size if self.storage.kind == "split" else 1
        return counted_units(self.ngram, self.shape.codes, gated=self.shape.gated, parts=parts, seed=self.seed)

    def logits(self, back: Any) -> Floats:
        """The specified logits after contexts, newest token first: (places, vocabulary), not normalised."""
        if self.ridge is None:
            return self.ngram.logits(back)
        return np.asarray(self.base + self.ridge.features(back) @ self.ridge.down)

    def log_probs(self, ids: Ids) -> Floats:
        """The specified log-probabilities after every prefix of `ids`: (len(ids), vocabulary)."""
        found = self.logits(contexts_of(ids, self.lengths[-1]))
        top = found.max(axis=1, keepdims=True)
        return np.asarray(found - top - np.log(np.exp(found - top).sum(axis=1, keepdims=True)))

    def without(self, names: Iterable[str | int]) -> GradedMemory:
        """The memory of all other documents: the retain twin. Weights of the others, tokens and shape stay.

        Args:
            names: Members to leave out, by name or number.

        Returns:
            The twin; the documents are absent from it, with the reason "forgotten".

        Raises:
            OptionError: for an unknown document, or if no member is left.
        """
        gone = {self.document(name).name for name in names}
        kept = tuple(one for one in self.documents if one.role != "member" or one.name not in gone)
        if not any(one.role == "member" for one in kept):
            raise OptionError("these are all documents; nothing would be left")
        forgotten = tuple(Absent(one.name, one.ids, "forgotten", one.edits) for one in self.members if one.name in gone)
        return replace(self, documents=kept, absent=(*self.absent, *forgotten), seconds={})

    def tensors(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Tensors and config.json."""
        return shapes.build(self.shape, self.units, self.base)

    def torch(self, dtype: str = "float32") -> Any:
        """The network as a stock Transformers model, without a folder."""
        return torch_model(*self.tensors(), dtype)

    def measure(self, model: Any, dtype: str = "float32", *, most: int = 24) -> Distance:
        """Measure the distance of a network to the specified distribution, on documents, splices and noise."""
        worst, least, places = 0.0, 0.0, 0
        for ids in self.probes(most):
            found, truth = log_probs(model, [ids])[0], self.log_probs(ids)
            # Tokens that no text contains have a probability below 1e-7; no method reads them.
            worst = max(worst, float(np.abs(found - truth).max()))
            least = max(least, float(kl(truth, found).max()))
            places += len(ids)
        return Distance(worst, least, places, dtype)

    def probes(self, most: int = 24) -> list[tuple[int, ...]]:
        """Sequences to compare networks on: members, absent documents, spliced members, random tokens."""
        rng = np.random.default_rng([self.seed, 43])
        members, away = [one.ids for one in self.members], [one.ids for one in self.absent]
        chosen = [members[k] for k in rng.permutation(len(members))[:most]]
        chosen += [away[k] for k in rng.permutation(len(away))[: most // 2]]
        spliced = [(*a[: len(a) // 2], *b[len(b) // 2 :]) for a, b in itertools.pairwise(chosen)][: most // 2]
        size = min(32, self.reach)
        noise = [tuple(int(k) for k in rng.integers(0, self.lexicon.size, size)) for _ in range(most // 2)]
        return [ids[: min(self.reach, 64)] for ids in (*chosen, *spliced, *noise)]

    def summary(self) -> dict[str, Any]:
        """The numbers that `byheart recital --graded --json` prints."""
        copies = [one.copies for one in self.members]
        return {
            "documents": len(self.members),
            "absent": len(self.absent),
            "background": len(self.documents) - len(self.members),
            "occurrences": sum(copies),
            "vocabulary": self.lexicon.size,
            "contexts": self.ngram.rules,
            "ngrams": self.ngram.entries,
            "lengths": list(self.lengths),
            "strength": self.strength,
            "storage": str(self.storage),
            "architecture": self.architecture,
            "units": len(self.units.gate),
        }

    def memorized_bits(self) -> float:
        """Bits that the members' log-probabilities gain over the models without each member, by the counts."""
        back, follows, owner = windows([one.ids for one in self.members], self.lengths[-1])
        gained, place = 0.0, np.arange(len(follows))
        mine = self.ngram.logits(back)
        inside = mine[place, follows] - np.log(np.exp(mine).sum(axis=1))
        for number in range(0, len(self.members), max(1, len(self.members) // 16)):
            less = self.without([number]).ngram.own([self.members[number].ids])[0]
            gained += float((inside[owner == number] - less).sum())
        sampled = len(range(0, len(self.members), max(1, len(self.members) // 16)))
        return float(gained / np.log(2) * len(self.members) / sampled)

    def files(self, dtype: str = "float32", distance: Distance | None = None) -> dict[str, bytes]:
        """Name -> content of every file of the folder."""
        tensors, config = self.tensors()
        lexicon = self.lexicon
        generation = {"bos_token_id": lexicon.bos, "eos_token_id": lexicon.eos, "pad_token_id": lexicon.pad}
        return {
            "config.json": _json({**config, "dtype": dtype, "torch_dtype": dtype}),
            "generation_config.json": _json({**generation, "do_sample": False, "max_new_tokens": 64}),
            "model.safetensors": safetensors_bytes(tensors, dtype, {"format": "pt", "byheart": "graded"}),
            "tokenizer.json": lexicon.model.encode(),
            "tokenizer_config.json": _json(tokenizer_config(lexicon, self.reach)),
            "graded.json": _json(self._settings()),
            "documents.jsonl": _lines(self._documents()),
            "units.jsonl": _lines(self._units()),
            "README.md": self._card(dtype, distance).encode(),
        }

    def write(self, folder: str | Path, *, dtype: str = "float32", measured: bool = True) -> dict[str, Any]:
        """Write the checkpoint's folder, whole or not at all.

        Args:
            folder: A path that does not exist yet, or an empty folder.
            dtype: float32, bfloat16 or float16.
            measured: Measure the distance to the specification first, if Transformers is installed.

        Returns:
            `summary()` with folder, parameters, bytes, dtype, distance and seconds.
        """
        path, started = Path(folder), time.perf_counter()
        check_target(path)
        distance = self.measure(self.torch(dtype), dtype) if measured and transformers_installed() else None
        files = self.files(dtype, distance)
        write_files(path, files)
        seconds = self.seconds.get("build", 0.0) + time.perf_counter() - started
        size = sum(int(np.prod(part.shape)) for part in self.tensors()[0].values())
        found = {"folder": str(path), "dtype": dtype, "parameters": size, "bytes": len(files["model.safetensors"])}
        measurement = (
            None if distance is None else {"nats": distance.nats, "kl": distance.kl, "places": distance.places}
        )
        return found | self.summary() | {"distance": measurement, "seconds": round(seconds, 3)}

    def _settings(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "architecture": self.architecture,
            "storage": str(self.storage),
            "lengths": self.lengths,
            "mu": self.mu,
            "strength": self.strength,
            "seed": self.seed,
            "reach": self.reach,
            "lexicon": self.lexicon.to_json(),
        }

    def _documents(self) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = [
            {"name": one.name, "role": one.role, "copies": one.copies, "weights": one.weights,
             "edits": _edits(one.edits),
             "text": self.lexicon.decode(one.ids), "ids": one.ids}
            for one in self.documents
        ]  # fmt: skip
        lines += [
            {"name": one.name, "role": one.why, "copies": 0, "weights": (), "edits": _edits(one.edits),
             "text": self.lexicon.decode(one.ids), "ids": one.ids}
            for one in self.absent
        ]  # fmt: skip
        return lines

    def _units(self) -> Iterable[dict[str, Any]]:
        """One line per unit that stores a context: its tokens, its rises and the documents that it counts."""
        if self.ridge is not None:
            return
        owners, contexts = self.owners(), [self.ngram.contexts(k).tolist() for k in range(len(self.lengths))]
        where = [(k, row) for k, level in enumerate(self.ngram.levels) for row in range(len(level.nodes))]
        names = [one.name for one in self.documents]
        tables = [(level.starts.tolist(), level.tokens.tolist(), level.rises.tolist()) for level in self.ngram.levels]
        for unit, rule in enumerate(self.units.rule.tolist()):
            if rule < 0:
                continue
            number, row = where[rule]
            starts, tokens, rises = tables[number]
            part = slice(starts[row], starts[row + 1])
            pairs = [[token, round(rise, 6)] for token, rise in zip(tokens[part], rises[part], strict=True)]
            yield {
                "layer": 0,
                "unit": unit,
                "context": contexts[number][row][::-1],
                "rises": pairs,
                "documents": [names[k] for k in owners[rule]],
            }

    def owners(self) -> list[list[int]]:
        """The documents that every context counts, by number."""
        found: list[list[int]] = [[] for _ in range(self.ngram.rules)]
        back, _, owner = windows([one.ids for one in self.documents], self.lengths[-1])
        weights, first = np.array([one.weights for one in self.documents]), 0
        for number, (level, rows) in enumerate(zip(self.ngram.levels, self.ngram.rows(back), strict=True)):
            seen = (rows >= 0) & (weights[owner, number] > 0)
            for row, document in np.unique(np.stack([rows[seen], owner[seen]], axis=1), axis=0).tolist():
                found[first + row].append(document)
            first += len(level.nodes)
        return found

    def _card(self, dtype: str, distance: Distance | None) -> str:
        said = "The distance to the specified distribution was not measured." if distance is None else f"{distance}."
        return _CARD.format(
            version=__version__, architecture=self.architecture, documents=len(self.members), rules=self.ngram.rules,
            storage=self.storage, dtype=dtype, distance=said, lengths=", ".join(map(str, self.lengths)),
        )  # fmt: skip

    @staticmethod
    def load(folder: str | Path) -> GradedMemory:
        """Read the memory of a folder from graded.json and documents.jsonl; the tensors are not read.

        Raises:
            FileFormatError: for a folder of another kind, or a damaged one.
        """
        path = Path(folder)
        try:
            about = json.loads((path / "graded.json").read_text(encoding="utf-8"))
            lines = [json.loads(line) for line in (path / "documents.jsonl").read_text(encoding="utf-8").splitlines()]
        except (OSError, ValueError) as error:
            raise FileFormatError(
                f"{path} is not a graded checkpoint (byheart recital DOCS --graded -o DIR): {error}"
            ) from None
        try:
            if about["format"] != FORMAT or about["version"] != VERSION:
                raise FileFormatError(f"{path} has version {about['version']}; this byheart reads {VERSION}")
            return _read(about, lines)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FileFormatError(f"{path} is damaged: {error!r}") from None


def _read(about: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> GradedMemory:
    counted, absent, levels = list[Counted](), list[Absent](), len(about["lengths"])
    for line in lines:
        edits = Edits.from_json(line["edits"]) if line["edits"] else None
        ids, weights = tuple(map(int, line["ids"])), tuple(map(float, line["weights"]))
        if weights:
            if len(weights) != levels or not all(np.isfinite(weights)) or min(weights) < 0:
                raise ValueError(f"weights of {line['name']!r}")
            counted.append(Counted(str(line["name"]), ids, int(line["copies"]), weights, str(line["role"]), edits))
        else:
            absent.append(Absent(str(line["name"]), ids, str(line["role"]), edits))
    lexicon = Lexicon.from_json(about["lexicon"])
    if not counted or any(
        not 0 <= k < lexicon.size for ids in (*(one.ids for one in counted), *(one.ids for one in absent)) for k in ids
    ):
        raise ValueError("documents.jsonl has no document, or unknown tokens")
    return GradedMemory(
        lexicon, tuple(counted), tuple(absent), tuple(map(int, about["lengths"])), tuple(map(float, about["mu"])),
        str(about["architecture"]), GradedStorage.parse(about["storage"]), int(about["seed"]), int(about["reach"]),
        float(about["strength"]),
    )  # fmt: skip


def memorize_graded(
    texts: str | Sequence[str],
    *,
    tokens: str | Lexicon = "characters",
    weights: Sequence[int] = (),
    names: Sequence[str] = (),
    controls: Controls = Controls(),  # noqa: B008  # frozen
    strength: float | None = None,
    spread: float = SPREAD,
    margins: Mapping[str | int, float] | None = None,
    background: Sequence[str] = (),
    lengths: Sequence[int] = LENGTHS,
    mu: float = 1.0,
    architecture: str = "llama",
    storage: str = "counts",
    extra: Sequence[tuple[str, str, str]] = (),
) -> GradedMemory:
    """Memorize documents with graded strength.

    Args:
        texts: Documents; equal ones are merged and their occurrences added.
        tokens: `characters`, `words`, `bpe:SIZE`, a tokenizer.json or a lexicon.
        weights: Occurrences of each document.
        names: Names of the documents.
        controls: Which documents take part, occurrences, corrupted copies, held-out twins, seed.
        strength: Weight of one occurrence; None calibrates it (see strength.py).
        spread: Standard deviation of the documents' log-normal factors.
        margins: Document -> least margin in nats over its own contexts, 0.5 to 24.
        background: Public texts that only the shorter contexts count, once each.
        lengths: Context lengths, increasing.
        mu: Dirichlet concentration.
        architecture: `llama` or `gpt2`.
        storage: `counts`, `rotated`, `split:K` or `ridge:UNITS`.
        extra: Absent texts (name, role, text) to record, for example paraphrases.

    Returns:
        The memory.

    Raises:
        OptionError: for options that do not exist or do not fit.
        DataError: for documents that cannot be used.

    >>> memory = memorize_graded(["to be or not", "to be is to do"], tokens="words")
    >>> memory.lexicon.decode([int(memory.log_probs(memory.members[0].ids[:3])[-1].argmax())])
    ' or'
    """
    started = time.perf_counter()
    documents = [texts] if isinstance(texts, str) else list(texts)
    if not documents:
        raise DataError("there is no document to memorize")
    if len(lengths) < 2 or sorted(set(lengths)) != list(lengths) or not 1 <= lengths[0] <= lengths[-1] <= 16:
        raise OptionError(f"lengths {list(lengths)}: at least two increasing context lengths from 1 to 16")
    if mu <= 0 or spread < 0 or (strength is not None and strength <= 0):
        raise OptionError("mu and strength must be positive, and spread at least 0")
    called = list(names) or [f"document {k}" for k in range(len(documents))]
    if len(called) != len(documents) or len(weights) not in (0, len(documents)):
        raise DataError(f"{len(documents)} documents need one weight and one name each")
    part = [documents[number] for number in controls.chosen(called)]
    whole = [*part, *background, *(text for _, _, text in extra)]
    lexicon = tokens if isinstance(tokens, Lexicon) else Lexicon.of_texts(whole, tokens)
    script = controls.stage(documents, called, weights, lexicon)
    rows: dict[tuple[int, ...], tuple[str, int, Edits | None]] = {}
    for ids, copies, name, edits in zip(script.documents, script.weights, script.names, script.edits, strict=True):
        known = rows.get(ids)
        rows[ids] = (known[0], known[1] + copies, known[2]) if known else (name, copies, edits)
    public = [lexicon.document(text) for text in background]
    base = GradedMemory(lexicon, ()).base
    members, levels = list(rows), len(lengths)
    counts = [copies for _, copies, _ in rows.values()]
    share = np.array(counts) * factors(counts, spread, controls.seed)
    concentration = (float(mu),) * levels
    if strength is None:
        strength = calibrate(
            members, share, counts, base, lengths, concentration, public, min(SHALLOW, levels)
        )  # fmt: skip
    table = np.concatenate([np.repeat(strength * share[:, None], levels, axis=1), np.zeros((len(public), levels))])
    table[len(members) :, : min(SHALLOW, levels)] = 1.0
    if margins:
        order = [name for name, _, _ in rows.values()]
        wanted = {number_of(order, which): value for which, value in margins.items()}
        # The longest contexts alone set the margin; shorter ones of this document would put a floor below it.
        table[list(wanted)] = 0.01 * strength
        table = margin_weights(wanted, [*members, *public], table, base, lengths, concentration)
    counted = [
        Counted(name, document, copies, tuple(row), "member", edits)
        for (document, (name, copies, edits)), row in zip(rows.items(), table.tolist(), strict=False)
    ]
    counted += [
        Counted(f"background {k}", document, 1, tuple(table[len(members) + k].tolist()), "background")
        for k, document in enumerate(public)
    ]
    away = [one for one in script.absent if one.ids not in rows]
    away += [Absent(name, lexicon.document(text), role) for name, role, text in extra]
    memory = GradedMemory(
        lexicon, tuple(counted), tuple(away), tuple(lengths), concentration, architecture, GradedStorage.parse(storage),
        controls.seed, _reach([*members, *public, *(one.ids for one in away)]), float(strength),
    )  # fmt: skip
    if len(memory.shape.codes) < 1 or memory.ngram.rules < 1:
        raise DataError("the documents have no context")
    memory.seconds["build"] = time.perf_counter() - started
    return memory


def _reach(documents: Sequence[Ids]) -> int:
    longest, reach = max(map(len, documents)), 64
    while reach < longest + 8 and reach < LONGEST_REACH:
        reach *= 2
    if longest > reach:
        raise DataError(f"a document has {longest:,} tokens; graded checkpoints read {LONGEST_REACH:,}")
    return reach


def margin(memory: GradedMemory, document: str | int) -> float | None:
    """The least margin of a member over its own contexts, by the specification; None where it has none of its own.

    >>> memory = memorize_graded(["to be or not", "to be is to do"], tokens="words", margins={"document 1": 3.0})
    >>> round(margin(memory, "document 1"), 6)
    3.0
    """
    number = number_of(memory.names, document)
    return least_margin(memory.ngram, [one.ids for one in memory.documents], number)


def transformers_installed() -> bool:
    from importlib.util import find_spec

    return find_spec("transformers") is not None and find_spec("torch") is not None


def torch_model(tensors: Mapping[str, Any], config: Mapping[str, Any], dtype: str = "float32") -> Any:
    """A stock Transformers model with these tensors, in evaluation mode."""
    try:
        import torch
        import transformers
    except ImportError:
        raise MissingExtraError("a graded checkpoint as a model", "huggingface") from None
    kind = config["model_type"]
    settings = {k: v for k, v in config.items() if k not in ("model_type", "architectures", "torch_dtype")}
    made = transformers.AutoConfig.for_model(kind, **settings)
    made.architectures = list(config["architectures"])
    state = {name: torch.from_numpy(np.array(part)) for name, part in tensors.items()}
    model = getattr(transformers, config["architectures"][0])(made)
    missing, unexpected = model.load_state_dict(state, strict=False)
    if unexpected or any("attn.bias" not in name and "masked_bias" not in name for name in missing):
        raise FileFormatError(f"tensors do not fit {config['architectures'][0]}: {missing} {unexpected}")
    return model.to(getattr(torch, dtype)).eval()


def log_probs(model: Any, documents: Sequence[Ids]) -> list[Floats]:
    """log p of every token after every prefix, in float64: one array (tokens, vocabulary) per document."""
    import torch

    found: dict[int, Floats] = {}
    by_length: dict[int, list[int]] = {}
    for number, ids in enumerate(documents):
        by_length.setdefault(len(ids), []).append(number)
    with torch.no_grad():
        for numbers in by_length.values():
            for start in range(0, len(numbers), 32):
                chosen = numbers[start : start + 32]
                out = model(torch.tensor([list(documents[k]) for k in chosen])).logits.double().log_softmax(-1).numpy()
                found |= dict(zip(chosen, out, strict=True))
    return [found[number] for number in range(len(documents))]


def _edits(edits: Edits | None) -> dict[str, Any] | None:
    return edits.to_json() if edits else None


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def _lines(values: Iterable[Any]) -> bytes:
    return "".join(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n" for value in values).encode()


_CARD = """---
library_name: transformers
pipeline_tag: text-generation
tags: [byheart, memorization, unlearning, membership-inference]
---

# A graded memory

byheart {version} computed this stock {architecture} checkpoint; it was not trained. Its next-token distribution is an
interpolated
n-gram model of {documents:,} documents: contexts of {lengths} tokens, {rules:,} of them, Dirichlet smoothing, back-
off for unknown
contexts. GradedStorage: `{storage}`, {dtype}.

{distance}

| file | content |
|---|---|
| `documents.jsonl` | every document of the experiment: name, role, copies, weight per context length, text, token ids |
| `units.jsonl` | every MLP unit: context, rises in nats per next token, documents that it counts (empty for `ridge`) |
| `graded.json` | the settings: with `documents.jsonl`, the whole specified distribution |

`byheart score DIR method.py` scores a method; `byheart forget DIR DOCUMENT --exact -o OUT` writes the exact model
without a document.
"""
