"""The checker: evaluates a network on every row, exactly, and compares answers with labels and sizes with guarantees.

It never imports a builder. Its input is the network, the rows as the memory's own encoder encodes them with the class
that each must get, and the guarantee, which the caller derives from the construction's theorem and the data. A file's
own record is never trusted: it is compared, and a false record is a refutation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from byheart.certify.answering import AT_ONCE, EXACT, EvaluationPlan, Seals, answer_rows
from byheart.certify.any_order.lattice import facts_of
from byheart.certify.certificate import Certificate, Gap, Verdict, Witness
from byheart.certify.next_token import prove_gap
from byheart.certify.properties import prove_property
from byheart.data.dataset.dataset import Dataset
from byheart.data.dataset.targets import PAD, Distributions, Target
from byheart.data.values import key
from byheart.data.wording import quote
from byheart.errors import DataError, MissingExtraError, NetworkError, NotRationalError, OptionError
from byheart.ir.attend import scores_matter
from byheart.ir.decoder_network import AnyNetwork, DecoderNetwork
from byheart.ir.enclose import UNDECIDED
from byheart.ir.evaluate import outside_table
from byheart.ir.floats import evaluates
from byheart.ir.layers import Kind
from byheart.ir.network import Inputs
from byheart.ir.size import Claim, Size, measure
from byheart.progress import SILENT, Progress, timed

MANY = 1 << 12  # rows from which floats, where they are exact, are worth compiling for
FRACTION = 0.01  # of the entropy: the largest gap of a memory of distributions by default
MIXERS = {
    "attention": "softmax attention of the last token",
    "average": "token averaging",
    "table": "an exact network that names rows of a table",
}
UNANSWERABLE = -3  # instead of a class number: every answer of the network is incorrect here
Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class RowSubset:
    """The evaluated rows as a subset of all given rows.

    Attributes:
        numbers: The index of each evaluated row among all of them; None: its own.
        left_out: Why others are skipped -> how many.
        place: Returns how people find a row.
        unanswerable: Why the memory cannot answer some evaluated rows.
        contexts: Distinct contexts, where the evaluated rows' own inputs do not determine them.
        remarks: Further remarks for the certificate.
    """

    numbers: Places | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)
    place: Callable[[int], str] = "row {}".format
    unanswerable: Mapping[int, str] = field(default_factory=dict)
    contexts: int | None = None
    remarks: tuple[str, ...] = ()

    def number(self, row: int) -> int:
        """Return the number that an evaluated row has for the user.

        Args:
            row: Its number among the evaluated rows.
        """
        return row if self.numbers is None else int(self.numbers[row])


@dataclass(frozen=True)
class Record:
    """A file's own record: compared with the measured values, never trusted.

    The network must keep the recorded guarantee, whoever recorded it.

    Attributes:
        claim: The recorded guarantee; None cannot be compared.
        size: The recorded sizes.
        comparable: Whether the guarantee must be the theorem's own, for all memorized rows: in a file of this version
            a difference is a false record; in one of another version the theorem may have had other constants, and the
            record stays open.
        foreign: The other version.
    """

    claim: Claim | None
    size: Size
    comparable: bool = True
    foreign: str = ""

    def differences(self, size: Size) -> list[str]:
        """Compare the record with measured sizes.

        Args:
            size: The measured sizes.

        Returns:
            A sentence for every entry that differs.
        """
        found = [
            f"the file states {name} = {stated:,}, the network has {size.as_dict()[name]:,}"
            for name, stated in self.size.as_dict().items()
            if stated != size.as_dict()[name]
        ]
        if self.claim is not None:
            found += [f"the file's own guarantee is broken: {words}" for words in self.claim.broken_by(size)]
        return found

    def other_guarantees(self, claim: Claim | None) -> list[str]:
        """Return a sentence for every recorded guarantee that is not the construction's."""
        found: list[str] = []
        if self.claim is None or claim is None or not self.comparable:
            return found
        if self.claim.ref != claim.ref:
            found.append(
                f"the file states that {self.claim.ref} guarantees it, the construction is that of {claim.ref}"
            )
        if self.claim.bounds != claim.bounds:
            found.append(
                f"the file states that {_bounds(self.claim)} is guaranteed, the theorem gives {_bounds(claim)}"
            )
        if self.claim.properties != claim.properties:
            stated, due = (", ".join(c.properties) or "nothing" for c in (self.claim, claim))
            found.append(f"the file states that {stated} is to be proved, the construction guarantees {due}")
        return found


def _bounds(claim: Claim) -> str:
    return ", ".join(f"{name} ≤ {bound:,}" for name, bound in sorted(claim.bounds.items())) or "nothing"


ALL = RowSubset()


