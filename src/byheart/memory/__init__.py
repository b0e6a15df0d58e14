"""Data to certified memory."""

from byheart.memory.memorize import memorize, memorize_dataset
from byheart.memory.memory import Memory
from byheart.memory.memory_file import load

__all__ = ["Memory", "load", "memorize", "memorize_dataset"]
