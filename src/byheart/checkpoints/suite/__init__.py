"""Test fixtures for inference engines: small computed checkpoints whose right answers are known.

`write_fixture` makes one, `check_mutants` says which faults of an engine it notices. This room stands beside `lab`: it
builds with `compile`, asks with `engines`, and breaks a machine of its own.
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
    """Mutants need torch, which is loaded when they are asked for."""
    if name in ("MutantReport", "check_mutants"):
        from byheart.checkpoints.suite import mutants

        return getattr(mutants, name)
    raise AttributeError(name)
