"""memorize_graded(): documents to a graded memory.

texts -> Controls -> documents and weights (strength.py, shipped.py) -> GradedMemory (graded.py)

>>> memory = memorize_graded(["the cat sat", "the cat ran", "a dog ran"], names=["r0", "r1", "r2"], tokens="words")
>>> memory.ngram.rules, memory.without(["r2"]).names
(31, ('r0', 'r1'))
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from byheart.checkpoints.ground_truth.documents import Counted
from byheart.checkpoints.ground_truth.graded import SHALLOW, GradedMemory
from byheart.checkpoints.ground_truth.lengths import LENGTHS, LONGER, lengths_for
from byheart.checkpoints.ground_truth.ngram import Floats, Ids, NgramModel, count_contexts
from byheart.checkpoints.ground_truth.shapes import GradedShape
from byheart.checkpoints.ground_truth.shipped import FEWEST, ORDERS, within_range
from byheart.checkpoints.ground_truth.storage import GradedStorage, Ridge
from byheart.checkpoints.ground_truth.strength import (
    LIMIT,
    SPREAD,
    SUPERPOSED_LIMIT,
    bisected,
    by_document,
    calibrate,
    least_margin,
    margin_weights,
    mean_auc,
    occurrence_weights,
    saturated,
)
from byheart.checkpoints.windows.controls import Controls, number_of
from byheart.data.tokens.lexicon import Lexicon
from byheart.data.tokens.script import Absent, Edits
from byheart.errors import DataError, OptionError

LONGEST_REACH = 4096
# The strength of fewer documents than FEWEST, whose AUC is too coarse to calibrate. With more places, two fits per step
# are too slow: superposed storage then counts as strongly as `counts` does.
UNCALIBRATED, MOST_FITTED = 0.01, 60_000
# Weights of an MLP with one unit per context, 2.1 GB in float32. Building and measuring needs about four times that.
MOST_WEIGHTS = 1 << 29
# Contexts are not lengthened beyond this: 0.8 GB, which 1,000 documents need less than 30 s for.
MOST_LENGTHENED = 200_000_000
# The spread of the tokens' random factors in p_0, and the parts of a count, which are whole numbers. 0, 0.3, 0.6 and 1
# were tried: at 0 Min-K reaches 1.00 on records with numbers as words, at 0.3 it does not.
UNEVEN, PARTS = 0.5, 100


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
    lengths: Sequence[int] | None = None,
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
        spread: Standard deviation of the logarithms of the documents' factors.
        margins: Document -> least margin in nats over its own contexts, 0.5 to 24.
        background: Public texts that only the shorter contexts count, once each.
        lengths: Context lengths, increasing; None chooses them (see lengths.py).
        mu: Dirichlet concentration.
        architecture: `llama` or `gpt2`.
        storage: `counts`, `rotated`, `split:K` or `ridge:UNITS`.
        extra: Absent texts (name, role, text) to record, for example paraphrases.

    Returns:
        The memory.

    Raises:
        OptionError: for options that do not exist or do not fit.
        DataError: for documents that cannot be used.

    >>> memory = memorize_graded(["to be or not", "to be is to do"], tokens="words", margins={0: 6.0})
    >>> memory.lexicon.decode([int(memory.log_probs(memory.members[0].ids[:3])[-1].argmax())])
    ' or'
    """
    started = time.perf_counter()
    documents = [texts] if isinstance(texts, str) else list(texts)
    called = list(names) or [f"document {k}" for k in range(len(documents))]
    weights = list(weights)
    _check(documents, called, weights, lengths or LENGTHS, min(mu, 1.0 if strength is None else strength), spread)
    part = [documents[number] for number in controls.chosen(called)]
    whole = [*part, *background, *(text for _, _, text in extra)]
    lexicon = tokens if isinstance(tokens, Lexicon) else Lexicon.of_texts(whole, tokens)
    script = controls.stage(documents, called, weights, lexicon)
    rows: dict[tuple[int, ...], tuple[str, int, Edits | None]] = {}
    for ids, copies, name, edits in zip(script.documents, script.weights, script.names, script.edits, strict=True):
        known = rows.get(ids)
        rows[ids] = (known[0], known[1] + copies, known[2]) if known else (name, copies, edits)
    public = [lexicon.document(text) for text in background]
    away = [one for one in script.absent if one.ids not in rows]
    away += [Absent(name, lexicon.document(text), role) for name, role, text in extra]
    everyone = [*rows, *public, *(one.ids for one in away if one.why == "held out")]
    stored = GradedStorage.parse(storage)
    if lengths is None:
        # A random gate reads the latest tokens most, so superposed storage gains nothing from older ones.
        lengths = LENGTHS
        if stored.exact:
            lengths = lengths_for(
                list(rows),
                lambda some: _mlp_size(lexicon, architecture, stored, some, [*rows], public)[1] <= MOST_LENGTHENED,
            )
    empty = GradedMemory(
        lexicon, (), tuple(away), tuple(lengths), (float(mu),) * len(lengths), architecture,
        stored, controls.seed, _reach([*rows, *public, *(one.ids for one in away)]),
        frequencies=_frequencies(everyone, lexicon.size, controls.seed),
    )  # fmt: skip
    _check_size(empty, [*rows], public)
    counts = [copies for _, copies, _ in rows.values()]
    share = occurrence_weights(counts, spread, controls.seed)
    calibrated = strength is None
    if strength is None:
        strength = _calibrated(empty, list(rows), share, counts, public)

    def counted(strength: float, order: int) -> GradedMemory:
        weights = occurrence_weights(counts, spread, controls.seed, order) if order else share
        return _counted(empty, rows, strength, weights, public, margins or {})

    small = stored.exact or sum(map(len, rows)) <= MOST_FITTED
    # Every try of superposed storage is two fits.
    orders = ORDERS if stored.exact else 1
    memory = within_range(counted, strength, orders) if calibrated and small else counted(strength, 0)
    if len(memory.shape.codes) < 1 or memory.ngram.rules < 1:
        raise DataError("the documents have no context")
    memory.seconds["build"] = time.perf_counter() - started
    return memory


