"""Three evaluators of one format: byheart's, the second checker's and the report page's, on random networks."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from fractions import Fraction

import numpy as np
import pytest

from byheart.errors import NetworkError, NotRationalError
from byheart.exact.number import Values
from byheart.ir import evaluate
from byheart.ir.decoder import Activation
from byheart.ir.enclose import UNDECIDED, enclosed_answers
from byheart.ir.json_form import network_from_json
from byheart.ir.network import Inputs
from tests.checker.asked import EVALUATOR, check
from tests.checker.networks import network

ROWS = 6


def rows(seed: int, n: int, width: int) -> list[list[list[int]]]:
    rng = random.Random(f"rows {seed}")
    return [[[rng.randrange(4) for _ in range(width)] for _ in range(n)] for _ in range(ROWS)]


def first(stored, given) -> list:
    """byheart's answers, row by row; None for no class, a text where the row cannot be answered or decided."""
    found = []
    for row in given:
        points = Values(np.array(row, dtype=object))
        inputs = Inputs(points, np.arange(len(row), dtype=np.int64)[None, :])
        loaded = network_from_json(stored)
        try:
            try:
                said = evaluate.answers(loaded, inputs)
            except NotRationalError:
                said = enclosed_answers(loaded, inputs)[0]
        except NetworkError:
            found.append("no answer")
            continue
        except NotRationalError:
            found.append("undecided")
            continue
        flat = said.reshape(-1).tolist()
        found.append("undecided" if UNDECIDED in flat else [None if k < 0 else k for k in flat])
    return found


def second(stored, given) -> list:
    check.BUDGET.limit, check.BUDGET.done = 10**12, 0
    asked = check.Network(check.parse(stored, "layers", "network"))
    found = []
    for row in given:
        try:
            found.append(asked.ask([[(x, 0) for x in token] for token in row]))
        except check.NoAnswer:
            found.append("no answer")
        except check.Undecided:
            found.append("undecided")
    return found


def third(cases) -> list:
    """The page's answers to all cases, in one run of Node."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed: the report's evaluator is run by it (apt install nodejs)")
    asked = []
    for stored, given in cases:
        n, width = len(given[0]), len(given[0][0])
        encoder = {
            "task": "causal",
            "positions": False,
            "length": n,
            "symbols": None,
            "dimension": width,
            "padded": False,
        }
        classes = [str(k) for k in range(stored["readout"]["classes"])]
        tokens = {"kind": "json", "max_length": None, "pad": None, "type": "auto"}
        memory = {"network": stored, "encoder": encoder | {"pad_vector": None}, "classes": classes, "tokens": tokens}
        asked.append({"memory": memory, "questions": [json.dumps(row) for row in given]})
    script = f"""{EVALUATOR.read_text()}
    const answer = ({{ evaluate, tokensOf }}, text) => {{
      try {{ return evaluate(tokensOf(text)).answers; }} catch (error) {{ return error.message; }}
    }};
    const all = JSON.parse(require("fs").readFileSync(0, "utf-8"));
    const answers = ({{ memory, questions }}) => {{
      const tools = exactly(memory);
      return questions.map((text) => answer(tools, text));
    }};
    console.log(JSON.stringify(all.map(answers)));"""
    done = subprocess.run([node, "-e", script], input=json.dumps(asked), capture_output=True, text=True, check=True)
    return [
        [[None if k is None else int(k) for k in row] if isinstance(row, list) else "no answer" for row in said]
        for said in json.loads(done.stdout)
    ]


@pytest.mark.parametrize("count", [40, pytest.param(3000, marks=pytest.mark.slow)])
def test_rational_networks(count):
    cases = []
    for seed in range(count):
        n, width = 1 + seed % 4, 1 + seed % 2
        cases.append((network(seed, n, width), rows(seed, n, width)))
    pages = third(cases)
    answered = 0
    for seed, ((stored, given), page) in enumerate(zip(cases, pages, strict=True)):
        one, two = first(stored, given), second(stored, given)
        assert one == two, seed
        assert one == page, seed
        answered += sum(isinstance(row, list) and None not in row for row in one)
    assert answered > count


@pytest.mark.parametrize("count", [20, pytest.param(1000, marks=pytest.mark.slow)])
def test_softmax(count):
    """byheart encloses by balls, the second checker by intervals of its own: whoever decides, decides alike."""
    decided = 0
    for seed in range(count):
        n, width = 2 + seed % 3, 1 + seed % 2
        stored, given = network(seed, n, width, softmax=True), rows(seed, n, width)
        for one, two in zip(first(stored, given), second(stored, given), strict=True):
            if "undecided" not in (one, two):
                assert one == two, seed
                decided += isinstance(one, list)
    assert decided > 3 * count


def scored(kind: str, key, query) -> dict:
    """One head that copies the first number of a token to the second, by these scores."""
    one = lambda column, weight: {"columns": 2, "rows": [[[column, weight]] if weight else []]}  # noqa: E731
    head = {
        "value": one(0, 1),
        "output": {"columns": 1, "rows": [[], [[0, 1]]]},
        "key": one(0, key),
        "query": one(0, query),
    }
    attention = {"layer": "attention", "kind": kind, "pattern": "full", "heads": [head]}
    shift = {"layer": "affine", "weight": {"columns": 2, "rows": [[[1, 1]], []]}, "bias": [0, 1], "relu": False}
    readout = {"decode": "argmax", "classes": 2, "offset": 0}
    return {"layers": [attention, shift], "read": "last", "readout": readout, "stages": []}


@pytest.mark.parametrize(
    ("stored", "answer"),
    [
        (scored("hardmax", "0x1p70", 0), [0]),  # every score is 0, though the keys fit no machine integer
        (scored("softmax", "-0x1p70", "0x1p70"), [1]),  # a share of e^-(2^140): no exponent of that size is written out
        (scored("softmax", "0x1p70", "0x1p70"), [0]),
    ],
)
def test_scores_beyond_machine_numbers(stored, answer):
    given = [[[0, 0], [3, 0]]]
    assert first(stored, given) == second(stored, given) == [answer]


def points(rng: random.Random, bits: int) -> list[tuple[int, int]]:
    found = [(0, 1), (1, 1), (1, 3), (bits, 1), (bits - 1, 1), (1, 10**30)]
    return found + [(rng.randrange(bits * 1000), rng.randrange(1, 1000)) for _ in range(60)]


def off(found: int, true, precise) -> bool:
    """Whether an integer is further than 2 from a ball that is much smaller."""
    return abs(true - precise.arb(found)) > 2


@pytest.mark.parametrize("bits", [8, 53, 200, 1000, 5000])
def test_the_exponential(bits, precise):
    """Against python-flint's balls: within 2 units of the last place."""
    for numerator, den in points(random.Random(bits), bits):
        x = (numerator << bits) // den
        true = precise.arb(-precise.fmpq(x, 1 << bits)).exp() * precise.arb(2) ** bits
        assert not off(check.exponential(x, bits), true, precise), (numerator, den)


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "arctan", "gelu"])
def test_activations_are_enclosed(name, precise):
    rng = random.Random(name)
    for bits in (53, 100, 300, 1000):
        near = [(rng.randrange(-20_000, 20_000), 1000) for _ in range(40)]
        for numerator, den in [(0, 1), (1, 1), (-1, 1), (1, 2**60), (-1000, 1), (9999, 7), *near]:
            x = (numerator << bits) // den
            fine = check.ACTIVATIONS[name](x << check.GUARD, bits + check.GUARD) >> check.GUARD
            true = Activation(name).ball(precise.arb(precise.fmpq(x, 1 << bits))) * precise.arb(2) ** bits
            assert not off(fine, true, precise), (numerator, den, bits)
            spread = check.activated(check.Vec((numerator,), den, 1), name, bits)
            for end in (numerator - 1, numerator + 1):
                true = Activation(name).ball(precise.arb(precise.fmpq(end, den))) * precise.arb(2) ** bits
                assert abs(true - precise.arb(spread.numbers[0])) <= spread.radius
            exact = check.activated(check.Vec((numerator,), den), name, bits)
            assert exact.radius <= 4, "no wider than a few units of the last place"


