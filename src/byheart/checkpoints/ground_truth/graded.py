"""A graded memory: documents with weights, the n-gram model that they specify, and the folder that stores it.

    NgramModel (ngram.py) -> Units (storage.py) -> tensors (shapes.py) -> folder (folder.py)

Memories are graded: strength grows with occurrences, unknown contexts back off, and the specified distribution is a
value that can be evaluated without a network. The same memory without some documents is `memory.without(...)`.
`memorize_graded` (memorize.py) builds one from texts.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from byheart.checkpoints.dtypes import DTYPES
from byheart.checkpoints.formats.folder import check_target, write_files
from byheart.checkpoints.ground_truth import shapes
from byheart.checkpoints.ground_truth.documents import Counted, Distance
from byheart.checkpoints.ground_truth.folder import folder_files, read_folder
from byheart.checkpoints.ground_truth.lengths import LENGTHS
from byheart.checkpoints.ground_truth.metrics import kl
from byheart.checkpoints.ground_truth.networks import log_probs, torch_model, transformers_installed
from byheart.checkpoints.ground_truth.ngram import Floats, Ids, NgramModel, contexts_of, windows
from byheart.checkpoints.ground_truth.storage import GradedStorage, Ridge, RidgeProblem, Units, counted_units
from byheart.checkpoints.ground_truth.strength import LeaveOneOut
from byheart.checkpoints.windows.controls import number_of
from byheart.data.tokens.lexicon import Lexicon
from byheart.data.tokens.script import Absent
from byheart.errors import OptionError

# Levels that count the public background: they generalise, longer contexts memorize.
SHALLOW = 2
# Members that are forgotten one by one to measure the density of superposed storage: one per number of copies. Of many
# members, one in ONE_OF is forgotten at once, MOST_SAMPLED at most: a single fit, and the others hardly change.
SAMPLED, ONE_OF, MOST_SAMPLED = 6, 500, 60
# log p_0 of tokens that no text contains, below the others'.
NEVER = -16.0


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
        if fit is None and self.storage.exact:
            return self.ngram.own([ids])[0]
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

        Counted storage has a closed form; of superposed storage, some members are forgotten.
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
            together = min(len(members) // ONE_OF, MOST_SAMPLED)
            many = max(SAMPLED, together)
            chosen = members[:: max(1, len(members) // many)][:many]
            judged, gained = len(chosen), 0.0
            names = [one.name for one in chosen]
            for part in ([names] if together >= SAMPLED else [[name] for name in names]) if len(members) > 1 else []:
                twin = self.without(part)
                for one in map(self.document, part):
                    gained += float((self.own_log_probs(one.ids) - twin.own_log_probs(one.ids)).sum())
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
        return folder_files(self, dtype, distance, built or self.tensors())

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

    @staticmethod
    def load(folder: str | Path) -> GradedMemory:
        """Read the memory of a folder from graded.json and documents.jsonl; the tensors are not read.

        Raises:
            FileFormatError: for a folder of another kind, or a damaged one.
        """
        return GradedMemory(**read_folder(folder))


def _finite(value: float) -> float:
    return float(value) if np.isfinite(value) else float("inf")
