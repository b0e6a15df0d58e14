"""Data to certified memory."""

from byheart.compiler.memorize import memorize, memorize_dataset
from byheart.compiler.memory import Memory
from byheart.compiler.memory_file import load

__all__ = ["Memory", "load", "memorize", "memorize_dataset"]
