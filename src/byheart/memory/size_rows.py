"""Guaranteed, measured and necessary, side by side: the rows that the demo, the command line and the report show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.ir.decoder_network import DecoderNetwork
from byheart.ir.size import uniform_parameters
from byheart.memory.memory import Memory
from byheart.theory import Bound, lower_bound
from byheart.theory.given import given_label_bound
from byheart.theory.lower import close_points_parameters
from byheart.theory.madden import distribution_parameters
from byheart.theory.report import CHAIN

MEANINGS = {
    "parameters": "numbers in the network",
    "nonzero": "… of them not zero",
    "max_bits": "bits of the longest number",
    "total_bits": "bits of all numbers together",
    "width": "widest layer",
    "depth": "layers, one after the other",
    "blocks": "blocks",
}


@dataclass(frozen=True)
class SizeRow:
    """One quantity: what the theorem allows at most, what was built, and the lower bound for worst-case labels.

    `lower_bound` is the least size of an architecture that can store *every* labelling of as many rows. The given
    labels may be easier: where the network is smaller than that, `lower_bound` is None and `lower_sentences` has the
    reason.
    """

    field: str
    meaning: str
    guaranteed: int | None
    measured: int
    lower_bound: int | None


# A table of this many rows is built once more in about a second.
MOST_PRICED = 1000


@dataclass(frozen=True)
class AbstentionPrice:
    """Parameters of a memory of `rows` rows, and how many of them recognise unknown rows."""

    rows: int
    parameters: int
    extra: int


def abstention_price(memory: Memory) -> AbstentionPrice | None:
    """Measure what `abstain_bits` costs: build the same rows, or the first of them, without these bits.

    Args:
        memory: A memory that still has its data.

    Returns:
        The price; None where the memory has no data or does not abstain.

    >>> from byheart.memory.memorize import memorize
    >>> price = abstention_price(memorize(["ab", "ba"], [0, 1], abstain_bits=8, progress=False))
    >>> price.rows, 0 < price.extra < price.parameters
    (2, True)
    """
    from byheart.memory.memorize import memorize_dataset

    if memory.dataset is None or not memory.abstains:
        return None
    data = memory.dataset
    part = data if data.N <= MOST_PRICED else data.subset(range(MOST_PRICED))
    how: dict[str, Any] = {"construction": memory.construction, "seed": memory.seed, "progress": False}
    bits = memory.options["abstain_bits"]
    full = memory if part is data else memorize_dataset(part, abstain_bits=bits, **how)
    bare = memorize_dataset(part, abstain_bits=0, **how)
    parameters = full.size.parameters
    return AbstentionPrice(part.N, parameters, max(0, parameters - bare.size.parameters))


def size_rows(memory: Memory) -> list[SizeRow]:
    """The rows for one memory."""
    sizes, guaranteed, worst_case_bounds = memory.size.as_dict(), memory.certificate.guaranteed, _lower_bounds(memory)
    rows = []
    for name, meaning in MEANINGS.items():
        bound = worst_case_bounds.get(name)
        shown = bound.value if bound is not None and bound.value <= sizes[name] else None
        rows.append(SizeRow(name, meaning, guaranteed.get(name), sizes[name], shown))
    uniform = uniform_parameters(memory.network)
    if uniform is not None:
        rows.insert(1, SizeRow("uniform_parameters", "… as KS25's eq. (4) stores them", None, uniform, None))
    return rows


def lower_sentences(memory: Memory) -> list[str]:
    """The lower bounds of this memory, with the conditions under which they hold."""
    sizes, certificate = memory.size.as_dict(), memory.certificate
    if isinstance(memory.network, DecoderNetwork):
        return _decoder_sentences(certificate.contexts, memory.network.decoder.vocabulary_size)
    found = _lower_bounds(memory)
    if not found:
        return given_sentences(memory.dataset)
    sentences = [
        lower_bound_sentence(found["parameters"], memory.task, certificate.rows, certificate.contexts),
        f"some labelling of {certificate.contexts:,} contexts with {len(memory.classes):,} classes takes at least "
        f"{found['total_bits'].value:,} bits, whatever holds it ({found['total_bits'].ref})",
    ]
    easier = [MEANINGS[name] for name, bound in found.items() if bound.value > sizes[name]]
    if easier:
        sentences.append(f"the given labels are easier than the worst case: fewer {' and '.join(easier)} suffice")
    return sentences + given_sentences(memory.dataset)


def _decoder_sentences(contexts: int, omega: int) -> list[str]:
    """Bounds on chains of ReLU layers do not apply to tanh; M24's own bound is about distributions."""
    if omega < 2:
        return []
    least = distribution_parameters(contexts, omega)
    return [
        f"a smooth model that can fit every choice of distributions after {contexts:,} contexts over {omega:,} tokens "
        f"has at least {least:,} parameters (M24, Lemma 1); the given ones may be easier"
    ]


