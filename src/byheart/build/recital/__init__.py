"""The construction `recital`: documents as token ids -> tables of windows that decide what comes next."""

from byheart.build.recital.construction import BuiltRecital, build_recital
from byheart.build.recital.schedule import LONGEST_NEAR, LONGEST_OFFSET

__all__ = ["LONGEST_NEAR", "LONGEST_OFFSET", "BuiltRecital", "build_recital"]
