"""The construction `recital`: documents as token ids -> tables of windows that decide what comes next."""

from byheart.checkpoints.windows.construction import BuiltRecital, build_recital
from byheart.checkpoints.windows.far import LONGEST_NEAR
from byheart.checkpoints.windows.schedule import LONGEST_OFFSET

__all__ = ["LONGEST_NEAR", "LONGEST_OFFSET", "BuiltRecital", "build_recital"]
