"""KS25's main theorem: a Transformer with one averaging layer and O(sqrt(N)) parameters that stores N sequences.

First its parts put together (its contents, the division of its memories, the mixing of tokens), then three
constructions: `ks25`; `ks25-sparse`, whose averaging has O(n) connections, because a global token collects the sum and
broadcasts it; and `ks25-limited` with short weights, many small memories in a row instead of one with long words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isqrt

from byheart.build._base import Construction, Option, register
from byheart.build.ks25.layers import (
    PLAIN_STREAM,
    averaging,
    head_layer,
    input_map,
    label_layers,
    place,
    stream,
    token_layers,
)
from byheart.build.ks25.memorizer import Fields
from byheart.build.ks25.parts import (
    ATTENTION,
    DEPTH,
    SHARED,
    BuildStyle,
    Choice,
    ContextKeys,
    KeyLookup,
    PartLimit,
    class_labels,
    code_tokens,
    context_keys,
    measured_fields,
    needed,
    paper_fields,
)
from byheart.build.ks25.sequence_ids import TokenCode
from byheart.build.ks25.shapes import Stage, uniform_stages, without_input_map
from byheart.build.shared.wires import Form, affine, wire
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.errors import OptionError
from byheart.ir.layers import GlobalToken, Kind, Layer, Pattern
from byheart.ir.network import Decode, Network, Read, Readout
from byheart.ir.size import measure
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress
from byheart.theory import theorems
from byheart.theory.guarantees.ks25 import (
    NO_PAPER_DEPTH,
    SHAPES,
    context_part,
    least_depth,
    setting_of,
    shared_depth,
    star_connections,
    token_part,
    too_shallow,
)
from byheart.theory.theorems import Setting
from byheart.theory.upper import DENSE, groups, label_bits

# The theorem's width.
WIDTH = 14


@dataclass(frozen=True, eq=False)
class Contents:
    """The data to memorize: numbers for tokens, keys and labels for contexts."""

    dataset: Dataset
    style: BuildStyle
    setting: Setting
    code: TokenCode
    keys: ContextKeys
    labels: tuple[int, ...]

    @property
    def points(self) -> int:
        return self.dataset.inputs.points.count

    def note(self) -> str:
        """Describe how many tokens carry the sequence ids."""
        return f"{sum(label > 0 for label in self.code.labels)} of {self.points} tokens distinguish the sequences"


def contents_of(dataset: Dataset, style: BuildStyle, progress: Progress) -> Contents:
    """Lemma B.3 on the tokens, then keys for the contexts (phi, x, id)."""
    with progress.stage("numbering tokens and contexts", total=2) as stage:
        code = code_tokens(dataset, style)
        stage.advance()
        keys = context_keys(code.labels, code.line, code.sums, dataset, style)
        stage.advance()
    return Contents(dataset, style, setting_of(dataset), code, keys, class_labels(dataset))


def token_choice(dataset: Dataset, style: BuildStyle, hidden: int = DENSE, width: int = WIDTH) -> Choice:
    """How the token memory's words are divided: R_1 and C_phi of the proof, or as the data requires."""
    if not style.as_in_the_paper:
        limit = PartLimit(token_part(dataset, style.form), width)
        return lambda keys, labels: measured_fields(style, keys, labels, hidden, limit)
    setting = setting_of(dataset)
    bits = label_bits(theorems.token_labels(setting.N))
    return lambda keys, labels: paper_fields(keys, setting.N, setting.tokens.key_bits, bits)


def label_choice(dataset: Dataset, style: BuildStyle) -> Choice:
    """How the label memory's words are divided: R_2 and C of the proof, or as the data requires."""
    if not style.as_in_the_paper:
        limit = PartLimit(context_part(dataset, style.form), WIDTH)
        return lambda keys, labels: measured_fields(style, keys, labels, DENSE, limit)
    setting = setting_of(dataset)
    return lambda keys, labels: paper_fields(keys, setting.contexts, setting.attended.key_bits, label_bits(setting.C))


