"""The construction `recital`: documents as token ids -> tables of windows that decide what comes next."""

from byheart.build.recital.construction import BuiltRecital, build_recital
from byheart.build.recital.schedule import LONGEST_OFFSET, LONGEST_STEP

__all__ = ["LONGEST_OFFSET", "LONGEST_STEP", "BuiltRecital", "build_recital"]
