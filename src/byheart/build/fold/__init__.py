"""The label memory: residual blocks on a stream of one number that turn distinct ids into their labels.

>>> from byheart.build.fold import build_label_memory
>>> memory = build_label_memory(ids=[5, 9, 12], labels=[1, 0, 2], classes=3)
>>> [int(memory.label(x)) for x in (5, 9, 12)]
[1, 0, 2]
"""

from byheart.build.fold.block import StreamBlock, run_blocks
from byheart.build.fold.memory import LabelMemory, build_label_memory, smallest_head
from byheart.build.fold.plan import Effort, Objective

__all__ = ["Effort", "LabelMemory", "Objective", "StreamBlock", "build_label_memory", "run_blocks", "smallest_head"]