def test_the_logarithm(precise):
    rng = random.Random("log")
    for bits in (10, 53, 200, 2000):
        some = [Fraction(rng.randrange(1, 10**9), 997) for _ in range(40)]
        for x in [Fraction(1), Fraction(2), Fraction(1, 3), Fraction(2) ** 5000, 1 + Fraction(1, 10**9), *some]:
            true = precise.arb(precise.fmpq(x.numerator, x.denominator)).log() * precise.arb(2) ** bits
            assert not off(check.logarithm(x, bits), true, precise), (x, bits)


def mean_of(weights: list, V: list[tuple[int, ...]], precise) -> list:
    return [
        sum((w * v[c] for w, v in zip(weights, V, strict=True)), precise.arb(0)) / sum(weights, precise.arb(0))
        for c in range(len(V[0]))
    ]


def test_means_by_softmax_are_enclosed(precise):
    """Scores and vectors are moved to the ends of what they may be: the mean stays within its radius."""
    rng = random.Random("mean")
    for _ in range(200):
        n, bits, den = rng.randint(1, 5), rng.choice([20, 60, 200]), rng.choice([1, 3, 1 << 12])
        scores = check.Vec(tuple(rng.randrange(-20 * den, 20 * den) for _ in range(n)), den, rng.choice([0, 0, 1]))
        V = [check.Vec((rng.randrange(-999, 999), rng.randrange(9)), 7, scores.radius) for _ in range(n)]
        found = check.softmax_mean(V, scores, bits)
        ends = [x + rng.choice([-1, 1]) * scores.radius for x in scores.numbers]
        moved = [tuple(x + rng.choice([-1, 1]) * z.radius for x in z.numbers) for z in V]
        weights = [precise.arb(precise.fmpq(x, den)).exp() for x in ends]
        for true, mine in zip(mean_of(weights, moved, precise), found.numbers, strict=True):
            assert abs(true / 7 * precise.arb(2) ** bits - precise.arb(mine)) <= found.radius
        if not scores.radius:
            assert found.radius <= 10 + 10 * n * 2000, "as fine as the bits allow"


@pytest.fixture
def precise():
    """python-flint with many more bits than needed."""
    flint = pytest.importorskip("flint")
    flint.ctx.prec = 6000
    yield flint
    flint.ctx.prec = 53
