"""Stock checkpoints, one product from top to bottom.

    windows         text -> tables of windows (the function, before any weight)
    hosts           one file per architecture: tables -> tensors
    formats         Hugging Face folder, GGUF, ONNX with a cache
    proof           bounds on a folder's margins, from the folder alone; imports neither windows nor hosts
    engines         one file per inference engine
    recital         texts -> RecitalMemory, the value that users hold
    suite           fixtures, expected answers, mutants
    ground_truth    graded memories, exact unlearning, scoring of methods

>>> from byheart.checkpoints import forget, memorize_recital
>>> memorize_recital(["the cat sat"]).generate("the c")
'at sat'
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from byheart.checkpoints.ground_truth.forget import Forgotten as Forgotten
    from byheart.checkpoints.ground_truth.forget import forget as forget
    from byheart.checkpoints.ground_truth.graded import GradedMemory as GradedMemory
    from byheart.checkpoints.ground_truth.memorize import memorize_graded as memorize_graded
    from byheart.checkpoints.ground_truth.truth import GroundTruth as GroundTruth
    from byheart.checkpoints.ground_truth.twins import rebuild as rebuild
    from byheart.checkpoints.recital import RecitalMemory as RecitalMemory
    from byheart.checkpoints.recital import memorize_recital as memorize_recital

_HOMES = {
    "Forgotten": "ground_truth.forget",
    "forget": "ground_truth.forget",
    "GradedMemory": "ground_truth.graded",
    "memorize_graded": "ground_truth.memorize",
    "GroundTruth": "ground_truth.truth",
    "rebuild": "ground_truth.twins",
    "RecitalMemory": "recital",
    "memorize_recital": "recital",
}
__all__ = [
    "Forgotten",
    "GradedMemory",
    "GroundTruth",
    "RecitalMemory",
    "forget",
    "memorize_graded",
    "memorize_recital",
    "rebuild",
]


def __getattr__(name: str) -> Any:
    """Load the public names on first use, so that importing one subpackage does not import all."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
