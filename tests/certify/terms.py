"""Named soundness terms and comparisons of `certify` outside the checkpoint prover: without any of them a test fails.

`terms.json` lists each: its name, the module below byheart, the text that holds it, what replaces this text, and the
tests that must notice. A mutant changes the code of live functions in a forked process (`tests.mutation`).

    python -m tests.certify.terms                    # all of them; prints survivors, and the table of the docs
    python -m tests.certify.terms "carried errors of a sum" "largest id"
"""

from __future__ import annotations

import ast
import importlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.mutation import ARGUMENTS, in_child, install

ROOT = Path(__file__).parents[2]
FAILED, ENDLESS = 7, 99  # what `in_child` returns: 7 is this file's own


@dataclass(frozen=True)
class Term:
    """One term: the text of the module that holds it, and what replaces it."""

    name: str
    module: str  # below byheart
    old: str
    removed: str
    tests: str  # below tests

    def source(self) -> str:
        """The module without the term; no line moves, since functions are found by their lines."""
        text = (ROOT / "src" / "byheart" / f"{self.module}.py").read_text(encoding="utf-8")
        if text.count(self.old) != 1 or self.old.count("\n") != self.removed.count("\n"):
            raise ValueError(f"{self.name}: {self.old!r} is not in {self.module} once")
        return text.replace(self.old, self.removed)

    def survives(self) -> bool:
        """Whether no test fails without the term; a test that no longer ends has noticed, too."""
        module = importlib.import_module(f"byheart.{self.module.replace('/', '.')}")
        tree = ast.parse(self.source())

        def work() -> int:
            install(module, tree)
            status = pytest.main([*ARGUMENTS, "-m", "not slow", str(ROOT / "tests" / self.tests)])
            return FAILED if status == pytest.ExitCode.TESTS_FAILED else 0

        return in_child(work) not in (FAILED, ENDLESS)


TERMS = tuple(Term(*row) for row in json.loads((Path(__file__).parent / "terms.json").read_text(encoding="utf-8")))


def table() -> str:
    """The names by module, as docs/soundness-terms.md has them."""
    modules = dict.fromkeys(term.module for term in TERMS)
    rows = [(m, "; ".join(t.name for t in TERMS if t.module == m)) for m in modules]
    return "\n".join(
        ["| module | terms and comparisons |", "|---|---|", *(f"| `{m}` | {names} |" for m, names in rows)]
    )


def main() -> int:
    chosen = [term for term in TERMS if len(sys.argv) < 2 or term.name in sys.argv[1:]]
    survivors = [term for term in chosen if term.survives()]
    for term in survivors:
        print(f"survives: {term.name} ({term.module})")
    if len(chosen) == len(TERMS):
        print(table())
    return int(bool(survivors) or not chosen)


if __name__ == "__main__":
    sys.exit(main())
