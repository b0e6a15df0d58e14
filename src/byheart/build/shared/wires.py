"""Naming the numbers inside a gadget: affine forms over wires, and layers assembled from them.

A gadget writes each unit as a form over the names of the layer before, so its formulas read as in the paper:

    >>> plan = [{"below": 3 - wire("x"), "above": wire("x") - 5}, {"inside": 1 - 2 * wire("below") - 2 * wire("above")}]
    >>> layers = assemble(("x",), plan)
    >>> layers[0].weight.dense(), layers[0].bias
    ([[-1], [1]], (3, -5))
    >>> layers[1].weight.dense(), layers[1].bias
    ([[-2, -2]], (1,))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from byheart.errors import NetworkError
from byheart.exact import Number
from byheart.ir.layers import Affine, Matrix, Residual


@dataclass(frozen=True)
class Form:
    """constant + sum of weight · wire."""

    terms: Mapping[str, Number] = field(default_factory=dict)
    constant: Number = 0

    def __add__(self, other: Form | Number) -> Form:
        if not isinstance(other, Form):
            return Form(self.terms, self.constant + other)
        terms = dict(self.terms)
        for name, weight in other.terms.items():
            terms[name] = terms.get(name, 0) + weight
        return Form(terms, self.constant + other.constant)

    __radd__ = __add__

    def __mul__(self, factor: Number) -> Form:
        return Form({name: factor * weight for name, weight in self.terms.items()}, factor * self.constant)

    __rmul__ = __mul__

    def __neg__(self) -> Form:
        return self * -1

    def __sub__(self, other: Form | Number) -> Form:
        return self + -other

    def __rsub__(self, other: Number) -> Form:
        return -self + other

    @property
    def is_zero(self) -> bool:
        return self.constant == 0 and not any(self.terms.values())


ZERO = Form()
Units: TypeAlias = Mapping[str, Form]
Plan: TypeAlias = Sequence[Units]


def wire(name: str) -> Form:
    """The number on one wire."""
    return Form({name: 1})


def wires(names: Iterable[str]) -> dict[str, Form]:
    """Every name as itself: how a layer's outputs look to the next layer."""
    return {name: wire(name) for name in names}


def carried(state: Units) -> dict[str, Form]:
    """The units that keep `state` for one more layer; a zero needs no unit."""
    return {name: form for name, form in state.items() if not form.is_zero}


def affine(inputs: Sequence[str], units: Units, *, relu: bool, bias: bool = True) -> Affine:
    """One layer from its units."""
    places = {name: place for place, name in enumerate(inputs)}
    for name, form in units.items():
        unknown = [source for source in form.terms if source not in places]
        if unknown:
            raise NetworkError(f"unit {name} reads {unknown[0]}, which is not one of {', '.join(inputs)}")
    rows = [{places[source]: weight for source, weight in form.terms.items()} for form in units.values()]
    constants = tuple(form.constant for form in units.values())
    if not bias and any(constants):
        raise NetworkError("a linear map has no constants")
    return Affine(Matrix.of(rows, len(inputs)), constants if bias else None, relu)


def assemble(inputs: Sequence[str], plan: Plan) -> tuple[Affine, ...]:
    """ReLU layers from a plan: each step's units read the units of the step before, the first step reads `inputs`."""
    layers = []
    for units in plan:
        layers.append(affine(inputs, units, relu=True))
        inputs = tuple(units)
    return tuple(layers)


@dataclass(frozen=True)
class Effect:
    """One hidden unit of a residual block: relu(form), added to each wire of `adds` with its weight."""

    form: Form
    adds: Mapping[str, Number]


@dataclass(frozen=True)
class WireBlock:
    """A residual block over named wires: x + W2 relu(W1 x + b1) + b2."""

    effects: tuple[Effect, ...] = ()
    shift: Mapping[str, Number] = field(default_factory=dict)


def residual(stream: Sequence[str], block: WireBlock) -> Residual:
    """The layer of a block; a block without hidden units gets one that does nothing, so that no matrix is empty.

    >>> layer = residual(("x", "y"), WireBlock((Effect(wire("x"), {"x": -1}),), {"y": 3}))
    >>> layer.weight1.dense(), layer.weight2.dense(), layer.bias2
    ([[1, 0]], [[-1], [0]], (0, 3))
    """
    places = {name: place for place, name in enumerate(stream)}
    effects = block.effects or (Effect(ZERO, {}),)
    rows1 = [{places[name]: weight for name, weight in e.form.terms.items()} for e in effects]
    rows2: list[dict[int, Number]] = [{} for _ in stream]
    for unit, e in enumerate(effects):
        for name, weight in e.adds.items():
            rows2[places[name]][unit] = weight
    return Residual(
        Matrix.of(rows1, len(stream)),
        tuple(e.form.constant for e in effects),
        Matrix.of(rows2, len(effects)),
        tuple(block.shift.get(name, 0) for name in stream),
    )


def renamed(units: Units, suffix: str, shared: str) -> dict[str, Form]:
    """The same units with `suffix` after every name but the shared one: a copy that works beside others.

    >>> renamed({"x": wire("x"), "y": wire("x") + wire("y")}, "#1", shared="x")["y#1"]
    Form(terms={'x': 1, 'y#1': 1}, constant=0)
    """

    def new(name: str) -> str:
        return name if name == shared else name + suffix

    return {
        new(name): Form({new(source): w for source, w in form.terms.items()}, form.constant)
        for name, form in units.items()
    }
