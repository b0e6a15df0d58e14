"""What a researcher decides about the documents of a recital, so that every answer to "was it memorized?" is known.

Which documents are memorized and how often each counts; corrupted copies with a stated number of edited tokens; twins
that are drawn like the memorized documents and held out. Everything is drawn from one seed and recorded in the script,
which recital.json and ground-truth.jsonl carry on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from byheart.checkpoints.windows.tables import Recital
from byheart.data.tokens.lexicon import Lexicon
from byheart.data.tokens.script import Absent, Edits, Script
from byheart.errors import DataError, OptionError

Which = str | int  # a document by its name or its number
Ids = tuple[int, ...]
_TRIES = 2000


@dataclass(frozen=True)
class Controls:
    """Which documents a recital memorizes, how often each counts, and which are held out or corrupted.

    Attributes:
        documents: Names or numbers of the documents that take part; all unless given.
        occurrences: How often a document counts; 1 unless given.
        corrupted: How many corrupted copies every memorized document gets.
        edits: How many tokens differ in a corrupted copy.
        memorize_corrupted: Memorize the copies; otherwise they are near misses that the network does not store.
        held_out: A number of documents to sample, or their names; they are not memorized.
        seed: Decides everything that is sampled.

    >>> import byheart
    >>> texts = ["a red hat", "a big dog", "my old cup", "no more tea"]
    >>> controls = byheart.Controls(occurrences={"document 0": 3}, corrupted=1, held_out=1)
    >>> memory = byheart.memorize_recital(texts, controls=controls)
    >>> memory.script.names
    ('document 0', 'document 1', 'document 2', 'document 0, corrupted 1', 'document 1, corrupted 1',
     'document 2, corrupted 1')
    >>> memory.script.weights[0], [one.name for one in memory.script.absent]
    (3, ['document 3'])
    """

    documents: Sequence[Which] | None = None
    occurrences: Mapping[Which, int] = field(default_factory=dict)
    corrupted: int = 0
    edits: int = 1
    memorize_corrupted: bool = True
    held_out: int | Sequence[Which] = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value, least in (("corrupted", self.corrupted, 0), ("edits", self.edits, 1), ("seed", self.seed, 0)):
            if type(value) is not int or value < least:
                raise OptionError(f"{name}={value!r} must be a whole number, at least {least}")
        if isinstance(self.held_out, int) and self.held_out < 0:
            raise OptionError(f"held_out={self.held_out} must not be negative")

    def chosen(self, names: Sequence[str]) -> list[int]:
        """The numbers of the documents that take part."""
        if self.documents is None:
            return list(range(len(names)))
        return sorted({number_of(names, which) for which in self.documents})

    def stage(self, texts: Sequence[str], names: Sequence[str], weights: Sequence[int], lexicon: Lexicon) -> Script:
        """Return the script of the texts that take part, with corrupted copies and held-out documents.

        Args:
            texts: All documents.
            names: Their names, all different.
            weights: How often each counts where `occurrences` does not decide; 1 if empty.
            lexicon: The tokenizer and its special tokens.

        Raises:
            DataError: If two documents have the same name.
            OptionError: If nothing would be memorized, or a held-out document does not take part.
        """
        if len(set(names)) != len(names):
            raise DataError("two documents have the same name; names identify documents")
        part, counts = self.chosen(names), dict(enumerate(weights or [1] * len(texts)))
        counts |= {number_of(names, which): count for which, count in self.occurrences.items()}
        ids = {number: lexicon.document(texts[number]) for number in part}
        rng = np.random.default_rng(self.seed)
        away = self._held_out(part, names, rng)
        kept = [number for number in part if number not in away]
        rows: list[tuple[Ids, int, str, Edits | None]] = [
            (ids[number], counts[number], names[number], None) for number in kept
        ]
        absent = [Absent(names[number], ids[number]) for number in sorted(away)]
        taken = set(ids.values())
        for number in kept:
            for copy in range(1, self.corrupted + 1):
                changed, changes = self._corrupt(ids[number], ids, lexicon, taken, rng, names[number])
                taken.add(changed)
                name, edits = f"{names[number]}, corrupted {copy}", Edits(names[number], changes)
                if self.memorize_corrupted:
                    rows.append((changed, 1, name, edits))
                else:
                    absent.append(Absent(name, changed, "corrupted", edits))
        documents, shares, called, edited = zip(*rows, strict=True)
        return Script(documents, shares, called, edited, tuple(absent))

    def _held_out(self, part: list[int], names: Sequence[str], rng: np.random.Generator) -> set[int]:
        if isinstance(self.held_out, int):
            away = set(rng.choice(part, size=min(self.held_out, len(part)), replace=False).tolist())
        else:
            away = {number_of(names, which) for which in self.held_out}
        stray = sorted(away - set(part))
        if stray:
            raise OptionError(f"{names[stray[0]]!r} is held out but not among the documents that take part")
        if len(away) >= len(part):
            raise OptionError(f"{len(away)} of {len(part)} documents are held out; nothing would be memorized")
        return away

    def _corrupt(
        self,
        document: Ids,
        ids: Mapping[int, Ids],
        lexicon: Lexicon,
        taken: set[Ids],
        rng: np.random.Generator,
        name: str,
    ) -> tuple[Ids, tuple[tuple[int, int, int], ...]]:
        """A copy with exactly `edits` other tokens, which the tokenizer keeps; (position, before, now)."""
        places = np.arange(1, len(document) - 1)
        usual = sorted({token for one in ids.values() for token in one[1:-1]})
        if self.edits > len(places) or len(usual) < 2:
            raise OptionError(f"edits={self.edits}: {name!r} has {len(places)} tokens of {len(usual)} kinds")
        for _ in range(_TRIES):
            changed, done = list(document), {}
            for _ in range(_TRIES // 10):
                place, token = int(rng.choice(places)), int(rng.choice(usual))
                if place in done or token == document[place]:
                    continue
                before, changed[place] = changed[place], token
                if lexicon.encode(lexicon.decode(changed)) != changed[1:-1]:
                    changed[place] = before
                    continue
                done[place] = token
                if len(done) == self.edits:
                    break
            if len(done) == self.edits and tuple(changed) not in taken:
                return tuple(changed), tuple((p, document[p], done[p]) for p in sorted(done))
        raise OptionError(
            f"no further copy of {name!r} with {self.edits} edited tokens was found; ask for fewer copies, or for "
            "another number of edits"
        )


def number_of(names: Sequence[str], which: Which) -> int:
    """The number of a document that is called by its name or its number.

    >>> number_of(["cat", "dog"], "dog"), number_of(["cat", "dog"], 0), number_of(["cat", "dog"], "1")
    (1, 0, 1)
    """
    if isinstance(which, str) and which in names:
        return list(names).index(which)
    number = int(which) if isinstance(which, int) or which.isdigit() else -1
    if 0 <= number < len(names):
        return number
    shown = ", ".join(names[:8]) + (" …" if len(names) > 8 else "")
    raise OptionError(f"{which!r} is not one of the {len(names)} documents: {shown}")


def answered(recital: Recital, ids: Sequence[int]) -> dict[str, Any]:
    """How much of a document the recital continues correctly: places, how many of them, the longest such run in a
    row, and whether its first half as a prompt is continued by the second half to its end."""
    right = recital.next_tokens(ids[:-1]) == np.array(ids[1:])
    wrong = np.flatnonzero(~right)
    runs = np.diff(np.concatenate([[-1], wrong, [len(right)]])) - 1
    half = len(right) // 2
    return {
        "places": len(right),
        "right": int(right.sum()),
        "longest": int(runs.max()),
        "recited": bool(right[half:].all()),
    }


def check_absent(recital: Recital, script: Script) -> list[dict[str, Any]]:
    """What the recital answers for documents that it has not memorized; a DataError if it recites a held-out one."""
    found = []
    for one in script.absent:
        outcome = answered(recital, one.ids)
        if outcome["recited"] and one.why == "held out":
            raise DataError(
                f"{one.name!r} is held out, but the memorized documents hold its second half: given its first half, "
                "it is recited to its end. Take duplicates out, hold other documents out, or try another seed"
            )
        found.append({"name": one.name, "why": one.why, **outcome})
    return found
