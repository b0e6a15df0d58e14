"""What `compact` promises: a budget of parameters, from facts that are known before anything is built."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.errors import OptionError
from byheart.ir.claim import Claim
from byheart.paper import Ref
from byheart.theory.compact_budget import CompactFacts, compact_budget
from byheart.theory.promises import choice, promises

THEOREM = Ref("byheart", "compact memory")
MOST_ABSTAIN_BITS = 64


@promises("compact")
def compact(dataset: Dataset, options: Mapping[str, Any]) -> Claim:
    """The budget, which the builder keeps: it draws again, works harder, or gives up and says so."""
    head = choice(options, "head", "value", "logits", "sign")
    objective = choice(options, "objective", "parameters", "bits", "depth")
    attention = choice(options, "attention", "uniform", "softmax", "hardmax")
    abstain_bits = options.get("abstain_bits", 0)
    if type(abstain_bits) is not int or not 0 <= abstain_bits <= MOST_ABSTAIN_BITS:
        raise OptionError(f"option abstain_bits={abstain_bits!r} is not a number from 0 to {MOST_ABSTAIN_BITS}")
    scores = 0 if attention == "uniform" or dataset.encoder.task is Task.SET else 2
    facts = CompactFacts.of(dataset)
    budget = compact_budget(facts, head=head, abstain_bits=abstain_bits, objective=objective, scores=scores)
    shallow = objective == "depth"
    return Claim(
        THEOREM,
        {"parameters": budget, "depth": 3 if shallow else budget // 4 + 2, "width": max(1, budget // 3)},
        {
            "parameters": "c1·sqrt(contexts·bits per label) + c2·(length of ids) + c3, byheart.theory.compact_budget",
            "depth": "hash, attention, one line" if shallow else "a block has at least 4 parameters",
            "width": "a unit has 3 parameters",
        },
        assumptions=("exact integers of any length", "ids tell contexts apart, which is checked on the data"),
    )
