"""Data sets: validated rows, exact inputs, contexts, separation, readers."""

from byheart.data.contexts import Contexts
from byheart.data.dataset import Dataset, as_task, load
from byheart.data.encoder import Encoder
from byheart.data.separation import Separation, separation
from byheart.data.task import Task

__all__ = ["Contexts", "Dataset", "Encoder", "Separation", "Task", "as_task", "load", "separation"]