@timed("proving")
def certify(
    network: AnyNetwork,
    dataset: Dataset,
    claim: Claim | None,
    progress: Progress = SILENT,
    *,
    subset: RowSubset = ALL,
    record: Record | None = None,
    unchecked: str = "",
    excused: bool = False,
    fraction: float = FRACTION,
    plan: EvaluationPlan = AT_ONCE,
) -> Certificate:
    """Decide "this network gives every row its label, and keeps its construction's guarantee".

    Where the targets are distributions: "the cross-entropy exceeds the entropy by at most `fraction` of it".

    proved: every label was reproduced in exact arithmetic (in floats only where these were proved to be exact for this
    network; where softmax makes numbers irrational, by enclosures that leave no other label), every guarantee holds,
    and the file's record, if there is one, agrees; refuted: a witness row, a broken guarantee, or a false
    record; undecided: enclosures stayed too wide, or a guaranteed property could not be shown.

    Args:
        network: The network.
        dataset: The rows with their labels.
        claim: The guarantee; None where it is not known or cannot be compared.
        progress: Where to show progress.
        subset: Which rows of the user's data these are, and why others were skipped.
        record: The file's own record, to be compared.
        unchecked: Why the guarantee is not known.
        excused: Whether correct answers alone are proved where the guarantee is not known; otherwise undecided.
        fraction: The allowed gap of distributions.
        plan: Where rows are evaluated, and which parts of an interrupted proof are reused.

    Returns:
        The certificate.
    """
    shown: dict[str, tuple[bool, str]] = {}  # further guarantees, each proved once
    floats = _exact_floats(network, dataset, claim, shown, progress)
    outcome = _evaluate(network, dataset, subset, fraction, progress, floats, plan)
    if plan.kept is not None:
        Seals.forget(plan.kept)
    size = measure(network)
    verdict, reason, guarantee = outcome.verdict, outcome.reason, f"not checked: {unchecked}" if unchecked else "none"
    proofs: dict[str, str] = {}
    if claim is not None and (claim.bounds or claim.properties):
        broken = claim.broken_by(size)
        guarantee = "broken" if broken else "kept"
        if verdict is Verdict.PROVED and broken:
            verdict, reason = Verdict.REFUTED, "; ".join(broken)
    differences = record.differences(size) if record is not None else []
    others = record.other_guarantees(claim) if record is not None else []
    if record is None or not record.foreign:
        differences, others = [*differences, *others], []
    if verdict is Verdict.PROVED and differences:
        well = "every row is answered as labelled" if outcome.gap is None else outcome.reason
        verdict, reason = Verdict.REFUTED, f"{well}, but {'; '.join(differences)}"
    if verdict is Verdict.PROVED and claim is not None:
        for name in claim.properties:
            kept, sentence = shown.get(name) or _property(name, network, dataset, progress)
            if not kept:
                verdict, reason, guarantee = Verdict.UNDECIDED, sentence, f"not checked: {sentence}"
                break
            proofs[name] = sentence
    if verdict is Verdict.PROVED and others and record is not None:
        verdict = Verdict.UNDECIDED
        reason = f"every row is answered as labelled, but in a record of {record.foreign} {'; '.join(others)}"
    if verdict is Verdict.PROVED and unchecked and not excused:
        verdict, reason = (
            Verdict.UNDECIDED,
            f"every row is answered as labelled, but the guarantee is open: {unchecked}",
        )
    return Certificate(
        verdict=verdict,
        reason=reason,
        rows=dataset.N + sum(subset.left_out.values()),
        asked=dataset.N,
        agree=outcome.agree,
        differ=outcome.differ,
        labels=int((dataset.labels != -1).sum()),
        contexts=len(dataset.contexts) if subset.contexts is None else subset.contexts,
        fingerprint=dataset.fingerprint,
        size=size,
        guaranteed={} if claim is None else dict(claim.bounds),
        guarantee=guarantee,
        arithmetic=arithmetic(network, outcome.how),
        left_out=dict(subset.left_out),
        witness=outcome.witness,
        proofs=proofs,
        gap=outcome.gap,
        remarks=(*subset.remarks, *((*differences, *others) if verdict is not Verdict.PROVED else ())),
    )


def _property(name: str, network: AnyNetwork, dataset: Dataset, progress: Progress) -> tuple[bool, str]:
    if isinstance(network, DecoderNetwork):
        return False, f"{name!r} is a guarantee about exact networks, this is a decoder"
    return prove_property(name, network, dataset, progress)


def _exact_floats(
    network: AnyNetwork, dataset: Dataset, claim: Claim | None, shown: dict[str, tuple[bool, str]], progress: Progress
) -> str | None:
    """The float type whose evaluation of these rows is exact, and proved to be; None: exact integers are needed.

    The proof speaks of this network and of all inputs that the facts allow; the rows must be such inputs.
    """
    if claim is None or isinstance(network, DecoderNetwork) or dataset.N < MANY or not evaluates(network):
        return None
    for name in claim.properties:
        kind, _, dtype = name.partition(": ")
        if kind == "exact in any order":
            shown[name] = _property(name, network, dataset, progress)
            if shown[name][0] and facts_of(dataset.encoder, dataset.inputs).allow(dataset.inputs):
                return dtype
    return None