def memories_of(
    contents: Contents, token: Choice | None = None, label: Choice | None = None, piece: int | None = None
) -> tuple[KeyLookup, KeyLookup]:
    """The token memory and the label memory; `piece` is the number of keys per piece where bits are limited."""
    token = token or token_choice(contents.dataset, contents.style)
    label = label or label_choice(contents.dataset, contents.style)
    return (
        KeyLookup.of(contents.code.line.floors, contents.code.labels, token, piece),
        KeyLookup.of(contents.keys.keys, contents.labels, label, piece),
    )


def transformer(contents: Contents, token: KeyLookup, label: KeyLookup, mixing: tuple[Layer, ...]) -> list[Stage]:
    """E_in, token code, mixing, label memory, E_out."""
    style, code, keys = contents.style, contents.code, contents.keys
    return [
        ("E_in", (input_map(style, code.line),)),
        ("token code", token_layers(style, code.line, token.pieces, PLAIN_STREAM)),
        ("averaging", mixing),
        *label_stages(label_layers(style, keys.weights, keys.bias, label.pieces, PLAIN_STREAM)),
    ]


def in_lanes(contents: Contents, depth: int, attention: int = 1) -> tuple[Contents, KeyLookup, KeyLookup]:
    """Both memories split into lanes, so that the whole network, with its attention layers, is no deeper than
    `depth`."""
    style, code, keys = contents.style, contents.code, contents.keys
    token_need = needed(style, code.line.floors, code.labels)
    label_need = needed(style, keys.keys, contents.labels)
    found = shared_depth(depth, token_need, label_need, style.form, attention)
    if found is None:
        least = least_depth(token_need, style.form) + attention + least_depth(label_need, style.form)
        raise too_shallow(depth, f"{style.form} memories with keys of {token_need[1]} and {label_need[1]} bits", least)
    first, second = found
    style = replace(style, lanes=max(first.count, second.count))
    token = KeyLookup.in_lanes(style, code.line.floors, code.labels, first)
    label = KeyLookup.in_lanes(style, keys.keys, contents.labels, second)
    return replace(contents, style=style), token, label


def label_stages(layers: tuple[Layer, ...]) -> list[Stage]:
    """The label memory and, as its last layer, E_out."""
    return [("label memory", layers[:-1]), ("E_out", layers[-1:])]


def finished(dataset: Dataset, stages: Sequence[Stage], readout: Readout | None = None) -> Network:
    """The network of these stages, read as the task requires; label 0 is not a class, unless stated otherwise."""
    read = {Task.NEXT_TOKEN: Read.LAST, Task.SEQ_TO_SEQ: Read.EACH, Task.SET: Read.POOLED}[dataset.encoder.task]
    layers = tuple(layer for _, part in stages for layer in part)
    readout = readout or Readout(Decode.VALUE, classes=dataset.C, offset=1)
    return Network(layers, read, readout, tuple((name, len(part)) for name, part in stages))


FITTED, UNIFORM = SHAPES
SHAPE = Option("shape", str, FITTED, "uniform: attention and equal width in every block, as eq. (4) stores it", SHAPES)
INPUT_MAP = Option("input_map", bool, True, "E_in; without it (Remark 3.1) the stream is the token, d >= 10 numbers")
THEOREM = Ref("KS25", "Theorem B.1")
COROLLARY = Ref("KS25", "Corollary 4.1")


