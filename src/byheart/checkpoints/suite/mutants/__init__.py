"""Which faults of an engine a fixture detects: `check_mutants` runs one broken machine after the other.

The machine (`byheart.checkpoints.suite.machine`) computes what Transformers computes; a mutant is
that machine with one step wrong, as an engine under construction has it. A change that engines may make
(`harmless`) must be survived.
"""

from byheart.checkpoints.suite.mutants._base import Mutant
from byheart.checkpoints.suite.mutants.check import MutantOutcome, MutantReport, check_mutants, known_faults, mutants_of

__all__ = ["Mutant", "MutantOutcome", "MutantReport", "check_mutants", "known_faults", "mutants_of"]