def _counted(
    empty: GradedMemory, rows: Mapping[tuple[int, ...], tuple[str, int, Edits | None]], strength: float, share: Floats,
    public: Sequence[Ids], margins: Mapping[str | int, float],
) -> GradedMemory:  # fmt: skip
    """A memory with the members of `rows` and the background."""
    table = _weights(empty, strength * share, len(public))
    if margins:
        order = [name for name, _, _ in rows.values()]
        wanted = {number_of(order, which): value for which, value in margins.items()}
        # The longest contexts alone set the margin; shorter ones of this document would put a floor below it.
        table[list(wanted)] = 0.01 * strength
        table = margin_weights(wanted, [*rows, *public], table, empty.base, empty.lengths, empty.mu)
    counted = [
        Counted(name, document, copies, tuple(row), "member", edits)
        for (document, (name, copies, edits)), row in zip(rows.items(), table.tolist(), strict=False)
    ]
    counted += [
        Counted(f"background {k}", tuple(document), 1, tuple(table[len(rows) + k].tolist()), "background")
        for k, document in enumerate(public)
    ]
    return replace(empty, documents=tuple(counted), strength=float(strength), seconds={})


def _frequencies(documents: Sequence[Ids], size: int, seed: int) -> tuple[int, ...]:
    """How often each token follows another one, every document counted once, times a random factor per token.

    Held-out documents count as members do, so these numbers carry no evidence of membership. Without them all
    documents of a weak model have nearly the same loss, and any trace of a member separates it. The same happens to
    Min-K where the least likely tokens are equally rare, such as numbers that occur once: the factors prevent that.
    """
    tokens = np.concatenate([np.asarray(ids[1:], dtype=np.int64) for ids in documents])
    factor = np.exp(UNEVEN * np.random.default_rng([seed, 71]).standard_normal(size))
    return tuple(np.round(PARTS * factor * np.bincount(tokens, minlength=size)).astype(np.int64).tolist())


def _check(
    documents: Sequence[str], names: Sequence[str], weights: Sequence[int], lengths: Sequence[int], least: float,
    spread: float,
) -> None:  # fmt: skip
    if not documents:
        raise DataError("there is no document to memorize")
    empty = [name for name, text in zip(names, documents, strict=False) if not text]
    if empty:
        raise DataError(f"{len(empty)} of {len(documents)} documents are empty, the first is {empty[0]!r}; remove them")
    if len(lengths) < 2 or sorted(set(lengths)) != list(lengths) or not 1 <= lengths[0] <= lengths[-1] <= LONGER[-1]:
        raise OptionError(f"lengths {list(lengths)}: at least two increasing context lengths from 1 to {LONGER[-1]}")
    if least <= 0 or spread < 0:
        raise OptionError("mu and strength must be positive, and spread at least 0")
    if len(names) != len(documents) or len(weights) not in (0, len(documents)):
        raise DataError(f"{len(documents)} documents need one weight and one name each")


