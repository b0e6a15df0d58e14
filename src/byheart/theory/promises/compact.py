"""What `compact` promises: no size yet, so it says none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from byheart.data.dataset.dataset import Dataset
from byheart.ir.claim import Claim
from byheart.paper import Ref
from byheart.theory.promises import promises

THEOREM = Ref("byheart", "compact memory")


@promises("compact")
def compact(dataset: Dataset, options: Mapping[str, Any]) -> Claim:
    """The labels, exactly; how large the network becomes is measured, not promised."""
    return Claim(THEOREM, assumptions=("exact integers of any length",))
