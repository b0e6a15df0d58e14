"""Diagnosis: which known faults return what an engine returned.

An engine answers a questionnaire of one recital folder. A *signature* is, after every prefix, the most likely token and
the errors of two logits (the correct token's and the failure token's, clipped), and the tokens of greedy decoding. The
library holds the signature of every mutant of `known_faults`, computed by byheart's own machine and cached.

Distance = 10 * share of differing tokens + mean |asinh(x / c) - asinh(y / c)| over the logits. The second term
saturates: small errors count by their pattern, large ones by their place. c is 0.01 nats in float32 and 0.5 in types of
16 bits, whose own rounding must not count.

Faults whose signatures agree are one class: the questionnaire cannot separate them. A nearest class beyond `LIMITS` is
refused: the fault is none of the known ones. Without logits many faults coincide, so the answer is a longer class.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from byheart.checkpoints.engines.expected import cut, read_expected
from byheart.checkpoints.engines.queries import read_queries
from byheart.checkpoints.formats.stock import read_decoder
from byheart.checkpoints.suite.cases import cache_root
from byheart.checkpoints.suite.machine import Cache, Machine
from byheart.checkpoints.suite.mutants.check import known_faults
from byheart.checkpoints.suite.sensing import in_4_bits, in_8_bits, in_16_steps, in_fp8
from byheart.errors import FileFormatError, OptionError
from byheart.files import write_atomically
from byheart.progress import SILENT, Progress
from byheart.version import __version__

# What engines may do to keys and values: their logits differ, and no token.
APPROXIMATIONS = {
    "a cache in 8 bits": in_8_bits,
    "a cache in 4 bits": in_4_bits,
    "a cache in 4 bits with a zero point": in_16_steps,
    "a cache of 8-bit floats": in_fp8,
}
LEGITIMATE = "approximation"  # their family
CLIP, MISSING = 64.0, -1
DOCUMENT, NOISE, FAR, PROMPTS, LONGEST, COUNT = 64, 24, 256, 3, 60, 6
# Chosen by hand, not tuned: a nearest class beyond the limit counts as unknown.
SCALES = {"float32": 0.01, "bfloat16": 0.5, "float16": 0.1}
LIMITS = {"float32": 0.3, "bfloat16": 0.5, "float16": 0.5, "tokens": 0.5}
SAME = 0.02  # distance of signatures that one questionnaire cannot separate
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Query:
    """One call: `logits` of a text in pieces, or greedy decoding of prompts side by side (`batch`) or alone."""

    name: str
    verb: str
    pieces: tuple[tuple[int, ...], ...]
    count: int = 0

    def to_json(self, failure: int) -> dict[str, Any]:
        shown: dict[str, Any] = {"name": self.name, "do": self.verb}
        if self.verb == "logits":
            return shown | {"pieces": [list(piece) for piece in self.pieces], "failure": failure}
        return shown | {"ids": [list(ids) for ids in self.pieces], "count": self.count}

    @property
    def rows(self) -> int:
        return sum(map(len, self.pieces)) if self.verb == "logits" else len(self.pieces) * self.count


@dataclass(frozen=True, eq=False)
class AnswerSignature:
    """Tokens (rows,), MISSING where unknown; errors of two logits (rows, 2), NaN where unknown."""

    tokens: Ints
    errors: Floats


@dataclass(frozen=True)
class FaultClass:
    """Known faults that the answers do not separate."""

    names: tuple[str, ...]
    families: tuple[str, ...]
    distance: float

    def to_json(self) -> dict[str, Any]:
        return {"faults": list(self.names), "families": list(self.families), "distance": round(self.distance, 4)}


@dataclass(frozen=True)
class Diagnosis:
    """The verdict: `no difference`, `approximation` (every token is correct, and the first class holds what engines may
    do), `known` (the first class is within the limit) or `unknown`."""

    verdict: str
    classes: tuple[FaultClass, ...]
    compared: int
    incorrect: int
    largest: float | None
    dtype: str
    limit: float

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict, "dtype": self.dtype, "compared": self.compared, "incorrect": self.incorrect,
            "largest_error": self.largest, "limit": self.limit, "classes": [c.to_json() for c in self.classes],
        }  # fmt: skip


class DiagnosisQueries:
    """The queries of a recital folder, and their correct answers by byheart's machine.

    Args:
        folder: a folder of the kind `recital`.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder, queried = Path(folder), read_queries(folder)
        self.decoder, self.pad, self.eos = read_decoder(folder), queried.pad, queried.eos
        self.failure, self.tolerance = queried.recital.unknown, dict(read_expected(folder).tolerance)
        text = queried.documents[0][:-1]
        first = text[: min(DOCUMENT, queried.reach - 1)]
        ends = np.cumsum([0, *cut(len(first))]).tolist()
        pieces = tuple(first[a:b] for a, b in pairwise(ends) if b > a)
        far = (text * (FAR // len(text) + 1))[: min(FAR, queried.reach - COUNT)]
        starts = np.linspace(1, max(min(len(text), LONGEST) - COUNT - 2, 2), PROMPTS).astype(int).tolist()
        prompts = tuple(text[:n] for n in dict.fromkeys(starts))
        self.queries = (
            Query("document in one pass", "logits", (first,)),
            Query("document through the cache", "logits", pieces),
            Query("noise", "logits", (tuple(queried.noisy())[:NOISE],)),
            Query("far", "logits", (far,)),
            *(Query(f"prompt of {len(ids)} tokens", "generate", (ids,), COUNT) for ids in prompts),
            Query("prompts of unequal lengths", "batch", (text[:3], text[: min(20, len(text))]), COUNT),
        )
        with torch.inference_mode():
            exact = [self._rows(query, Machine(self.decoder)) for query in self.queries]
        self.tokens = np.concatenate([tokens for tokens, _ in exact])
        self._logits = [logits for _, logits in exact]

    def to_json(self) -> dict[str, Any]:
        return {"folder": str(self.folder), "queries": [query.to_json(self.failure) for query in self.queries]}

    def _rows(self, query: Query, machine: Machine) -> tuple[Ints, Floats | None]:
        """Most likely tokens, and all logits where the query is about logits."""
        if query.verb == "logits":
            cache = Cache(len(machine.decoder.layers))
            logits = torch.cat([machine.run(piece, cache) for piece in query.pieces]).double().numpy()
            logits = np.nan_to_num(logits, nan=-999.0, posinf=999.0, neginf=-999.0)
            return logits.argmax(1), logits
        longest = max(map(len, query.pieces))
        return np.array([t for ids in query.pieces for t in self._decode(machine, ids, longest, query.count)]), None

    def _decode(self, machine: Machine, ids: Sequence[int], longest: int, count: int) -> list[int]:
        """`count` tokens by greedy decoding, left-padded to `longest`; MISSING after the end token."""
        cache, padding = Cache(len(machine.decoder.layers)), longest - len(ids)
        row, reply = machine.run([self.pad] * padding + list(ids), cache, padding)[-1], list[int]()
        while len(reply) < count:
            reply.append(int(row.argmax()))
            if reply[-1] == self.eos:
                break
            row = machine.run([reply[-1]], cache)[-1]
        return reply + [MISSING] * (count - len(reply))

    def signature(self, machine: Machine) -> AnswerSignature:
        """Return the signature of a machine."""
        return self._join(self._rows(query, machine) for query in self.queries)

    def _join(self, rows: Any) -> AnswerSignature:
        tokens, errors = [], []
        for query, exact, (found, logits) in zip(self.queries, self._logits, rows, strict=True):
            tokens.append(np.full(query.rows, MISSING) if found is None else found)
            off = np.full((query.rows, 2), np.nan)
            if logits is not None and exact is not None:
                places, best = np.arange(len(exact)), exact.argmax(1)
                pair = np.stack([exact[places, best], exact[:, self.failure]], 1)
                shown = logits if logits.shape[1] == 2 else np.stack([logits[places, best], logits[:, self.failure]], 1)
                off = np.clip(np.nan_to_num(shown - pair, nan=CLIP), -CLIP, CLIP)
            errors.append(off)
        return AnswerSignature(np.concatenate(tokens), np.concatenate(errors))

    def observe(self, adapter: Any) -> AnswerSignature:
        """Return the signature of an engine; queries that the adapter cannot answer stay empty.

        Args:
            adapter: see `byheart.checkpoints.suite.adapters.EngineAdapter`.
        """

        def answered() -> Iterator[tuple[Ints | None, Floats | None]]:
            for query in self.queries:
                method = getattr(adapter, query.verb, None)
                if method is None:
                    yield None, None
                elif query.verb == "logits":
                    found = method([list(piece) for piece in query.pieces])
                    values = None if found is None else np.asarray(found, dtype=np.float64)
                    yield (None, None) if values is None else (values.argmax(1), values)
                else:
                    prompts = [list(ids) for ids in query.pieces]
                    reply = method(prompts, query.count) if query.verb == "batch" else [method(prompts[0], query.count)]
                    yield self._tokens(query, [getattr(row, "ids", row) for row in reply]), None

        return self._join(answered())

    def _tokens(self, query: Query, rows: Sequence[Sequence[int]]) -> Ints | None:
        if any(isinstance(row, str) for row in rows):
            return None
        return np.array([t for row in rows for t in [*row, *[MISSING] * query.count][: query.count]])

    def read(self, answers: Mapping[str, Any]) -> AnswerSignature:
        """Return the signature of answers by name: `tokens`, and `logits` as pairs (correct token, failure token).

        Raises:
            FileFormatError: a query is unknown, or its answers have another length.
        """
        unknown = sorted(set(answers) - {query.name for query in self.queries})
        if unknown:
            raise FileFormatError(f"answers to unknown queries: {', '.join(unknown)}; see --queries")

        def given() -> Iterator[tuple[Ints | None, Floats | None]]:
            for query in self.queries:
                value = answers.get(query.name, {})
                try:
                    tokens, logits = value.get("tokens"), value.get("logits")
                    if tokens is not None and query.verb == "batch":
                        tokens = self._tokens(query, tokens)
                    elif tokens is not None and query.verb == "generate":
                        tokens = self._tokens(query, [tokens])
                    found = None if tokens is None else np.asarray(tokens, dtype=np.int64)
                    pairs = None if logits is None else np.asarray(logits, dtype=np.float64)
                except (AttributeError, TypeError, ValueError) as error:
                    raise FileFormatError(f"the answer to {query.name!r} is damaged: {error}") from error
                if (found is not None and found.shape != (query.rows,)) or (
                    pairs is not None and pairs.shape != (query.rows, 2)
                ):
                    raise FileFormatError(f"the answer to {query.name!r} must have {query.rows} rows")
                yield found, pairs

        return self._join(given())

    def diagnose(
        self, observed: AnswerSignature, dtype: str = "float32", *, progress: Progress = SILENT, most: int = 3
    ) -> Diagnosis:
        """Return the closest classes of known faults.

        Args:
            observed: the engine's signature.
            dtype: the type that the engine computes in.
            progress: counts the mutants while the library is computed, once per folder.
            most: how many classes are returned.

        Raises:
            OptionError: not one query was answered.
        """
        if dtype not in SCALES:
            raise OptionError(f"no scale of errors for {dtype!r}; known: {', '.join(SCALES)}")
        have, seen = observed.tokens != MISSING, ~np.isnan(observed.errors)
        if not have.any() and not seen.any():
            raise OptionError("not one query was answered; the engine must return tokens or logits")
        wrong = int((observed.tokens != self.tokens)[have].sum())
        largest = float(np.abs(observed.errors[seen]).max()) if seen.any() else None
        limit = LIMITS[dtype if seen.any() else "tokens"]
        if not wrong and (largest is None or largest <= self.tolerance[dtype]):
            return Diagnosis("no difference", (), int(have.sum()), 0, largest, dtype, limit)
        library = self._library(progress)
        distances = library.distances(observed, SCALES[dtype])
        found = library.classes(observed, distances, SCALES[dtype], most)
        verdict = "known" if found and found[0].distance <= limit else "unknown"
        if verdict == "known" and not wrong and LEGITIMATE in found[0].families:
            verdict = LEGITIMATE
        return Diagnosis(verdict, found, int(have.sum()), wrong, largest, dtype, limit)

    def _library(self, progress: Progress) -> FaultLibrary:
        digest = hashlib.sha256(json.dumps([__version__, self.to_json()["queries"], list(APPROXIMATIONS)]).encode())
        for name in ("config.json", "model.safetensors"):
            digest.update((self.folder / name).read_bytes())
        path = cache_root() / f"diagnosis-{__version__}-{digest.hexdigest()[:16]}.npz"
        if path.is_file():
            return FaultLibrary.load(path)
        library = self._compute(progress)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, library.to_bytes())
        return library

    def _compute(self, progress: Progress) -> FaultLibrary:
        names, families, tokens, errors = [], [], [], []
        with progress.stage("signatures of known faults", total=sum(1 for _ in self._machines())) as stage:
            for name, family, make in self._machines():
                stage.advance(1)
                try:
                    with torch.inference_mode():
                        found = self.signature(make())
                except (RuntimeError, IndexError, ValueError):  # a fault that crashes is seen without a diagnosis
                    continue
                errs = np.nan_to_num(found.errors)
                if (found.tokens == self.tokens).all() and np.abs(errs).max() <= self.tolerance["float32"]:
                    continue
                names.append(name)
                families.append(family)
                tokens.append(found.tokens)
                errors.append(found.errors)
        return FaultLibrary(tuple(names), tuple(families), np.array(tokens), np.array(errors))

    def _machines(self) -> Iterator[tuple[str, str, Callable[[], Machine]]]:
        """Name, family and machine of every known fault, and of what engines may do."""
        for mutant in known_faults(self.decoder):
            yield mutant.name, LEGITIMATE if mutant.harmless else mutant.family, mutant.make
        for name, change in APPROXIMATIONS.items():
            yield name, LEGITIMATE, partial(Machine(self.decoder).wrap, "remember", change)


@dataclass(frozen=True, eq=False)
class FaultLibrary:
    """Signatures of known faults: tokens (faults, rows), errors (faults, rows, 2)."""

    names: tuple[str, ...]
    families: tuple[str, ...]
    tokens: Ints
    errors: Floats

    def distances(self, observed: AnswerSignature, scale: float) -> Floats:
        """The distance of every fault, over the rows that were observed."""
        have, seen = observed.tokens != MISSING, ~np.isnan(observed.errors).any(1)
        # Rows of greedy decoding have no logits in the library.
        seen &= ~np.isnan(self.errors).any((0, 2))
        found = np.zeros(len(self.names))
        if have.any():
            found += 10.0 * (self.tokens[:, have] != observed.tokens[have]).mean(1)
        if seen.any():
            mine, theirs = (np.arcsinh(x / scale) for x in (self.errors[:, seen], observed.errors[seen]))
            found += np.abs(mine - theirs).mean((1, 2))
        return found

    def classes(self, observed: AnswerSignature, distances: Floats, scale: float, most: int) -> tuple[FaultClass, ...]:
        """The nearest classes: a fault and all others whose signatures agree with its own in the observed rows."""
        have, seen = observed.tokens != MISSING, np.isnan(observed.errors)
        found, taken = list[FaultClass](), set[int]()
        for index in np.argsort(distances, kind="stable").tolist():
            if index in taken:
                continue
            own = AnswerSignature(
                np.where(have, self.tokens[index], MISSING), np.where(seen, np.nan, self.errors[index])
            )
            members = [k for k in np.flatnonzero(self.distances(own, scale) <= SAME).tolist() if k not in taken]
            taken.update(members)
            order = [index, *(k for k in members if k != index)]
            kinds = tuple(dict.fromkeys(self.families[k] for k in order))
            found.append(FaultClass(tuple(self.names[k] for k in order), kinds, float(distances[index])))
            if len(found) == most:
                break
        return tuple(found)

    def to_bytes(self) -> bytes:
        out = io.BytesIO()
        values: dict[str, Any] = {"tokens": self.tokens, "errors": self.errors.astype(np.float32)}
        np.savez_compressed(out, names=np.array(self.names), families=np.array(self.families), **values)
        return out.getvalue()

    @classmethod
    def load(cls, path: Path) -> FaultLibrary:
        with np.load(path, allow_pickle=False) as data:
            names, families = tuple(data["names"].tolist()), tuple(data["families"].tolist())
            return cls(names, families, data["tokens"], data["errors"].astype(np.float64))
