"""Data to certified memory."""

from byheart.compile.memorize import memorize, memorize_dataset
from byheart.compile.memory import Memory
from byheart.compile.memory_file import load

__all__ = ["Memory", "load", "memorize", "memorize_dataset"]
