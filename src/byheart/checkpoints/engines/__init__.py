"""Computed checkpoints in real inference engines: `recite` runs one, `engines` lists them.

One file per engine, each registered by its decorator and importing its library only when it is used.
"""

from byheart.checkpoints.engines._base import Engine, Said, Session, engine, engines
from byheart.checkpoints.engines.questions import Questions, read_questions
from byheart.checkpoints.engines.recite import Check, Recitation, recite

__all__ = [
    "Check",
    "Engine",
    "Questions",
    "Recitation",
    "Said",
    "Session",
    "engine",
    "engines",
    "read_questions",
    "recite",
]
