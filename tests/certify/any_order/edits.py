"""Random edits of networks, and random small networks: what an attacker, or a mistake, makes of a native memory."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from byheart.build.native.front import mean_attention, snap_blocks
from byheart.build.native.layout import float_type
from byheart.certify.any_order.lattice import InputFacts, channel
from byheart.exact import Number, dyadic
from byheart.ir.layers import Affine, Attention, Embedding, Head, Kind, Layer, Matrix, Pattern, Pool, Residual
from byheart.ir.network import Decode, Network, Read, Readout

Edit = Callable[[Network, random.Random], Network | None]
EXTREMES = (1, 2, 5, 10, 24, 30, 53, 60, 100, 120, 126, 149, 500, 900, 980, 1000, 1022, 1074)


def shifted(number: Number, places: int) -> Number:
    """number · 2^places."""
    return number * (dyadic(1, places) if places < 0 else 1 << places)


def changed_number(number: Number, rng: random.Random) -> Number:
    """Another number near, or far from, this one."""
    match rng.randrange(8):
        case 0:
            return -number
        case 1:
            return 0
        case 2:
            return shifted(number, rng.choice((-1, 1)) * rng.choice(EXTREMES))
        case 3:
            return number + rng.choice((1, -1, 2, -4, 16))
        case 4:
            return number + rng.choice((1, -1)) * dyadic(1, -rng.choice(EXTREMES))
        case 5:
            return shifted(rng.choice((1, 3, -1)), rng.randrange(0, 60))
        case 6:
            return number * rng.choice((2, 3, 5, -2))
    return shifted(number, rng.choice((-2, -1, 1, 2)))


def changed_matrix(matrix: Matrix, rng: random.Random, cells: int = 1) -> Matrix:
    """Some entries changed, preferably such as are not zero."""
    rows = [dict(row) for row in matrix.rows]
    places = [(i, j) for i, row in enumerate(rows) for j in row]
    for _ in range(cells):
        if places and rng.random() < 0.85:
            i, j = rng.choice(places)
        elif rows and matrix.columns:
            i, j = rng.randrange(len(rows)), rng.randrange(matrix.columns)
        else:
            return matrix
        rows[i][j] = changed_number(rows[i].get(j, 0), rng)
    return Matrix.of(rows, matrix.columns)


def changed_vector(values: tuple[Number, ...], rng: random.Random) -> tuple[Number, ...]:
    if not values:
        return values
    used = [k for k, v in enumerate(values) if v] or [rng.randrange(len(values))]
    place = rng.choice(used)
    return tuple(changed_number(v, rng) if k == place else v for k, v in enumerate(values))


def changed_layer(layer: Layer, rng: random.Random) -> Layer:
    match layer:
        case Affine():
            if layer.bias and rng.random() < 0.4:
                return replace(layer, bias=changed_vector(layer.bias, rng))
            return replace(layer, weight=changed_matrix(layer.weight, rng))
        case Residual():
            part = rng.choice(("weight1", "bias1", "weight2", "bias2"))
            change = changed_matrix if part.startswith("weight") else changed_vector
            return replace(layer, **{part: change(getattr(layer, part), rng)})
        case Embedding():
            return replace(layer, table=changed_matrix(layer.table, rng))
        case Attention():
            heads = list(layer.heads)
            place = rng.randrange(len(heads))
            part = rng.choice(("value", "output", "key", "query") if heads[place].key else ("value", "output"))
            heads[place] = replace(heads[place], **{part: changed_matrix(getattr(heads[place], part), rng)})
            return replace(layer, heads=tuple(heads))
    return layer


def with_layers(network: Network, layers: list[Layer]) -> Network:
    return replace(network, layers=tuple(layers), stages=())


def change_a_layer(network: Network, rng: random.Random) -> Network:
    layers = list(network.layers)
    place = rng.randrange(len(layers))
    layers[place] = changed_layer(layers[place], rng)
    return with_layers(network, layers)


def diagonal(width: int, power: int, channels: range | list[int] | None = None) -> Affine:
    factor = shifted(1, power)
    chosen = range(width) if channels is None else channels
    return Affine(Matrix.of([{k: factor if k in chosen else 1} for k in range(width)], width))


def insert_a_scale_pair(network: Network, rng: random.Random) -> Network | None:
    """×2^k somewhere and ×2^-k after it, or further after: nothing in exact numbers."""
    places = [k for k in range(1, len(network.layers))]
    place = rng.choice(places)
    width, layers = network.layers[place].width_in, list(network.layers)
    power = rng.choice((-1, 1)) * rng.choice(EXTREMES)
    chosen = None if rng.random() < 0.5 else [rng.randrange(width)]
    return with_layers(
        network,
        [*layers[:place], diagonal(width, power, chosen), diagonal(width, -power, chosen), *layers[place:]],
    )


def scale_before_the_snap(network: Network, rng: random.Random) -> Network | None:
    """×2^k and ×2^-k, as two maps or as two blocks, where the error of a mean is still carried."""
    snaps = [k for k, layer in enumerate(network.layers) if isinstance(layer, Residual) and not layer.hidden]
    if not snaps:
        return None
    place, layers = snaps[0], list(network.layers)
    width = layers[place].width_in
    power = rng.choice((-1, 1)) * rng.choice((*EXTREMES, 950, 960, 970, 1010))
    pair = [diagonal(width, power), diagonal(width, -power)]
    return with_layers(network, [*layers[:place], *pair, *layers[place:]])


def swap_two_layers(network: Network, rng: random.Random) -> Network | None:
    layers = list(network.layers)
    pairs = [k for k in range(1, len(layers) - 2) if layers[k].width_in == layers[k + 1].width_out]
    if not pairs:
        return None
    place = rng.choice(pairs)
    layers[place], layers[place + 1] = layers[place + 1], layers[place]
    return with_layers(network, layers)


def drop_or_repeat_a_layer(network: Network, rng: random.Random) -> Network | None:
    layers = list(network.layers)
    inner = [k for k in range(1, len(layers) - 1) if isinstance(layers[k], Residual)]
    if not inner:
        return None
    place = rng.choice(inner)
    again = [layers[place]] * rng.choice((0, 2))
    return with_layers(network, [*layers[:place], *again, *layers[place + 1 :]])


def move_the_snap(network: Network, rng: random.Random) -> Network | None:
    """Other constants in the blocks that are nothing but a bias."""
    layers = list(network.layers)
    snaps = [k for k, layer in enumerate(layers) if isinstance(layer, Residual) and not layer.hidden]
    if len(snaps) < 2:
        return None
    power = rng.choice((-30, -10, -3, -2, -1, 1, 2, 3, 10, 60, 900))
    for k in snaps:
        layers[k] = replace(layers[k], bias2=tuple(shifted(b, power) for b in layers[k].bias2))
    return with_layers(network, layers)


def add_a_head(network: Network, rng: random.Random) -> Network | None:
    """Heads that cancel, a head that is split in two, or scores that are multiplied by 0."""
    places = [k for k, layer in enumerate(network.layers) if isinstance(layer, Attention)]
    if not places:
        return None
    layers, place = list(network.layers), rng.choice(places)
    layer = layers[place]
    head = layer.heads[0]
    match rng.randrange(3):
        case 0:
            factor = shifted(1, rng.choice((0, 1, 10, 20, 40, 900)))
            extra = [_times(head, factor), _times(head, -factor)]
            layers[place] = replace(layer, heads=(*layer.heads, *extra))
        case 1:
            factor = rng.choice((2, 3, 5, -1))
            layers[place] = replace(layer, heads=(_times(head, factor), _times(head, 1 - factor), *layer.heads[1:]))
        case _:
            width = layer.width_in
            power = rng.choice((0, 40, 100, 900, 1020))
            query = Matrix.of([{rng.randrange(width): shifted(1, power)}], width)
            layers[place] = replace(layer, heads=(replace(head, key=Matrix.zero(1, width), query=query),))
    return with_layers(network, layers)


def _times(head: Head, factor: Number) -> Head:
    rows = [{j: w * factor for j, w in row} for row in head.value.rows]
    return replace(head, value=Matrix.of(rows, head.value.columns))


def widen_with_junk(network: Network, rng: random.Random) -> Network | None:
    """A block that writes something large into a channel and takes it away again."""
    place = rng.randrange(1, len(network.layers))
    width = network.layers[place].width_in
    source, target = rng.randrange(width), rng.randrange(width)
    weight = shifted(rng.choice((1, 3, -1)), rng.choice((0, 3, 10, 20, 30, 50, 900)))
    blocks = []
    for sign in (1, -1):
        w2 = [{0: sign * weight} if k == target else {} for k in range(width)]
        blocks.append(Residual(Matrix.of([{source: 1}], width), (0,), Matrix.of(w2, 1), (0,) * width))
    layers = list(network.layers)
    return with_layers(network, [*layers[:place], *blocks, *layers[place:]])


def move_the_offset(network: Network, rng: random.Random) -> Network | None:
    if network.readout.decode is not Decode.VALUE:
        return None
    return replace(network, readout=replace(network.readout, offset=rng.choice((-3, -1, 1, 7, 1 << 30, 1 << 60))))


def permute_units(network: Network, rng: random.Random) -> Network:
    from tests.certify.any_order.permuted import permuted

    return permuted(network, rng.randrange(1 << 30))


EDITS: tuple[Edit, ...] = (
    change_a_layer,
    change_a_layer,
    change_a_layer,
    insert_a_scale_pair,
    scale_before_the_snap,
    swap_two_layers,
    drop_or_repeat_a_layer,
    move_the_snap,
    add_a_head,
    widen_with_junk,
    move_the_offset,
    permute_units,
)


def edited(network: Network, rng: random.Random) -> tuple[str, Network]:
    """One to three edits; their names describe what was done."""
    names = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        edit = rng.choice(EDITS)
        found = edit(network, rng)
        if found is not None:
            names.append(edit.__name__)
            network = found
    return " + ".join(names) or "nothing", network


def random_case(rng: random.Random) -> tuple[Network, InputFacts, str]:
    """A small network near the limits of its float type, on a small domain."""
    dtype = rng.choice(("float64", "float32"))
    kind = float_type(dtype)
    n, width = rng.choice((1, 2, 3, 3, 4, 5, 7, 8)), rng.randint(1, 3)
    ragged, positions = rng.random() < 0.4, rng.random() < 0.4
    coordinates = [_coordinate(rng, kind.mantissa) for _ in range(rng.randint(1, 2))]
    if positions:
        coordinates.append(channel(Fraction(0), Fraction(n - 1), Fraction(1)))
    absent = None
    if ragged and rng.random() < 0.5:
        zero = channel(Fraction(0), Fraction(0), Fraction(0))
        absent = (*(zero for _ in range(len(coordinates) - positions)), *coordinates[len(coordinates) - positions :])
    facts = InputFacts(n, ragged, tuple(coordinates), positions, absent)
    layers: list[Layer] = [_random_affine(rng, len(coordinates), width)]
    pooled = rng.random() < 0.2
    layers += _random_layers(rng, width, rng.randint(0, 2), kind.mantissa)
    if pooled:
        layers.append(Pool(width))
    else:
        for _ in range(rng.choice((1, 1, 1, 2))):
            pattern = rng.choice((Pattern.FULL, Pattern.CAUSAL))
            reads = rng.sample(range(width), rng.randint(1, width))
            weight = rng.choice((1, n, n, 2 * n, dyadic(1, -1), n << 10))
            attention = mean_attention(width, pattern, reads, reads[::-1], weight)
            if rng.random() < 0.15:
                attention = Attention(
                    Kind.UNIFORM, pattern, (Head(attention.heads[0].value, attention.heads[0].output),)
                )
            layers.append(attention)
            layers += _random_layers(rng, width, rng.choice((0, 0, 0, 1)), kind.mantissa)
            layers += snap_blocks(width, kind, range(width), rng.choice((0, 0, 0, 1, -1, 3)))
    layers += _random_layers(rng, width, rng.randint(0, 2), kind.mantissa)
    layers.append(Affine(Matrix.of([{k: rng.choice((1, 1, 2, -1)) for k in range(width)}], width)))
    read = Read.POOLED if pooled else rng.choice((Read.EACH, Read.LAST))
    readout = Readout(Decode.VALUE, 4, rng.choice((0, 0, 0, 1, -2)))
    return Network(tuple(layers), read, readout), facts, dtype


def _coordinate(rng: random.Random, mantissa: int):
    bits = rng.choice((1, 2, 3, 5, 8, mantissa // 2, mantissa - 8))
    unit = Fraction(rng.choice((1, 1, 1, 3))) * Fraction(2) ** rng.choice((0, 0, 0, -3, 4, -100, 100))
    low = rng.choice((0, 0, -1, 5)) * unit
    return channel(low, low + (1 << bits) * unit, unit)


def _random_affine(rng: random.Random, inputs: int, width: int) -> Affine:
    rows = [{j: rng.choice((0, 1, 1, 2, -1, 3, 1 << 7)) for j in range(inputs)} for _ in range(width)]
    bias = tuple(rng.choice((0, 0, 1, -5)) for _ in range(width)) if rng.random() < 0.3 else None
    return Affine(Matrix.of(rows, inputs), bias, rng.random() < 0.2)


def _random_layers(rng: random.Random, width: int, count: int, mantissa: int) -> list[Layer]:
    layers: list[Layer] = []
    for _ in range(count):
        match rng.randrange(4):
            case 0:
                power = rng.choice((-1, 1)) * rng.choice((1, 3, 10, 60, 100, 130, 980, 1030))
                layers += [diagonal(width, power), diagonal(width, -power)]
            case 1:
                layers.append(_random_affine(rng, width, width))
            case _:
                hidden = rng.randint(1, 3)
                layers.append(_random_block(rng, width, hidden, mantissa))
    return layers


def _random_block(rng: random.Random, width: int, hidden: int, mantissa: int) -> Residual:
    weight = lambda: rng.choice((0, 0, 1, 1, -1, 2, -2, 3, 1 << rng.randrange(mantissa // 2)))  # noqa: E731
    w1 = Matrix.of([{j: weight() for j in range(width)} for _ in range(hidden)], width)
    w2 = Matrix.of([{j: weight() for j in range(hidden)} for _ in range(width)], hidden)
    return Residual(w1, tuple(weight() for _ in range(hidden)), w2, tuple(weight() for _ in range(width)))
