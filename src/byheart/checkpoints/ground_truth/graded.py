"""A graded memory: documents with weights, the n-gram model that they specify, and the folder that stores it.

    NgramModel (ngram.py) -> Units (storage.py) -> tensors (shapes.py) -> folder

Memories are graded: strength grows with occurrences, unknown contexts back off, and the specified distribution is a
value that can be evaluated without a network. The same memory without some documents is `memory.without(...)`.
`memorize_graded` (memorize.py) builds one from texts.
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

from byheart.checkpoints.dtypes import DTYPES
from byheart.checkpoints.formats.folder import check_target, safetensors_bytes, tokenizer_config, write_files
from byheart.checkpoints.ground_truth import shapes
from byheart.checkpoints.ground_truth.lengths import LENGTHS
from byheart.checkpoints.ground_truth.metrics import kl
from byheart.checkpoints.ground_truth.networks import log_probs, torch_model, transformers_installed
from byheart.checkpoints.ground_truth.ngram import Floats, Ids, NgramModel, contexts_of, windows
from byheart.checkpoints.ground_truth.storage import GradedStorage, Ridge, RidgeProblem, Units, counted_units
from byheart.checkpoints.ground_truth.strength import LeaveOneOut
from byheart.checkpoints.windows.controls import number_of
from byheart.data.tokens.lexicon import Lexicon
from byheart.data.tokens.script import Absent, Edits
from byheart.errors import FileFormatError, OptionError
from byheart.version import __version__

FORMAT, VERSION = "byheart graded", 2
# Levels that count the public background: they generalise, longer contexts memorize.
SHALLOW = 2
# Members that are forgotten one by one to measure the density of superposed storage: one per number of copies.
SAMPLED = 6
AGAIN = "write the folder again with `byheart recital --graded`"
# log p_0 of tokens that no text contains, below the others'.
NEVER = -16.0


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
    """Documents with weights, and the shape that stores them.

    Attributes:
        lexicon: The tokenizer and its special tokens.
        documents: Members and background, as token ids with their copies and weights.
        absent: Documents that are not stored: held out, near misses, forgotten.
        lengths: Lengths of the contexts that are counted.
        mu: Smoothing per length; a small one trusts few occurrences.
        architecture: `llama` or `gpt2`.
        storage: How rules become units.
        seed: Decides everything that is sampled.
        reach: The longest input sequence.
        strength: The margin that calibration aimed at.
        frequencies: Public counts of tokens, p_0; they stay when documents are forgotten, as the tokenizer does.
        seconds: Time of each stage.
    """

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
    frequencies: tuple[int, ...] = ()
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
        for one in self.absent if isinstance(name, str) else ():
            if one.name == name and name not in self.names:
                raise OptionError(f"{name!r} is {one.why}: this model does not store it; choose a member")
        return self.members[number_of(self.names, name)]

    @cached_property
    def base(self) -> Floats:
        """log p_0: the public frequencies of tokens plus 1; equal for all tokens of texts where none are given."""
        logits = np.log(np.array(self.frequencies or (0,) * self.lexicon.size) + 1.0)
        logits[[self.lexicon.bos, self.lexicon.pad, self.lexicon.failure]] = NEVER + logits.min()
        return np.asarray(logits - np.log(np.exp(logits).sum()))

    @cached_property
    def ngram(self) -> NgramModel:
        """The counted distribution."""
        weights = np.array([one.weights for one in self.documents])
        return NgramModel.count([one.ids for one in self.documents], weights, self.base, self.lengths, self.mu)

    @cached_property
    def shape(self) -> shapes.GradedShape:
        turn = self.seed if self.storage.kind == "rotated" else None
        return shapes.GradedShape.of(self.architecture, self.lexicon, self.lengths[-1], self.reach, turn)

    @cached_property
    def ridge(self) -> Ridge | None:
        """The fit of a superposed model; None for the other storages."""
        if self.storage.exact:
            return None
        public = [one.ids for one in self.documents if one.role != "member"]
        members, copies = [one.ids for one in self.members], [one.copies for one in self.members]
        return self.ridge_problem(members, copies, public).solve(self.ngram)

    def ridge_problem(self, members: Sequence[Ids], copies: Sequence[int], background: Sequence[Ids]) -> RidgeProblem:
        """Return the least-squares problem of storage `ridge` for some documents.

        Args:
            members: Their token ids.
            copies: How often each member counts.
            background: Token ids of public documents.
        """
        shape = self.shape
        bare = Ridge.random(shape.codes, self.lengths[-1], self.storage.size, self.seed, gated=shape.gated)
        return RidgeProblem(bare, members, copies, background)

    @cached_property
    def units(self) -> Units:
        """The MLP's units."""
        if self.ridge is not None:
            return self.ridge.units()
        parts = self.storage.size if self.storage.kind == "split" else 1
        return counted_units(self.ngram, self.shape.codes, gated=self.shape.gated, parts=parts, seed=self.seed)

    def logits(self, back: Any, fit: Ridge | None = None) -> Floats:
        """Return the specified logits, (places, vocabulary), not normalised.

        Args:
            back: Contexts, newest token first.
            fit: The superposed units; the memory's own unless given.
        """
        fit = self.ridge if fit is None else fit
        if fit is None:
            return self.ngram.logits(back)
        return np.asarray(self.base + fit.features(back) @ fit.down)

    def log_probs(self, ids: Ids, fit: Ridge | None = None) -> Floats:
        """Return the specified log-probabilities after every prefix, (len(ids), vocabulary).

        Args:
            ids: A token sequence.
            fit: The superposed units; the memory's own unless given.
        """
        found = self.logits(contexts_of(ids, self.lengths[-1]), fit)
        top = found.max(axis=1, keepdims=True)
        return np.asarray(found - top - np.log(np.exp(found - top).sum(axis=1, keepdims=True)))

    def own_log_probs(self, ids: Ids, fit: Ridge | None = None) -> Floats:
        """Return the specified log-probabilities of a document's own tokens, from the second one on.

        Args:
            ids: The document.
            fit: The superposed units; the memory's own unless given.
        """
        return np.asarray(self.log_probs(ids[:-1], fit)[np.arange(len(ids) - 1), np.asarray(ids[1:])])

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
        """Measure the distance of a network to the specified distribution, on documents, splices and noise.

        Args:
            model: A Transformers model.
            dtype: The type that it computes in, for the report.
            most: How many members are compared.
        """
        worst, least, places = 0.0, 0.0, 0
        for ids in self.probes(most):
            found, truth = log_probs(model, [ids])[0], self.log_probs(ids)
            # Tokens that no text contains have a probability below 1e-7; no method reads them.
            # NaN, from an overflow in float16, is the largest distance of all.
            worst = max(worst, _finite(np.abs(found - truth).max()))
            least = max(least, _finite(kl(truth, found).max()))
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
        """Bits that members' log-probabilities gain over the model without the member, summed over members.

        Counted storage has a closed form; of superposed storage, SAMPLED members are forgotten one by one.
        """
        members = self.members
        if self.storage.exact:
            weights = np.array([one.weights[0] for one in members])
            public = [one.ids for one in self.documents if one.role != "member"]
            shallow = min(SHALLOW, len(self.lengths))
            places = LeaveOneOut([one.ids for one in members], self.base, self.lengths, public, shallow)
            inside, outside = places.logs(weights, weights, self.mu)
            gained, judged = float((inside - outside).sum()), len(places.length)
        else:
            chosen = members[:: max(1, len(members) // SAMPLED)][:SAMPLED]
            judged, gained = len(chosen), 0.0
            for one in chosen if len(members) > 1 else ():
                gained += float((self.own_log_probs(one.ids) - self.without([one.name]).own_log_probs(one.ids)).sum())
        return float(gained / np.log(2) * len(members) / judged)

    def files(
        self,
        dtype: str = "float32",
        distance: Distance | None = None,
        built: tuple[dict[str, Any], dict[str, Any]] | None = None,
    ) -> dict[str, bytes]:
        """Return the content of every file of the folder, by name.

        Args:
            dtype: The type of the tensors.
            distance: The measured distance to the specification, for the model card.
            built: The result of `tensors()`, where it exists already.
        """
        tensors, config = built or self.tensors()
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
            measured: Measure the distance to the specification first, if Transformers is installed, and the density.

        Returns:
            `summary()` with folder, parameters, bytes, dtype, distance, bits_per_parameter and seconds.
        """
        path, started = Path(folder), time.perf_counter()
        if dtype not in DTYPES:
            raise OptionError(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
        check_target(path)
        # Computed once: of large memories, every further copy costs as much time as the counting.
        built = self.tensors()
        distance = self.measure(torch_model(*built, dtype), dtype) if measured and transformers_installed() else None
        files = self.files(dtype, distance, built)
        write_files(path, files)
        seconds = self.seconds.get("build", 0.0) + time.perf_counter() - started
        size = sum(int(np.prod(part.shape)) for part in built[0].values())
        found = {"folder": str(path), "dtype": dtype, "parameters": size, "bytes": len(files["model.safetensors"])}
        measurement = (
            None if distance is None else {"nats": distance.nats, "kl": distance.kl, "places": distance.places}
        )
        density = self.memorized_bits() / size if measured else None
        found |= self.summary() | {"distance": measurement, "bits_per_parameter": density}
        return found | {"seconds": round(seconds, 3)}

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
            "frequencies": self.frequencies,
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
        except OSError as error:
            raise FileFormatError(
                f"{path} is not a graded checkpoint (byheart recital DOCS --graded -o DIR): {error}"
            ) from None
        except ValueError as error:
            raise FileFormatError(f"graded.json or documents.jsonl of {path} is not JSON: {error}; {AGAIN}") from None
        try:
            if about["format"] != FORMAT or about["version"] != VERSION:
                raise FileFormatError(f"{path} has version {about['version']}; this byheart reads {VERSION}")
            return _read(about, lines)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FileFormatError(f"{path} is damaged: {type(error).__name__}: {error}; {AGAIN}") from None


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
    lexicon, frequencies = Lexicon.from_json(about["lexicon"]), tuple(map(int, about["frequencies"]))
    if frequencies and (len(frequencies) != lexicon.size or min(frequencies) < 0):
        raise ValueError("frequencies")
    if not counted or any(
        not 0 <= k < lexicon.size for ids in (*(one.ids for one in counted), *(one.ids for one in absent)) for k in ids
    ):
        raise ValueError("documents.jsonl has no document, or unknown tokens")
    return GradedMemory(
        lexicon, tuple(counted), tuple(absent), tuple(map(int, about["lengths"])), tuple(map(float, about["mu"])),
        str(about["architecture"]), GradedStorage.parse(about["storage"]), int(about["seed"]), int(about["reach"]),
        float(about["strength"]), frequencies,
    )  # fmt: skip


def _finite(value: float) -> float:
    return float(value) if np.isfinite(value) else float("inf")


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
