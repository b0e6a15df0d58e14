"""ks25 with short weights: many small memories in a row instead of one with long words."""

from __future__ import annotations

from math import isqrt

from byheart.build._base import Construction, Option, register
from byheart.build.ks25.fields import Room, measured_fields
from byheart.build.ks25.layers import averaging
from byheart.build.ks25.memorizer.key_groups import Fields
from byheart.build.ks25.options import ATTENTION, SHARED, Style
from byheart.build.ks25.parts import Choice, Lookup
from byheart.build.ks25.transformer import Contents, contents_of, memories_of, transformer
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.errors import OptionError
from byheart.ir.layers import Kind
from byheart.ir.network import Network
from byheart.ir.size import measure
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress
from byheart.theory import theorems
from byheart.theory.promises.ks25 import context_part, token_part
from byheart.theory.upper import DENSE, groups, label_bits

THEOREM = Ref("KS25", "Theorem F.1")
WIDTH = 15
BITS = Option("bits_parameter", int, None, "B from 1 (shortest weights) to √N (fewest parameters)", optional=True)
MOST = Option("max_bits", int, None, "no weight longer than this; chooses B", optional=True)


def limited_choices(contents: Contents, B: int) -> tuple[Choice, Choice]:
    """Words of K entries as Lemma C.1 has them for B² points; MEASURED takes fewer where that costs less."""
    style, setting = contents.style, contents.setting
    entries = groups(B * B)[1]
    if not style.as_in_the_paper:
        parts = (part(contents.dataset, style.form) for part in (token_part, context_part))
        tokens, contexts = (_within(style, Room(part, WIDTH, B * B), entries) for part in parts)
        return tokens, contexts
    token, label = setting.tokens.key_bits, setting.attended.key_bits
    token_labels = label_bits(theorems.token_labels(setting.N))
    return (
        lambda keys, labels: Fields(entries, token, token_labels),
        lambda keys, labels: Fields(entries, label, label_bits(setting.C)),
    )


def _within(style: Style, room: Room, most: int) -> Choice:
    return lambda keys, labels: measured_fields(style, keys, labels, DENSE, room, most)


def limited(contents: Contents, B: int, kind: Kind) -> tuple[Network, Lookup, Lookup]:
    """The network whose memories are built in pieces of B² keys (Lemma F.1)."""
    token, label = memories_of(contents, *limited_choices(contents, B), piece=B * B)
    mixing = (averaging(contents.style, kind, contents.dataset.n),)
    return transformer(contents, token, label, mixing), token, label


def largest_parameter(contents: Contents, kind: Kind, max_bits: int) -> int:
    """The largest B whose network has no weight longer than `max_bits`; longer words mean fewer parameters."""

    def bits(B: int) -> int:
        return measure(limited(contents, B, kind)[0]).max_bits

    shortest = bits(1)
    if shortest > max_bits:
        raise OptionError(
            f"no weight of at most {max_bits} bits: this data needs {shortest} bits even with bits_parameter=1 "
            f"(its keys have that length); ask for max_bits={shortest} or more"
        )
    low, high = 1, isqrt(contents.setting.N)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if bits(middle) <= max_bits else (low, middle - 1)
    return low


def chosen_parameter(contents: Contents, kind: Kind, bits_parameter: int | None, max_bits: int | None) -> int:
    """B as asked for, or the largest that keeps within `max_bits`, or √N."""
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
    words="ks25 with a limit on the bits of every weight: shorter words, more layers.",
    ref=THEOREM,
    tasks=(Task.NEXT_TOKEN,),
    options=(*SHARED, ATTENTION, BITS, MOST),
)
@implements(
    THEOREM,
    statement="For B in [1, sqrt(N)]: width 15, depth O(N/B) and bit complexity O(B), up to logarithms.",
    test="tests/build/ks25/test_limited.py",
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
    style, kind = Style.of(form, constants, seed), Kind(attention)
    contents = contents_of(dataset, style, progress)
    B = chosen_parameter(contents, kind, bits_parameter, max_bits)
    network, token, label = limited(contents, B, kind)
    return Construction(
        network,
        {"form": form, "constants": constants, "attention": attention, "bits_parameter": B, "max_bits": max_bits},
        (contents.note(), f"B = {B}: {len(token.pieces)} and {len(label.pieces)} pieces of at most {B * B} keys"),
    )
