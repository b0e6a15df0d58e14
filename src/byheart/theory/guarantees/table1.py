"""The guarantees of the constructions of KS25's Table 1, from the data alone.

Feed-forward networks read the whole row: V distinct rows of D = n·d numbers (n·e where symbols get an embedding of
dimension e). Norms and distances of rows follow from those of tokens: ‖row‖² ≤ n·r², and different rows are δ apart.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.errors import OptionError
from byheart.exact.number import Values
from byheart.ir.size import Claim
from byheart.paper import Ref
from byheart.theory.guarantees import choice, guarantees
from byheart.theory.guarantees.ks25 import (
    LANE_FORMULAS,
    MEASURED_FORMULAS,
    PAPER_FORMULAS,
    Part,
    bounded_by,
    lanes_guarantee,
    line_key_bits,
)
from byheart.theory.theorems import output_map
from byheart.theory.upper import (
    DENSE,
    PLAIN_WIDTH,
    STREAM,
    Guarantee,
    PointSet,
    dense_blocks,
    dense_layers,
    feed_forward_memory,
    input_map,
    label_bits,
    lanes_within,
)

ONE = Fraction(1)
FLAT = "the network reads the whole row of n·d numbers at once"
SEPARATED_ROWS = "rows are separated"
THRESHOLDS = "threshold units"
NONZERO = "no token is the zero vector"
SEPARATED = "the head's numbers distinguish all contexts"
INDEPENDENT = "the heads' features of the rows are linearly independent"
WIDEST_EMBEDDING = 16  # mahdavi24: more dimensions would make the table long and the heads few
ROUND_UNITS = (2, 4)  # kim23: hidden units of the two blocks of a round
PARK_FORMS = ("residual", "plain")  # park21; files that name none have the first
PARK_STREAM, LOOK_UNITS, SCAN_UNITS = 6, 2, 10  # its blocks: numbers per row; hidden units of the two kinds
PARK_WIDTH, STEP_PARAMETERS = 3, 10  # its plain layers: units; entries of a step, 1 -> 3 -> 1 units with biases


@dataclass(frozen=True, eq=False)
class FlatFacts:
    """The distinct rows as points: how many, of how many numbers, and the cloud that they are."""

    points: Values
    cloud: PointSet

    @staticmethod
    def of(dataset: Dataset) -> FlatFacts:
        _only(dataset, Task.NEXT_TOKEN)
        found, vectors = dataset.separation, dataset.inputs.points
        index = np.unique(dataset.inputs.index, axis=0)
        table = vectors.numerators[index].reshape(len(index), -1)
        varies = (table != table[0]).any(axis=0)
        cloud = PointSet(len(index), table.shape[1], dataset.n * found.r_squared, found.delta_squared or ONE)
        return FlatFacts(Values(table[:, varies] if varies.any() else table[:, :1], vectors.denominator), cloud)

    @property
    def count(self) -> int:
        return self.cloud.count

    @property
    def dimension(self) -> int:
        return self.cloud.dimension

    def part(self, classes: int, form: str) -> Part:
        """The label memory of the rows; coordinates that never change do not lengthen the keys."""
        keys = max(line_key_bits(self.points, self.cloud), 3 if form == "residual" else 2)
        return Part(self.count, keys, label_bits(classes))


def _only(dataset: Dataset, *tasks: Task) -> None:
    if dataset.encoder.task not in tasks:
        raise OptionError(f"nothing is guaranteed for the task {dataset.encoder.task}")


def _sizes(found: Guarantee) -> dict[str, int]:
    return {
        "width": found.width,
        "depth": found.depth,
        "parameters": found.parameters,
        "max_bits": found.max_bits,
    }


def embedding_entries(dataset: Dataset, dimension: int, placed: bool) -> int:
    """Numbers in the table of a generic embedding; 0 where tokens are vectors."""
    encoder = dataset.encoder
    if encoder.symbols is None:
        return 0
    return (len(encoder.symbols) + 1) * (encoder.length if placed and encoder.positions else 1) * dimension


@guarantees("nilsson65")
def nilsson65(dataset: Dataset, options: Mapping[str, Any]) -> Claim:
    """N - 1 hidden units that read the whole row."""
    flat = FlatFacts.of(dataset)
    hidden, cloud = max(1, flat.count - 1), flat.cloud
    # biases lie on the line, with the fraction bits of data and weights; each step turns the slope by at most 4·C
    tokens = dataset.inputs.points.denominator.bit_length()
    slopes = (4 * dataset.C * flat.count).bit_length()
    return Claim(
        Ref("N65", "one hidden layer"),
        {
            "width": hidden,
            "depth": 1,
            "parameters": hidden * (flat.dimension + 2) + 1,
            "max_bits": 2 * max(cloud.key_bits, cloud.projection_bits) + tokens + slopes,
        },
        {
            "width": "N - 1 hidden units",
            "depth": "one hidden layer",
            "parameters": "(N - 1)(n·d + 2) + 1",
            "max_bits": "a key and a weight of Lemma C.2, the data's fraction bits, and log2(4CN)",
        },
        assumptions=(FLAT,),
    )


@guarantees("baum88")
def baum88(dataset: Dataset, options: Mapping[str, Any]) -> Claim:
    """Two threshold units for every row outside the largest class: valid without general position.

    Baum's 2·⌈N_c / D⌉ per class needs rows in general position, which symbols never are; a note of the construction
    states the number of hyperplanes in the theorem.
    """
    _only(dataset, Task.NEXT_TOKEN)
    e = options.get("embedding", 8)
    if type(e) is not int or e > 1 << 20:
        raise OptionError(f"embedding={e!r} is not a dimension")
    symbols = dataset.encoder.symbols is not None
    dimension = dataset.n * (max(1, e) if symbols else dataset.d)
    _, first = np.unique(dataset.inputs.index, axis=0, return_index=True)
    sizes = Counter(dataset.labels[first].tolist())
    hidden = max(1, 2 * (sum(sizes.values()) - max(sizes.values())))
    embedded = embedding_entries(dataset, max(1, e), placed=False)
    return Claim(
        Ref("B88", "Theorem 1"),
        {"width": hidden, "depth": 1, "parameters": hidden * (dimension + 2) + 1 + embedded},
        {
            "width": "h = 2 for every row outside the largest class: a hyperplane contains at least one row",
            "depth": "one hidden layer",
            "parameters": "h(n·d + 1) + h + 1, and the embedding of symbols",
        },
        assumptions=(FLAT, THRESHOLDS),
    )


@guarantees("vardi22")
def vardi22(dataset: Dataset, options: Mapping[str, Any]) -> Claim:
    """V22, Theorem 3.1, as KS25's Lemma C.1 counts it."""
    form = choice(options, "form", "residual", "plain")
    paper = choice(options, "constants", "measured", "paper") == "paper"
    flat, width = FlatFacts.of(dataset), PLAIN_WIDTH if form == "plain" else DENSE
    if paper:
        found = feed_forward_memory(flat.cloud, flat.count, dataset.C, form=form, width=width)
    else:
        part = flat.part(dataset.C, form)
        bits = max(flat.cloud.projection_bits, part.line_bits)
        found = part.guarantee(form, width).then(input_map(flat.dimension, form, width, bits))
    formulas = PAPER_FORMULAS if paper else MEASURED_FORMULAS
    bounds = _sizes(found.then(output_map(width)))
    depth = bounded_by(options, paper)
    if depth is not None and depth < found.depth:
        part = flat.part(dataset.C, form)
        lanes = lanes_within(depth, part.entries, part.key_bits, part.label_bits, form)
        count = part.entries if lanes is None else lanes.count  # keys of the data may be shorter than guaranteed
        bits = max(flat.cloud.projection_bits, part.line_bits)
        bounds, formulas = lanes_guarantee(depth, count, flat.dimension, form, bits), LANE_FORMULAS
    return Claim(Ref("V22", "Theorem 3.1"), bounds, dict(formulas), assumptions=(FLAT, SEPARATED_ROWS))


