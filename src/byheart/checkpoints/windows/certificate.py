"""The checker of recitals as they are built: every place of every document evaluated, in whole numbers.

A recital answers a place right when its answer is the distribution of what follows that prefix in the documents,
weighted; with `first` or `majority`, when it is that one token.

>>> from byheart.checkpoints.windows.tables import Answer, Recital, WindowTable
>>> table = WindowTable((0,), [[1], [3]], [0, 1])
>>> recital = Recital(4, (table,), (Answer.of(3), Answer.of(2)), 0)
>>> certify_recital(recital, [(1, 3, 2)]).verdict.value
'proved'
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction

from byheart.certify.certificate import Verdict
from byheart.checkpoints.windows.tables import Answer, Recital, WindowTable
from byheart.notebook import card, tone_of
from byheart.progress import timed

POLICIES = ("distribution", "first", "majority")


@dataclass(frozen=True)
class RecitalCertificate:
    """The verdict about a recital's documents.

    Attributes:
        verdict: `proved`, `refuted` or `undecided`.
        places: How many places were evaluated.
        agree: How many of them have the document's next token.
        witness: The first place that differs, as (document, position).
        message: The sentence, where it is not about places alone.
    """

    verdict: Verdict
    places: int
    agree: int
    witness: tuple[int, int] | None = None
    message: str = ""

    @property
    def differ(self) -> int:
        return self.places - self.agree

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        facts = [("places", self.places), ("agree", self.agree)]
        return card(f"{self.verdict.value}: {self.sentence}", facts, tone=tone_of(self.verdict))

    @property
    def reason(self) -> str:
        return self.sentence

    @property
    def sentence(self) -> str:
        if self.message:
            return self.message
        if self.witness is None:
            return f"all {self.places:,} places continue as the documents do"
        document, place = self.witness
        return f"{self.differ:,} of {self.places:,} places differ, the first is token {place} of document {document}"


@timed("proving")
def certify_recital(
    recital: Recital,
    documents: Sequence[Sequence[int]],
    weights: Sequence[int] = (),
    ambiguous: str = "distribution",
    only: Collection[int] | None = None,
) -> RecitalCertificate:
    """Evaluates the recital after every prefix of every document (token ids, first to last), or of those in `only`: the
    others count in the distributions alone."""
    prefixes: dict[tuple[int, int], int] = {}  # (number of the prefix, next token) -> number of the longer prefix
    paths: list[list[int]] = []
    follows: dict[int, list[tuple[int, int]]] = {}
    for document, weight in zip(documents, weights or [1] * len(documents), strict=True):
        here, path = 0, list[int]()
        for token in document:
            if path:
                follows.setdefault(here, []).append((token, weight))
            here = prefixes.setdefault((here, token), len(prefixes) + 1)
            path.append(here)
        paths.append(path)
    agree, places, witness = 0, 0, None
    for number, document in enumerate(documents):
        if only is not None and number not in only:
            continue
        for place, state in enumerate(recital.follow(document[:-1]).tolist(), start=1):
            right = _right(recital.answer(state), follows[paths[number][place - 1]], ambiguous)
            agree, places = agree + right, places + 1
            if not right and witness is None:
                witness = (number, place)
    return RecitalCertificate(Verdict.PROVED if agree == places else Verdict.REFUTED, places, agree, witness)


def certify_removal(
    before: Recital, after: Recital, documents: Sequence[Sequence[int]], forgotten: int
) -> RecitalCertificate:
    """That `after` is `before` without rows which no other document meets: every other document is answered as before,
    and so is every sequence that meets none of these rows."""
    same = before.answers == after.answers and before.unknown == after.unknown
    gone = 0
    for one, two in zip(before.tables, after.tables, strict=True):
        old, new = _rows(one), _rows(two)
        alike = (one.offsets, one.far, one.void) == (two.offsets, two.far, two.void)
        same, gone = same and alike and new <= old, gone + len(old - new)
    agree, places, witness = 0, 0, None
    for number, document in enumerate(documents):
        if number == forgotten:
            continue
        for place, (was, now) in enumerate(
            zip(before.follow(document[:-1]).tolist(), after.follow(document[:-1]).tolist(), strict=True), start=1
        ):
            agree, places = agree + (was == now), places + 1
            if was != now and witness is None:
                witness = (number, place)
    if not same or not gone or agree < places:
        reason = "nothing was removed" if same and not gone else "more than a removal of rows" if not same else ""
        return RecitalCertificate(Verdict.REFUTED, places, agree, witness, reason)
    reason = f"{gone:,} rows are gone, everything else is the same, and so are all {places:,} places of what stays"
    return RecitalCertificate(Verdict.PROVED, places, agree, None, reason)


def _rows(table: WindowTable) -> set[tuple[int, ...]]:
    return {(*map(int, window), int(output)) for window, output in zip(table.windows, table.outputs, strict=True)}


def _right(answer: Answer, follows: list[tuple[int, int]], ambiguous: str) -> bool:
    wanted: Counter[int] = Counter()
    for token, weight in follows:
        wanted[token] += weight
    if ambiguous == "first":
        wanted = Counter({follows[0][0]: 1})
    elif ambiguous == "majority":
        wanted = Counter({max(wanted, key=lambda token: (wanted[token], -token)): 1})
    total = sum(wanted.values())
    found = {token: Fraction(weight, answer.total) for token, weight in answer.weights}
    return found == {token: Fraction(weight, total) for token, weight in wanted.items()}