def given_sentences(dataset: Dataset | None) -> list[str]:
    """What these labels demand, and how close the tokens are, where that matters."""
    if dataset is None:
        return []
    bound, sentences = given_label_bound(dataset), []
    if bound is not None:
        given = f"these labels need at least {bound.value:,} parameters if {bound.assumptions[0]} ({bound.formula})"
        sentences.append(given)
    return [*sentences, *close_sentences(dataset)]


# Times √N from which Siegel's bound is worth a sentence.
FAR_ABOVE_THE_ROOT = 4


def close_sentences(dataset: Dataset) -> list[str]:
    """Siegel's bound, where the tokens are so close together that it is far above √N; else nothing.

    Its points are sequences of equal tokens: as many as there are rows, not as there are tokens with labels.
    """
    found, points = dataset.separation, min(dataset.N, len(dataset.contexts))
    if found.delta_squared is None or dataset.C < 2:
        return []
    spread = found.r_squared / found.delta_squared
    least = close_points_parameters(points, spread)
    if least**2 < FAR_ABOVE_THE_ROOT**2 * points:
        return []
    bits = spread.numerator.bit_length() - spread.denominator.bit_length()
    return [
        f"two tokens are about 2^-{max(0, bits) // 2} of the largest norm apart: one shape of network for every "
        f"{points:,} points that close needs at least {least:,} parameters (SI24, Theorem 1), so √N is out of reach "
        "for such points in general; the given ones may be easier"
    ]


def lower_bound_sentence(bound: Bound, task: Task, rows: int, contexts: int) -> str:
    """The shattering bound with its quantifiers in order: for every small architecture there is a labelling.

    With one label per row it is shown for rows of equal tokens, which the proof is about; other rows may be easier or
    harder. Rows of equal tokens have one label each, so with a label per token it is about contexts, and attention must
    be linear in the row.
    """
    if task.labels_per_token:
        return (
            f"every chain of layers with uniform attention and fewer than {bound.value:,} parameters fails on some "
            f"labelling of {contexts:,} contexts ({bound.ref}); the given labels may be easier"
        )
    return (
        f"every chain of layers with fewer than {bound.value:,} parameters fails on some labelling of {rows:,} rows of "
        f"equal tokens ({bound.ref}); the given labels may be easier"
    )


def _lower_bounds(memory: Memory) -> dict[str, Bound]:
    """The bounds that hold for every construction: Theorem 4.2's own is larger, but counts attention in every block.

    Rows of one class have one labelling, which no network fails on.
    """
    if isinstance(memory.network, DecoderNetwork) or len(memory.classes) < 2:
        return {}
    summary = memory.summary()
    found = lower_bound(**{name: summary[name] for name in ("task", "N", "n", "d", "C", "contexts")})
    return worst_case_bounds(found.bounds)


def worst_case_bounds(bounds: Sequence[Bound]) -> dict[str, Bound]:
    """Quantity -> the bound that is shown beside a measured size, the same one everywhere."""
    chain = next(bound for bound in bounds if bound.name == CHAIN)
    bits = next(bound for bound in bounds if bound.quantity == "total_bits")
    return {"parameters": chain, "total_bits": bits}