@register(
    "ks25",
    summary="one averaging layer between two bit-extracting memories: O(sqrt(N)) parameters, width 14",
    formula="ks25, residual",
    description="One averaging layer between two bit-extracting memories: a token memory gives few tokens a number "
    "whose sums distinguish rows, averaging computes the sum at every token, and a label memory looks the context up. "
    "The square root of N, and the reason why one attention layer is enough.",
    ref=THEOREM,
    tasks=(Task.NEXT_TOKEN, Task.SEQ_TO_SEQ),
    options=(*SHARED, ATTENTION, SHAPE, INPUT_MAP, DEPTH),
)
@implements(
    THEOREM,
    statement="N consistently labelled sequences are memorized by a Transformer of width 14 with one averaging layer "
    "and depth O(sqrt(N log N) + sqrt(N / log N)·log max(R, C)).",
    test="tests/build/ks25/test_ks25.py",
)
@implements(
    Ref("KS25", "Theorem 4.1"),
    statement="N consistently labelled sequences of (r, delta)-separated tokens are memorized by a "
    "Transformer with a single attention layer and O(sqrt(N)) parameters up to logarithms (Theorem B.1 without its "
    "constants).",
    test="tests/build/ks25/test_ks25.py",
)
@implements(
    COROLLARY,
    statement="One label per token: width 14 and depth O(sqrt(nN)) up to logarithms.",
    test="tests/build/ks25/test_ks25.py",
)
def build_ks25(
    dataset: Dataset,
    *,
    seed: int = 0,
    progress: Progress = SILENT,
    form: str = "residual",
    constants: str = "measured",
    attention: str = "uniform",
    shape: str = FITTED,
    input_map: bool = True,
    depth: int | None = None,
) -> Construction:
    """E_in, token code, averaging, label memory, E_out.

    The token code gives at most N - 1 tokens a positive integer phi, so that the sums of phi distinguish the sequences;
    averaging computes that sum at every token; (phi, x, sum) is the context, and the label memory looks it up.
    Departures from the proof: the head multiplies by n, so that the id is an integer; x is carried through the
    token memory, which needs it anyway, so the plain form has width 12 instead of 14.
    """
    style = BuildStyle.of(form, constants, seed)
    if depth is not None:
        _check_bounded(style, depth, shape, input_map)
    contents = contents_of(dataset, style, progress)
    if style.plain and (shape == UNIFORM or not input_map):
        raise OptionError("eq. (4) and Remark 3.1 are about blocks with skip connections: use form=residual")
    token, label = memories_of(contents)
    stages = transformer(contents, token, label, (averaging(style, Kind(attention), dataset.n),))
    if depth is not None and measure(finished(dataset, stages)).depth > depth:
        contents, token, label = in_lanes(contents, depth)
        stages = transformer(contents, token, label, (averaging(contents.style, Kind(attention), dataset.n),))
    if not input_map:
        stages = without_input_map(stages, contents.code.line, dataset.inputs.points)
    if shape == UNIFORM:
        stages = uniform_stages(stages, Kind(attention))
    network = finished(dataset, stages)
    return Construction(
        network,
        {
            "form": form,
            "constants": constants,
            "attention": attention,
            "shape": shape,
            "input_map": input_map,
            "depth": depth,
        },
        (contents.note(), f"token memory: {token.fields}; label memory: {label.fields}", *_shape_note(network, shape)),
    )


def _check_bounded(style: BuildStyle, depth: int, shape: str = FITTED, input_map: bool = True) -> None:
    """Lanes serve constants=measured, on a stream with one number per lane."""
    if style.as_in_the_paper:
        raise OptionError(f"depth={depth} needs constants=measured: {NO_PAPER_DEPTH}")
    if shape == UNIFORM:
        raise OptionError(
            f"depth={depth} needs shape={FITTED}: eq. (4) is guaranteed for one memory's stream of 10 and 14 hidden "
            "units in every block, and memories beside each other make both wider"
        )
    if not input_map:
        raise OptionError(
            f"depth={depth} needs an input map: without E_in the stream is the token, and has no channels for memories "
            "beside each other"
        )


def _shape_note(network: Network, shape: str) -> tuple[str, ...]:
    """For eq. (4)'s shape: the relation of its L to the measured depth."""
    if shape != UNIFORM:
        return ()
    size = measure(network)
    return (f"L = {size.blocks} blocks (KS25's depth), {size.depth} layers: attention and feed-forward in each",)


CONTEXT_ID, SEQUENCE_ID = "context id", "sequence id"