@dataclass(frozen=True)
class _Outcome:
    """The outcome of evaluating all rows."""

    verdict: Verdict
    reason: str
    agree: int = 0
    differ: int = 0
    witness: Witness | None = None
    how: str = EXACT
    gap: Gap | None = None


def _evaluate(
    network: AnyNetwork,
    dataset: Dataset,
    subset: RowSubset,
    fraction: float,
    progress: Progress,
    floats: str | None,
    plan: EvaluationPlan,
) -> _Outcome:
    """Every row through the network; rows count as a whole, whatever the number of their labels."""
    how, sealed = EXACT, 0
    known = np.ones(dataset.N, dtype=bool)
    try:
        if dataset.target is Target.DISTRIBUTION:
            if plan.kept is not None:
                raise OptionError("the gap is one statement about all rows, whose proof cannot be resumed in parts")
            return _evaluate_distributions(network, dataset, subset, fraction, progress)
        known, inputs = _in_table(network, dataset.inputs)
        found = dataset.labels[:0]
        if known.any():
            answered = answer_rows(network, inputs, dataset.labels[known], floats, progress, plan)
            found, how, sealed = answered.found, answered.how, answered.sealed
    except (NotRationalError, MissingExtraError) as error:
        return _Outcome(Verdict.UNDECIDED, str(error), how=how)
    except (NetworkError, DataError) as error:
        return _Outcome(Verdict.REFUTED, f"the network cannot answer these rows: {error}", differ=dataset.N)
    labels = dataset.labels
    if not known.all():
        those, found = found, np.full((dataset.N, *found.shape[1:]), -1, dtype=np.int64)
        found[known] = those
    if found.shape != labels.shape:
        shapes = f"the network answers {found.shape}, the labels are {labels.shape}"
        return _Outcome(Verdict.REFUTED, shapes, differ=dataset.N, how=how)
    labelled = labels != -1
    unsure = (found == UNDECIDED) & labelled & (labels != UNANSWERABLE)
    wrong = (found != labels) & labelled & ~unsure
    differ = _rows(wrong)
    agree = int((~differ & ~_rows(unsure)).sum())
    if differ.any():
        reason, witness = _first_incorrect(wrong, found, dataset, subset)
        return _Outcome(Verdict.REFUTED, reason, agree, int(differ.sum()), witness, how)
    if unsure.any():
        row = subset.number(int(np.argwhere(unsure)[0][0]))
        return _Outcome(
            Verdict.UNDECIDED, f"the {how} leave more than one class at {subset.place(row)}", agree, how=how
        )
    exactly = "exact arithmetic" if how == EXACT else how
    before = f" ({sealed:,} rows of them by an earlier run, by this user's seals)" if sealed else ""
    return _Outcome(Verdict.PROVED, f"every label was reproduced in {exactly}{before}", agree, how=how)


def _evaluate_distributions(
    network: AnyNetwork, dataset: Dataset, subset: RowSubset, fraction: float, progress: Progress
) -> _Outcome:
    """The gap, proved by enclosures: one statement about all rows together.

    Proved, they all agree. Refuted, those differ that have a context with more than its share of the gap that is
    allowed; there is always one.
    """
    if not isinstance(network, DecoderNetwork):
        words = "the network answers with one class, the data has distributions"
        return _Outcome(Verdict.REFUTED, words, differ=dataset.N)
    unanswerable = dataset.labels == UNANSWERABLE
    if unanswerable.any():  # no probability at all where one is needed: the gap has no bound
        nothing = np.full(dataset.labels.shape, -1, dtype=np.int64)
        reason, witness = _first_incorrect(unanswerable, nothing, dataset, subset)
        return _Outcome(Verdict.REFUTED, reason, 0, int(_rows(unanswerable).sum()), witness)
    contexts = _as_tokens(network, dataset)
    proof = prove_gap(network.decoder, contexts, fraction=fraction, progress=progress)
    differ = np.zeros(dataset.N, dtype=bool)
    reason, agree = proof.reason, dataset.N if proof.verdict is Verdict.PROVED else 0
    if proof.verdict is Verdict.REFUTED:
        differ = _rows(_in_places(proof.beyond, network, dataset, contexts))
        differ |= not differ.any()  # balls of single contexts may be too wide to decide which
        agree = int((~differ).sum())
        first = subset.place(subset.number(int(np.argmax(differ))))
        reason += f"; {int(differ.sum()):,} of {dataset.N:,} rows have more than their share, the first is {first}"
    upper = proof.gap_upper if np.isfinite(proof.gap_upper) else None
    gap = Gap(
        entropy=proof.entropy,
        lower=proof.gap_lower,
        upper=upper,
        allowed=proof.allowed,
        fraction=fraction,
        tokens=proof.tokens,
        labels_proved=proof.labels_proved,
        labels_refuted=proof.labels_refuted,
    )
    how = f"rigorous enclosures ({proof.arithmetic})"
    return _Outcome(proof.verdict, reason, agree, int(differ.sum()), how=how, gap=gap)


