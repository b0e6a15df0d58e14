"""One walker for all domains: every kind of layer has a rule or is refused by name; places count, not objects."""

import re
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest

from byheart.certify.any_order.proof import LatticeWalk
from byheart.errors import ByheartError, NetworkError
from byheart.exact.number import Values
from byheart.export.targets.onnx import _Nodes
from byheart.export.targets.torch import _Shapes
from byheart.ir.enclose import BallWalk, enclosed_outputs
from byheart.ir.evaluate import ExactWalk, outputs
from byheart.ir.floats import FloatWalk
from byheart.ir.layers import (
    Affine,
    Attention,
    Embedding,
    Flatten,
    GlobalToken,
    Head,
    Kind,
    Layer,
    Matrix,
    Pattern,
    Pool,
    Residual,
    SequenceLayer,
    Threshold,
    TokenLayer,
)
from byheart.ir.network import Decode, Inputs, Network, Read, Readout
from byheart.ir.walk import RULES, LayerWalk

ONE = Matrix.of([{0: 1}], 1)
MEAN = Attention(Kind.UNIFORM, Pattern.FULL, (Head(ONE, ONE),))
LAYERS: list[Layer] = [
    Embedding(ONE),
    Affine(ONE),
    Threshold(ONE, (0,)),
    Residual(ONE, (0,), ONE, (0,)),
    MEAN,
    Pool(1),
    Flatten(1, 1),
    GlobalToken((1,)),
]
DOMAINS = [ExactWalk, BallWalk, FloatWalk, LatticeWalk, _Shapes, _Nodes]


def test_every_kind_of_layer_has_a_name_for_its_rule():
    kinds = {*get_args(TokenLayer), *get_args(SequenceLayer)}
    assert set(RULES) == kinds == {type(layer) for layer in LAYERS}
    assert all(callable(getattr(LayerWalk, name)) for name in RULES.values())


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_domain_has_rules_of_its_own_and_no_names_that_are_never_called(domain):
    """A method that is spelled unlike its kind of layer would be a rule that is never applied."""
    known = {*RULES.values(), "refuse"}
    rules = {name for part in domain.__mro__[:-1] for name in vars(part) if name in known}
    assert len(rules & set(RULES.values())) == len(RULES)
    own = {name for name in RULES.values() if getattr(domain, name) is not getattr(LayerWalk, name)}
    assert {"affine", "residual", "attention", "pool"} <= own


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: type(layer).__name__)
def test_a_domain_without_rules_refuses_by_name(layer):
    with pytest.raises(NetworkError, match=f"LayerWalk has no rule for a {type(layer).__name__} layer"):
        LayerWalk[None]().apply(layer)


@pytest.mark.parametrize("layer", [LAYERS[2], LAYERS[6], LAYERS[7]], ids=lambda layer: type(layer).__name__)
@pytest.mark.parametrize("make", [lambda: FloatWalk([]), lambda: _Shapes(Read.LAST)], ids=["floats", "torch"])
def test_domains_refuse_what_they_cannot_hold(make, layer):
    with pytest.raises(ByheartError, match=re.compile("no rule|has no PyTorch form")):
        make().apply(layer)


@pytest.mark.parametrize("read", [Read.LAST, Read.EACH])
def test_one_layer_object_at_two_places_is_two_layers(read):
    """Only tokens that are read leave the *last* attention layer, also where an earlier one is the same object."""
    again = Attention(Kind.UNIFORM, Pattern.FULL, (Head(ONE, ONE),))
    inputs = Inputs(Values.of([[1], [2], [5]]), np.array([[0, 1, 2], [2, 2, -1]]))
    readout = Readout(Decode.VALUE, 100)
    same, other = (Network((MEAN, second, Affine(ONE)), read, readout) for second in (MEAN, again))
    found, expected = outputs(same, inputs), outputs(other, inputs)
    values = [[Fraction(int(x), s.points.denominator) for x in s.points.numerators[:, 0]] for s in (found, expected)]
    assert values[0] == values[1] and (found.index == expected.index).all()
    if read is Read.LAST:  # 5 + 8/3 + (8/3 + 8/3) and 5 + 5 + 10
        assert [values[0][k] for k in found.index[:, 0]] == [13, 20]
    balls = enclosed_outputs(same, inputs, 64)
    assert (
        balls.exact
        and (balls.state.points.numerators * found.points.denominator).tolist()
        == (found.points.numerators * balls.state.points.denominator).tolist()
    )


def test_last_is_true_from_the_last_layer_that_looks_at_sequences():
    class Marks(LayerWalk[bool]):
        def affine(self, layer: Affine) -> bool:
            return self.last

        def attention(self, layer: Attention) -> bool:
            return self.last

    plain = Affine(ONE)
    assert Marks().over([plain, MEAN, plain, MEAN, plain]) == [False, False, False, True, True]
    assert Marks().over([plain, plain]) == [True, True]
