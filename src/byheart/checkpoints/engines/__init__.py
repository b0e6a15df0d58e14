"""Computed checkpoints in real inference engines: `recite` runs one, `engines` lists them.

One file per engine, each registered by its decorator and importing its library only when it is used.
"""

from byheart.checkpoints.engines._base import Engine, Reply, Session, engine, engines
from byheart.checkpoints.engines.queries import Queries, read_queries
from byheart.checkpoints.engines.recite import Check, Recitation, recite

__all__ = [
    "Check",
    "Engine",
    "Queries",
    "Recitation",
    "Reply",
    "Session",
    "engine",
    "engines",
    "read_queries",
    "recite",
]