@implements(
    Ref("KS25", "Definition 4.1"),
    statement="E_in, the token code, one averaging layer and one linear map give every token of every sequence a "
    "context id; `byheart.contextual_mapping` measures its r and δ and proves them.",
    test="tests/memory/test_contextual.py",
)
def contextual_network(dataset: Dataset, *, seed: int = 0, constants: str = "measured") -> Network:
    """The first half of `ks25`: tokens to (context id, sequence id), for every token, with one averaging layer."""
    style = BuildStyle.of("residual", constants, seed)
    contents = contents_of(dataset, style, SILENT)
    token = KeyLookup.of(contents.code.line.floors, contents.code.labels, token_choice(dataset, style))
    names = stream(style)
    key = {names[place(style, role)]: weight for role, weight in contents.keys.weights.items()}
    ids = {CONTEXT_ID: Form(key, contents.keys.bias), SEQUENCE_ID: wire(names[place(style, "id")])}
    stages: list[Stage] = [
        ("E_in", (input_map(style, contents.code.line),)),
        ("token code", token_layers(style, contents.code.line, token.pieces, PLAIN_STREAM)),
        ("averaging", (averaging(style, Kind.UNIFORM, dataset.n),)),
        ("context id", (affine(names, ids, relu=False),)),
    ]
    return finished(dataset, stages, Readout(Decode.ARGMAX, classes=len(ids)))


REMARK = Ref("KS25", "Remark 4.5")


def star(style: BuildStyle, kind: Kind, n: int) -> tuple[Layer, ...]:
    """The sum of phi in the id of every token, through one more token whose phi is 0.

    Layer 1, every token to itself and all to the global one:   id_k = phi_k,   id_g = (sum of phi) / (n + 1).
    Layer 2, every token to itself and to the global one, adds the mean of a·id + b·phi over the two:
        id_k = phi_k + (a·phi_k + b·phi_k + a·(sum of phi) / (n + 1)) / 2 = sum of phi   for a = 2(n + 1), b = -a - 2.
    """
    hub = GlobalToken((0,) * len(stream(style)))
    a = 2 * (n + 1)
    collect = head_layer(style, kind, Pattern.STAR_IN, {"phi": 1})
    hand_out = head_layer(style, kind, Pattern.STAR_OUT, {"id": a, "phi": -a - 2})
    return hub, collect, hand_out


@register(
    "ks25-sparse",
    summary="ks25 with two attention layers over a star: 4n + 2 connections instead of n^2",
    formula="ks25-sparse, residual",
    description="ks25 with a global token: tokens attend to themselves and to it, so attention connects O(n) pairs "
    "instead of n².",
    ref=REMARK,
    tasks=(Task.NEXT_TOKEN, Task.SEQ_TO_SEQ),
    options=(*SHARED, ATTENTION, DEPTH),
)
@implements(
    REMARK,
    statement="Two attention layers and one additional token replace averaging, with O(n) connections.",
    test="tests/build/ks25/test_ks25.py",
)
def build_ks25_sparse(
    dataset: Dataset,
    *,
    seed: int = 0,
    progress: Progress = SILENT,
    form: str = "residual",
    constants: str = "measured",
    attention: str = "uniform",
    depth: int | None = None,
) -> Construction:
    """`ks25` with its averaging layer replaced by `star`; the token joins after the token code.

    The connections are those of the layers' patterns, which evaluation follows: no weight could break them.
    """
    style = BuildStyle.of(form, constants, seed)
    if depth is not None:
        _check_bounded(style, depth)
    contents = contents_of(dataset, style, progress)
    token, label = memories_of(contents)
    network = finished(dataset, transformer(contents, token, label, star(style, Kind(attention), dataset.n)))
    if depth is not None and measure(network).depth > depth:
        contents, token, label = in_lanes(contents, depth, attention=2)
        mixing = star(contents.style, Kind(attention), dataset.n)
        network = finished(dataset, transformer(contents, token, label, mixing))
    return Construction(
        network,
        {"form": form, "constants": constants, "attention": attention, "depth": depth},
        (contents.note(), f"{star_connections(dataset.n)} connections, averaging over all would have {dataset.n**2}"),
    )


SHORT_WEIGHTS = Ref("KS25", "Theorem F.1")
# The width of Theorem F.1.
LIMITED_WIDTH = 15
BITS = Option("bits_parameter", int, None, "B from 1 (shortest weights) to √N (fewest parameters)", optional=True)
MOST = Option("max_bits", int, None, "no weight longer than this; chooses B", optional=True)


