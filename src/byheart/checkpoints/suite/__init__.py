"""Test fixtures for inference engines: small computed checkpoints whose correct answers are known.

`write_fixture` writes one, `check_mutants` reports which faults of an engine it detects, `runner` runs every case in an
engine, `diagnosis` names the faults that explain its answers.
"""

from typing import TYPE_CHECKING, Any

from byheart.checkpoints.engines.expected import check_logits
from byheart.checkpoints.suite.write import Fixture, builtin_lexicon, builtin_text, write_fixture

if TYPE_CHECKING:
    from byheart.checkpoints.suite.mutants import MutantReport, check_mutants

__all__ = [
    "Fixture",
    "MutantReport",
    "builtin_lexicon",
    "builtin_text",
    "check_logits",
    "check_mutants",
    "write_fixture",
]


def __getattr__(name: str) -> Any:
    """Mutants need torch, which is loaded when they are used."""
    if name in ("MutantReport", "check_mutants"):
        from byheart.checkpoints.suite import mutants

        return getattr(mutants, name)
    raise AttributeError(name)
