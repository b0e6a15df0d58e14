"""Data sets: validated rows, exact inputs, contexts, separation, readers."""

from byheart.data.dataset.contexts import Contexts
from byheart.data.dataset.dataset import Dataset, load
from byheart.data.dataset.encoder import Encoder
from byheart.data.separation import Separation, separation
from byheart.data.task import Task, as_task

__all__ = ["Contexts", "Dataset", "Encoder", "Separation", "Task", "as_task", "load", "separation"]
