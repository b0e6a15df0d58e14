"""The construction `recital`: documents as token ids -> tables of windows that decide what comes next."""

from byheart.build._base import announce
from byheart.build.recital.construction import Built, build_recital
from byheart.build.recital.schedule import LONGEST_OFFSET
from byheart.paper import Ref

announce(
    "recital",
    summary="a text as a small stock checkpoint (Llama, Qwen, GPT-2, …) whose right token wins by a proved margin",
    ref=Ref("byheart", "recital"),
    door="`byheart memorize DOCS --construction recital` or byheart.memorize_recital",
    words="Tables of windows become the units of a stock decoder: every memorized window is continued greedily, in any "
    "engine that runs the architecture. Take it to test an engine, or to know which unit holds which text.",
)

__all__ = ["LONGEST_OFFSET", "Built", "build_recital"]