def _as_tokens(network: DecoderNetwork, dataset: Dataset) -> Distributions:
    """The data's distributions in the network's own numbering of tokens, whatever a file claims."""
    found = dataset.distributions
    number = {key(token): place for place, token in enumerate(dataset.vocabulary)}
    read, written = np.full((2, len(number) + 1), PAD, dtype=np.int64)  # the last entry is that of the padding, -1
    for symbol, token in zip(dataset.encoder.symbols or (), network.inputs, strict=True):
        read[number[key(symbol)]] = token
    for name, token in zip(dataset.classes, network.classes, strict=True):
        written[number[key(name)]] = token
    omega = network.decoder.vocabulary_size
    return Distributions(omega, read[found.tokens], found.pair_context, written[found.pair_token], found.pair_weight)


def _in_places(mask: Mask, network: DecoderNetwork, dataset: Dataset, contexts: Distributions) -> Mask:
    """Return a mask over contexts, in the order of the labels; False where there is no label."""
    prefixes = network.prefixes(dataset.inputs)
    number = {contexts.prefix(k): k for k in range(contexts.count)}
    of_prefix = [number.get(tuple(token for token in row if token >= 0), -1) for row in prefixes.tokens.tolist()]
    found = np.append(mask, False)[np.append(np.array(of_prefix, dtype=np.int64), -1)[prefixes.place]]
    return np.asarray(found & (dataset.labels != -1))


def _in_table(network: AnyNetwork, inputs: Inputs) -> tuple[Mask, Inputs]:
    """Which rows have all their tokens in the network's embedding table, and those rows; the others get no answer."""
    outside = [] if isinstance(network, DecoderNetwork) else outside_table(network, inputs.points)
    if not outside:
        return np.ones(len(inputs.index), dtype=bool), inputs
    known = np.asarray(~np.isin(inputs.index, outside).any(axis=1))
    kept = np.setdiff1d(np.arange(inputs.points.count), outside)
    place = np.append(np.zeros(inputs.points.count, dtype=np.int64), -1)  # the last is that of absent tokens
    place[kept] = np.arange(len(kept))
    return known, Inputs(inputs.points.take(kept), place[inputs.index[known]])


def _rows(mask: Mask) -> Mask:
    return mask if mask.ndim == 1 else np.asarray(mask.any(axis=1))


def _first_incorrect(wrong: Mask, found: Places, dataset: Dataset, subset: RowSubset) -> tuple[str, Witness]:
    """Return the first input whose answer is not the label, in words and as class numbers."""
    place = tuple(int(k) for k in np.argwhere(wrong)[0])
    row = subset.number(place[0])
    position = place[1] if len(place) > 1 and place[0] not in subset.unanswerable else None
    expected, answer = int(dataset.labels[place]), int(found[place])
    witness = Witness(row, position, max(expected, -1), max(answer, -1))
    count = int(_rows(wrong).sum())
    head = f"{count:,} row{'' if count == 1 else 's'} of {dataset.N:,} differ{'s' if count == 1 else ''}, the first is"
    where = subset.place(row) + ("" if position is None else f", position {position}")
    if place[0] in subset.unanswerable:
        return f"{head} {where}: {subset.unanswerable[place[0]]}", witness
    outcome = "has no answer" if answer < 0 else f"returns {quote(dataset.classes[answer])}"
    return f"{head} {where}: it is labelled {quote(dataset.classes[expected])}, the memory {outcome}", witness


def arithmetic(network: AnyNetwork, how: str = EXACT) -> str:
    """Describe how the network was evaluated, and which attention it has."""
    if isinstance(network, DecoderNetwork):
        return f"{how}; {MIXERS[network.decoder.kind]}"
    kinds: Counter[str] = Counter()
    for layer in network.attention_layers:
        equal = not any(scores_matter(head) for head in layer.heads)
        scores = " with zero scores, which is the mean" if equal and layer.kind is not Kind.UNIFORM else ""
        kinds[f"{layer.kind.value} attention over the {layer.pattern.value} pattern{scores}"] += 1
    described = [kind if count == 1 else f"{kind} ({count} layers)" for kind, count in kinds.items()]
    return how + (f"; {', '.join(described)}" if described else "; no attention")
