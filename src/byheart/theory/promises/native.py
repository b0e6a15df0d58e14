"""What `native` promises: exact floats in any order of evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from byheart.data.dataset.dataset import Dataset
from byheart.ir.claim import Claim
from byheart.paper import Ref
from byheart.theory.promises import choice, promises

THEOREM = Ref("byheart", "float-native Transformer")


@promises("native")
def native(dataset: Dataset, options: Mapping[str, Any]) -> Claim:
    """Every float evaluation of the network is exact, whatever the order of its sums."""
    dtype = choice(options, "dtype", "float64", "float32")
    return Claim(THEOREM, properties=(f"exact in any order: {dtype}",))