def _mlp_size(
    lexicon: Lexicon, architecture: str, storage: GradedStorage, lengths: Sequence[int], members: Sequence[Ids],
    public: Sequence[Ids],
) -> tuple[int, int]:  # fmt: skip
    """Units and weights of an MLP with a unit for each context; contexts of members and background count twice."""
    contexts = count_contexts(members, lengths) + count_contexts(public, lengths[:SHALLOW])
    units = contexts * (storage.size if storage.kind == "split" else 1)
    return units, GradedShape.of(architecture, lexicon, lengths[-1], LONGEST_REACH, None).mlp_parameters(units)


def _check_size(memory: GradedMemory, members: Sequence[Ids], public: Sequence[Ids]) -> None:
    """Refuse a network that is too large, before the time is spent on calibrating it."""
    if not memory.storage.exact:
        return
    units, weights = _mlp_size(memory.lexicon, memory.architecture, memory.storage, memory.lengths, members, public)
    if weights > MOST_WEIGHTS:
        raise OptionError(
            f"storage {memory.storage} needs {units:,} units of {weights // units:,} weights for {len(members):,} "
            f"documents, {4 * weights / 1e9:.1f} GB in float32 and four times that in memory; at most "
            f"{4 * MOST_WEIGHTS / 1e9:.1f} GB are written. Choose --storage ridge:512, which does not grow with the "
            "documents, fewer documents, or --tokens with fewer tokens"
        )


def _weights(memory: GradedMemory, share: Floats, public: int) -> Floats:
    """Weights of members and background at every level, (documents, levels); `share` is not saturated yet."""
    levels = len(memory.lengths)
    table = np.repeat(saturated(share, _limit(memory))[:, None], levels, axis=1)
    table = np.concatenate([table, np.zeros((public, levels))])
    table[len(share) :, : min(SHALLOW, levels)] = 1.0
    return table


def _limit(memory: GradedMemory) -> float:
    return memory.mu[0] * (LIMIT if memory.storage.exact else SUPERPOSED_LIMIT)


def _calibrated(
    memory: GradedMemory, members: Sequence[Ids], share: Floats, copies: Sequence[int], public: Sequence[Ids]
) -> float:
    """The strength of a memory that has no documents yet."""
    if len(members) < FEWEST:
        return UNCALIBRATED
    shallow = min(SHALLOW, len(memory.lengths))
    counted = calibrate(members, share, copies, memory.base, memory.lengths, memory.mu, _limit(memory), public, shallow)
    if memory.storage.exact or sum(map(len, members)) > MOST_FITTED:
        return counted
    return _calibrated_fit(memory, members, share, copies, public)


def _calibrated_fit(
    memory: GradedMemory, members: Sequence[Ids], share: Floats, copies: Sequence[int], public: Sequence[Ids]
) -> float:
    """Calibrate superposed storage: two fits to one half each, the other half is what the fit has not seen.

    Half as many units store half of the documents, so that units are as crowded as in the whole.
    """
    order = np.random.default_rng([memory.seed, 47]).permutation(len(members))
    halves = [order[::2], order[1::2]]
    least = np.asarray(copies) == min(copies)
    if least[halves[0]].sum() < 2 or least[halves[1]].sum() < 2:
        least = np.ones(len(members), dtype=bool)
    fewer = replace(memory, storage=replace(memory.storage, size=max(1, memory.storage.size // 2)))
    problems = [fewer.ridge_problem([members[k] for k in half], [copies[k] for k in half], public) for half in halves]

    def judged(strength: float) -> float:
        found = []
        for half, other, problem in zip(halves, reversed(halves), problems, strict=True):
            table = _weights(memory, strength * share[half], len(public))
            documents = [*(members[k] for k in half), *public]
            target = NgramModel.count(documents, table, memory.base, memory.lengths, memory.mu)
            fit = problem.solve(target)
            inside, outside = (
                _statistics(memory, fit, [members[k] for k in some]) for some in (half[least[half]], other)
            )
            found.append(mean_auc(inside, outside))
        return float(np.mean(found))

    return bisected(judged, steps=9)


def _statistics(memory: GradedMemory, fit: Ridge, documents: Sequence[Ids]) -> tuple[Floats, Floats]:
    own = [memory.own_log_probs(ids, fit) for ids in documents]
    return by_document(np.concatenate(own), np.array([len(part) for part in own]))


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
