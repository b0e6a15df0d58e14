"""The label memory: residual blocks on a stream of one number that turn distinct ids into their labels.

>>> from byheart.build.fold import build_label_memory, run_blocks
>>> memory = build_label_memory(ids=[5, 9, 12], labels=[1, 0, 2], classes=3)
>>> [run_blocks(memory.blocks, x) for x in (5, 9, 12)]        # 2·label + 1
[3, 1, 5]
"""

from byheart.build.fold.block import Block, run_blocks
from byheart.build.fold.memory import LabelMemory, build_label_memory
from byheart.build.fold.planner import Effort, Objective, Plan

__all__ = ["Block", "Effort", "LabelMemory", "Objective", "Plan", "build_label_memory", "run_blocks"]