def limited_choices(contents: Contents, B: int) -> tuple[Choice, Choice]:
    """Words of K entries as Lemma C.1 has them for B² points; MEASURED uses fewer where that costs less."""
    style, setting = contents.style, contents.setting
    entries = groups(B * B)[1]
    if not style.as_in_the_paper:
        parts = (part(contents.dataset, style.form) for part in (token_part, context_part))
        tokens, contexts = (_within(style, PartLimit(part, LIMITED_WIDTH, B * B), entries) for part in parts)
        return tokens, contexts
    token, label = setting.tokens.key_bits, setting.attended.key_bits
    token_labels = label_bits(theorems.token_labels(setting.N))
    return (
        lambda keys, labels: Fields(entries, token, token_labels),
        lambda keys, labels: Fields(entries, label, label_bits(setting.C)),
    )


def _within(style: BuildStyle, limit: PartLimit, most: int) -> Choice:
    return lambda keys, labels: measured_fields(style, keys, labels, DENSE, limit, most)


def limited(contents: Contents, B: int, kind: Kind) -> tuple[Network, KeyLookup, KeyLookup]:
    """The network whose memories are built in pieces of B² keys (Lemma F.1)."""
    token, label = memories_of(contents, *limited_choices(contents, B), piece=B * B)
    mixing = (averaging(contents.style, kind, contents.dataset.n),)
    return finished(contents.dataset, transformer(contents, token, label, mixing)), token, label


def largest_parameter(contents: Contents, kind: Kind, max_bits: int) -> int:
    """The largest B whose network has no weight longer than `max_bits`; longer words mean fewer parameters."""

    def bits(B: int) -> int:
        return measure(limited(contents, B, kind)[0]).max_bits

    shortest = bits(1)
    if shortest > max_bits:
        raise OptionError(
            f"no weight of at most {max_bits} bits: this data needs {shortest} bits even with bits_parameter=1 "
            f"(its keys have that length); use max_bits={shortest} or more"
        )
    low, high = 1, isqrt(contents.setting.N)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if bits(middle) <= max_bits else (low, middle - 1)
    return low


def chosen_parameter(contents: Contents, kind: Kind, bits_parameter: int | None, max_bits: int | None) -> int:
    """B as requested, or the largest that keeps within `max_bits`, or √N."""
    most = isqrt(contents.setting.N)
    if bits_parameter is not None and max_bits is not None:
        raise OptionError("give bits_parameter or max_bits, not both: max_bits chooses the parameter")
    if max_bits is not None:
        return largest_parameter(contents, kind, max_bits)
    if bits_parameter is not None and not 1 <= bits_parameter <= most:
        raise OptionError(
            f"bits_parameter={bits_parameter} is out of range: for N = {contents.setting.N} sequences take "
            f"1 to √N, here {most}"
        )
    return most if bits_parameter is None else bits_parameter


@register(
    "ks25-limited",
    summary="ks25 with short weights: pieces of B^2 keys, O(N/B) parameters of O(B) bits, width 15",
    formula="ks25, residual",
    description="ks25 with a limit on the bits of every weight: shorter words, more layers.",
    ref=SHORT_WEIGHTS,
    tasks=(Task.NEXT_TOKEN,),
    options=(*SHARED, ATTENTION, BITS, MOST),
)
@implements(
    SHORT_WEIGHTS,
    statement="For B in [1, sqrt(N)]: width 15, depth O(N/B) and bit complexity O(B), up to logarithms.",
    test="tests/build/ks25/test_ks25.py",
)
def build_ks25_limited(
    dataset: Dataset,
    *,
    seed: int = 0,
    progress: Progress = SILENT,
    form: str = "residual",
    constants: str = "measured",
    attention: str = "uniform",
    bits_parameter: int | None = None,
    max_bits: int | None = None,
) -> Construction:
    """`ks25` with both memories built in pieces that share x and y; the projection is done once."""
    style, kind = BuildStyle.of(form, constants, seed), Kind(attention)
    contents = contents_of(dataset, style, progress)
    B = chosen_parameter(contents, kind, bits_parameter, max_bits)
    network, token, label = limited(contents, B, kind)
    return Construction(
        network,
        {"form": form, "constants": constants, "attention": attention, "bits_parameter": B, "max_bits": max_bits},
        (contents.note(), f"B = {B}: {len(token.pieces)} and {len(label.pieces)} pieces of at most {B * B} keys"),
    )