@dataclass(frozen=True)
class Cut:
    """park21: K keys per group, and labels per word of the table: the choice with the fewest parameters."""

    group: int
    places: int


def cheapest_cut(count: int, bits: int, form: str, groups: Sequence[int] | None = None) -> Cut:
    """Return the K and the labels per word that need the fewest parameters; K grows like N^(1/3).

    `groups` lists the K to try; by default every K up to `count`.

    >>> cheapest_cut(1000, 1, "plain").group, cheapest_cut(8000, 1, "plain").group
    (5, 10)
    """
    look, scan = _step_costs(bits, form)

    def places(group: int) -> int:
        return max(1, round(math.sqrt(table_length(count, group) * look / scan)))

    def cost(group: int) -> int:
        words = -(-table_length(count, group) // places(group))
        return (-(-count // group) + words) * look + places(group) * scan

    best = min(groups or range(1, count + 1), key=cost)
    return Cut(best, places(best))


def _step_costs(bits: int, form: str) -> tuple[int, int]:
    """Parameters of one step (a group, a word) and of reading one position of a word."""
    if form == "plain":
        return STEP_PARAMETERS, dense_layers(_place_layers(bits), PARK_WIDTH)
    return dense_blocks(1, PARK_STREAM, LOOK_UNITS), bits * dense_blocks(1, PARK_STREAM, SCAN_UNITS)


def _place_layers(bits: int) -> int:
    """Every bit of a word is subtracted twice, in two layers; three layers compare the position."""
    return 4 * bits + 3


def table_length(count: int, group: int) -> int:
    """M = K·N + 1 cells always leave a shift without collision."""
    return group * count + 1


def longest_table(count: int, group: int) -> int:
    """Return the most cells that the builder tries, where keys of one group meet modulo M."""
    least = table_length(count, group)
    return least + least // 8 + 64


@guarantees("park21")
def park21(dataset: Dataset, options: Mapping[str, Any]) -> Claim:
    """P21, Theorem 1, in our reconstruction: groups, halvings and words are steps, then bits are read one by one."""
    form = choice(options, "form", *PARK_FORMS)
    flat = FlatFacts.of(dataset)
    bits = max(1, (dataset.C - 1).bit_length())
    cut = cheapest_cut(flat.count, bits, form)
    claim = _park_plain if form == "plain" else _park_residual
    bounds, formulas = claim(dataset, flat, cut, bits)
    return Claim(Ref("P21", "Theorem 1"), bounds, formulas, assumptions=(FLAT, SEPARATED_ROWS))


def _park_plain(dataset: Dataset, flat: FlatFacts, cut: Cut, bits: int) -> tuple[dict[str, int], dict[str, str]]:
    """Width 3. Offsets that keep steps ascending (shifts by M, words by their length) are halved away, too."""
    key_bits = line_key_bits(flat.points, flat.cloud)
    groups, longest = -(-flat.count // cut.group), longest_table(flat.count, cut.group)
    steps, tags = _park_steps(flat.count, key_bits, cut)
    reads = _place_layers(bits) * cut.places + 2 * bits
    grid = max(2 * key_bits, flat.cloud.projection_bits) + dataset.inputs.points.denominator.bit_length()
    word = cut.places * bits + cut.places.bit_length() + tags
    found = Guarantee(
        PARK_WIDTH,
        1 + 2 * steps + reads,
        2 + STEP_PARAMETERS * steps + dense_layers(reads, PARK_WIDTH) + flat.dimension,
        grid + max(word, key_bits, (longest * groups).bit_length()) + 2,
    )
    return _sizes(found.then(output_map(PARK_WIDTH))), {
        "width": "3, the theorem's",
        "depth": "1 + 2·(N/K groups + log2(R/M + N/K) halvings + M/B words + log2(M/B) halvings) + (4c + 3)·B + 2c, "
        "M up to 9/8·(K·N + 1) + 64",
        "parameters": "10 per group, word and halving, 12 per layer after them; n·d for the input",
        "max_bits": "a word and the number of words, or a key, with the fraction bits of data and projection",
    }


def _park_steps(count: int, key_bits: int, cut: Cut) -> tuple[int, int]:
    """Return the steps of the plain form (groups, halvings, words, halvings of the word's number) and the last kind."""
    groups, words = -(-count // cut.group), -(-longest_table(count, cut.group) // cut.places)
    halvings = ((1 << key_bits) // table_length(count, cut.group) + groups + 1).bit_length()
    tags = (words + 1).bit_length()
    return groups + halvings + words + tags, tags


def park_parameters(cloud: PointSet, classes: int) -> int:
    """Return the parameters of the plain reconstruction for any rows of such a cloud, near the cheapest K.

    >>> park_parameters(PointSet(1000, 5, 25, 1), 2)
    6681
    """
    bits = max(1, (classes - 1).bit_length())
    root = round(cloud.count ** (1 / 3))
    near = sorted({min(cloud.count, max(1, root * k // 32)) for k in range(4, 97)})
    cut = cheapest_cut(cloud.count, bits, "plain", near)
    steps, _ = _park_steps(cloud.count, cloud.key_bits, cut)
    reads = _place_layers(bits) * cut.places + 2 * bits
    ends = cloud.dimension + output_map(PARK_WIDTH).parameters
    return 2 + STEP_PARAMETERS * steps + dense_layers(reads, PARK_WIDTH) + ends


def _park_residual(dataset: Dataset, flat: FlatFacts, cut: Cut, bits: int) -> tuple[dict[str, int], dict[str, str]]:
    modulus = longest_table(flat.count, cut.group)
    halvings = ((1 << line_key_bits(flat.points, flat.cloud)) // table_length(flat.count, cut.group) + 1).bit_length()
    looks = -(-flat.count // cut.group) + halvings + -(-modulus // cut.places)
    scans = cut.places * bits + 4
    fractions = dataset.inputs.points.denominator.bit_length()
    found = Guarantee(
        max(PARK_STREAM, SCAN_UNITS),
        looks + scans,
        dense_blocks(looks, PARK_STREAM, LOOK_UNITS)
        + dense_blocks(scans, PARK_STREAM, SCAN_UNITS)
        + PARK_STREAM * flat.dimension,
        max(cut.places * bits + 3, 2 * max(flat.cloud.key_bits, flat.cloud.projection_bits) + fractions + 2),
    ).then(output_map(PARK_STREAM))
    return _sizes(found), {
        "width": "ten hidden units on a stream of six",
        "depth": "N/K groups + log2(R/M) halvings + M/B words + B·c bits + 4, M up to 9/8·(K·N + 1) + 64",
        "parameters": "32 per group, halving and word, 136 per bit; 6·n·d for the input",
        "max_bits": "B·c + 3, or a key with the fraction bits of data and projection",
    }


def _ranked(dataset: Dataset, soft: bool) -> tuple[PointSet, PointSet, int, int]:
    """kim23: the tokens' cloud, the contexts' (own token, ranked values and counts), bits of a token's key, and bits by
    which numbers are stretched: softmax wants whole ones, so a line is multiplied by its denominator."""
    n, found, points = dataset.n, dataset.separation, dataset.inputs.points
    tokens = PointSet(points.count, dataset.d, found.r_squared, found.delta_squared or ONE)
    key_bits = line_key_bits(points, tokens)
    own = points.denominator.bit_length() + tokens.projection_bits if soft else 0
    top = 1 << (key_bits + own)
    ids = PointSet(len(dataset.contexts), 2 * n + 1, (2 * n + 1) * (top + n) ** 2, 1)
    return tokens, ids, key_bits, own + ids.projection_bits if soft else 0


def ranked_part(dataset: Dataset, soft: bool) -> Part:
    """kim23: the label memory of the contexts."""
    _, ids, _, stretched = _ranked(dataset, soft)
    return Part(len(dataset.contexts), max(3, ids.key_bits + stretched), label_bits(dataset.C))


@guarantees("kim23")
def kim23(dataset: Dataset, options: Mapping[str, Any]) -> Claim:
    """K23, Theorem 3.1: n rounds of two attention layers, then Lemma C.1's memory of the contexts."""
    _only(dataset, Task.SEQ_TO_SEQ, Task.NEXT_TOKEN)
    soft = choice(options, "attention", "hardmax", "softmax") == "softmax"
    n = dataset.n
    tokens, ids, key_bits, stretched = _ranked(dataset, soft)
    per_round = 4 * STREAM + 2 * STREAM + sum(dense_blocks(1, hidden=units) for units in ROUND_UNITS)
    rounds = Guarantee(
        STREAM,
        4 * n + 1,
        n * per_round + dense_blocks(1, hidden=1),
        max(ids.projection_bits, 2 * ids.key_bits) + stretched + 1,
    )
    exit_map = Guarantee(1, 0, dataset.C * (STREAM + 1), 2 * dataset.C.bit_length()) if soft else output_map(DENSE)
    entrance = input_map(dataset.d, "residual", DENSE, max(tokens.projection_bits, 2 * key_bits) + stretched)
    total = ranked_part(dataset, soft).guarantee("residual", DENSE).then(rounds, entrance, exit_map)
    return Claim(
        Ref("K23", "Theorem 3.1"),
        {**_sizes(total), "attention_layers": 2 * n},
        {
            "attention_layers": "2n",
            "parameters": "n rounds of constant size, the label memory of Lemma C.1 on the contexts, and both maps",
            "depth": "4n + 1, and the label memory of Lemma C.1",
        },
        assumptions=("tokens are separated",),
    )


@guarantees("ks24")
def ks24(dataset: Dataset, options: Mapping[str, Any]) -> Claim:
    """KS24, Theorem 1: one head of rank one, and a hidden unit for every step between contexts."""
    _only(dataset, Task.SEQ_TO_SEQ, Task.NEXT_TOKEN)
    d = dataset.d if dataset.encoder.symbols is None else 1
    hidden = max(1, len(dataset.contexts) - 1)
    embedded = embedding_entries(dataset, 1, placed=True)
    return Claim(
        Ref("KS24", "Theorem 1"),
        {
            "width": max(hidden, d),
            "depth": 3,
            "attention_layers": 1,
            "parameters": 4 * d * d + (d + 2) * hidden + 1 + 2 * dataset.C + embedded,
        },
        {
            "width": "contexts - 1 hidden units, at most nN - 1",
            "depth": "one attention layer, one hidden layer, one output layer",
            "parameters": "4d² + (d + 2)(contexts - 1) + 1, logits 2C, and the embedding of symbols",
        },
        assumptions=(NONZERO, SEPARATED, "parameters of any length"),
    )


def head_count(contexts: int, n: int, dimension: int) -> int:
    """mahdavi24: H = ⌈(N - 1) / (r - 1)⌉ with r = min(n, d); one head where a row is one token, or r is 1.

    >>> head_count(100, 8, 8), head_count(1, 8, 8), head_count(100, 1, 8)
    (15, 1, 1)
    """
    rank = min(n, dimension)
    if n == 1 or contexts == 1:
        return 1
    return max(1, -(-(contexts - 1) // max(1, rank - 1)))


def head_dimension(dataset: Dataset) -> int:
    """mahdavi24: numbers per token; symbols get a dimension per token of a row, up to 16 (per point if n = 1)."""
    if dataset.encoder.symbols is None:
        return dataset.d
    return min(max(2, dataset.n), WIDEST_EMBEDDING) if dataset.n > 1 else dataset.inputs.points.count


@guarantees("mahdavi24")
def mahdavi24(dataset: Dataset, options: Mapping[str, Any]) -> Claim:
    """MA24, Theorem 1: H heads of size r, no feed-forward layer."""
    _only(dataset, Task.NEXT_TOKEN)
    m, contexts = head_dimension(dataset), len(dataset.contexts)
    size = m if dataset.n == 1 else max(1, min(dataset.n, m))
    heads = head_count(contexts, dataset.n, m)
    front = embedding_entries(dataset, m + 1, placed=True) or (m + 1) * m
    return Claim(
        Ref("MA24", "Theorem 1"),
        {
            "width": max(m + 1, heads * size),
            "depth": 1,
            "attention_layers": 1,
            "parameters": heads * 4 * size * (m + 1) + dataset.C * (m + 2) + front,
        },
        {
            "width": "heads times head size",
            "depth": "one attention layer",
            "parameters": "H·4r(d + 1), H = ceil((contexts - 1) / (r - 1)), r = min(n, d), H = 1 if r = 1; "
            "maps C(d + 2) and E_in",
        },
        assumptions=(INDEPENDENT, "parameters of any length"),
    )
