"""Error terms of the second checker, one at a time: without a term, an engine that the model allows leaves the bounds.

`checkpoint_terms.json` lists the code of every term, what replaces it, and the simulator that must notice. Terms for
the checker's own float64 arithmetic, and halves of terms that another term covers, are not listed.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.checker import checkpoint_simulators
from tests.checker.tampered_checkpoints import PATH, checker, program

TERMS = {term["name"]: term for term in json.loads(Path(__file__).with_name("checkpoint_terms.json").read_text())}
SIMULATORS = tuple(dict.fromkeys(term["simulator"] for term in TERMS.values()))
FEW = ("sum of a linear map, half", "leak of a copy", "lost digits of a state", "store of a router's logit")


def inside(simulator: str, source: str) -> bool:
    with np.errstate(all="ignore"):
        return bool(getattr(checkpoint_simulators, simulator)(program(source)))


@pytest.mark.parametrize("simulator", SIMULATORS)
def test_engines_stay_inside_the_bounds(simulator: str) -> None:
    assert inside(simulator, PATH.read_text())


@pytest.mark.parametrize("name", [n if n in FEW else pytest.param(n, marks=pytest.mark.slow) for n in TERMS])
def test_every_error_term_is_noticed(name: str) -> None:
    term, source = TERMS[name], PATH.read_text()
    assert source.count(term["code"]) == 1
    assert not inside(term["simulator"], source.replace(term["code"], term["mutant"]))


def test_every_listed_term_is_in_the_program() -> None:
    source = PATH.read_text()
    assert {name: source.count(term["code"]) for name, term in TERMS.items()} == dict.fromkeys(TERMS, 1)


def test_the_program_itself_is_not_replaced() -> None:
    assert checker.silu_steps.__name__ == "silu_steps" and checker.inner_norm.__name__ == "inner_norm"
