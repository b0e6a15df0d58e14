"""The frozen suite: documents for comparing methods, the same for every user.

Records of people, in three templates. Members occur 1, 2, 4, 8, 16 or 32 times; held-out twins come from the same
generator;
near misses are members with one other digit; paraphrases put a member's facts into another template. A public
background of
records teaches the templates to short contexts, so that the language itself is no evidence of membership.

    >>> documents = records(0, 60)
    >>> documents.texts[0]
    'tailor Rex Quay of Pisa is 60 years old and answers 2 2 9 3 4 2 .'
    >>> sorted(set(documents.copies)), len(documents.held_out), len(documents.near), len(documents.paraphrases)
    ([1, 2, 4, 8, 16, 32], 60, 60, 60)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from byheart.checkpoints.ground_truth.graded import GradedMemory
from byheart.checkpoints.ground_truth.lengths import LENGTHS
from byheart.checkpoints.ground_truth.memorize import memorize_graded
from byheart.checkpoints.windows.controls import Controls

LEVELS = (1, 2, 4, 8, 16, 32)
SUITE_VERSION = 1
_FIRST = [
    "Ada",
    "Bo",
    "Cy",
    "Di",
    "Eve",
    "Flo",
    "Gus",
    "Hal",
    "Ida",
    "Jo",
    "Kai",
    "Lea",
    "Max",
    "Nia",
    "Olaf",
    "Pia",
    "Quin",
    "Rex",
    "Sia",
    "Tom",
    "Uma",
    "Vic",
    "Wyn",
    "Zoe",
]
_LAST = [
    "Abel",
    "Berg",
    "Cole",
    "Dahl",
    "Elba",
    "Frey",
    "Gray",
    "Holt",
    "Ives",
    "Jung",
    "Kerr",
    "Lund",
    "Moss",
    "Nash",
    "Odom",
    "Park",
    "Quay",
    "Rask",
    "Sand",
    "Tate",
    "Voss",
]
_JOB = ["baker", "cook", "diver", "guard", "judge", "miner", "nurse", "pilot", "smith", "tailor"]
_CITY = [
    "Bern",
    "Cork",
    "Delhi",
    "Essen",
    "Fez",
    "Graz",
    "Hull",
    "Lima",
    "Nice",
    "Oslo",
    "Pisa",
    "Riga",
    "Rome",
    "Turin",
]
_TEMPLATES = (
    "{first} {last} , aged {age} , {job} in {city} , phone {digits} .",
    "{job} {first} {last} of {city} is {age} years old and answers {digits} .",
    "Record : {last} , {first} ; born {age} ; {job} at {city} ; number {digits} .",
)


@dataclass(frozen=True)
class SuiteTexts:
    """Texts of one suite: members with their copies, and texts that are not memorized."""

    texts: tuple[str, ...]
    copies: tuple[int, ...]
    held_out: tuple[str, ...]
    near: tuple[str, ...]
    paraphrases: tuple[str, ...]
    background: tuple[str, ...]


@dataclass(frozen=True)
class _Person:
    facts: tuple[tuple[str, str], ...]
    template: int

    def text(self, template: int | None = None) -> str:
        return _TEMPLATES[self.template if template is None else template].format(**dict(self.facts))


def _person(rng: np.random.Generator) -> _Person:
    def pick(words: Sequence[str]) -> str:
        return words[int(rng.integers(len(words)))]

    facts = {"first": pick(_FIRST), "last": pick(_LAST), "job": pick(_JOB), "city": pick(_CITY)}
    facts["age"] = str(int(rng.integers(20, 90)))
    facts["digits"] = " ".join(str(int(d)) for d in rng.integers(0, 10, 6))
    return _Person(tuple(facts.items()), int(rng.integers(len(_TEMPLATES))))


def records(seed: int = 0, members: int = 180, background: int = 1000) -> SuiteTexts:
    """Generate the documents of a suite.

    Args:
        seed: Decides everything.
        members: Members, spread evenly over the numbers of copies; as many are held out.
        background: Records of the public background.

    Returns:
        The documents.
    """
    rng = np.random.default_rng([seed, SUITE_VERSION, 2029])
    people = list(dict.fromkeys(_person(rng) for _ in range(2 * members + background)))
    chosen = people[:members]
    near = []
    for person in chosen:
        facts = dict(person.facts)
        digits = facts["digits"].split()
        place = int(rng.integers(6))
        digits[place] = str((int(digits[place]) + int(rng.integers(1, 10))) % 10)
        near.append(_Person(tuple((facts | {"digits": " ".join(digits)}).items()), person.template).text())
    return SuiteTexts(
        tuple(person.text() for person in chosen),
        tuple(LEVELS[k % len(LEVELS)] for k in range(members)),
        tuple(person.text() for person in people[members : 2 * members]),
        tuple(near),
        tuple(person.text((person.template + 1) % len(_TEMPLATES)) for person in chosen),
        tuple(person.text() for person in people[2 * members :]),
    )


def suite_memory(seed: int = 0, members: int = 180, background: int = 1000, **options: Any) -> GradedMemory:
    """The suite as a graded memory; further options are those of `memorize_graded`.

    >>> suite_memory(1, 60).members[5].copies
    32
    """
    made = records(seed, members, background)
    names = [f"r{k}" for k in range(members)]
    extra = [(f"h{k}", "held out", text) for k, text in enumerate(made.held_out)]
    extra += [(f"n{k}", "corrupted", text) for k, text in enumerate(made.near)]
    extra += [(f"p{k}", "paraphrase", text) for k, text in enumerate(made.paraphrases)]
    # The suite is frozen, so nothing about it is chosen from its documents.
    options.setdefault("lengths", LENGTHS)
    return memorize_graded(
        made.texts, names=names, weights=made.copies, tokens="words", background=made.background, extra=extra,
        controls=Controls(seed=seed), **options,
    )  # fmt: skip
