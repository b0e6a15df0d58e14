"""What the writers of quantized formats share: the registry, scales, and the choice of matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from byheart.checkpoints.dtypes import rounded
from byheart.checkpoints.proof.storage import Array
from byheart.errors import OptionError

Stored: TypeAlias = tuple[str, Array]  # a type of safetensors, and the numbers or codes
Parts: TypeAlias = dict[str, Stored]  # name of a part -> how it is stored
READERS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")  # of a normed stream
GATED = ("granite", "llama", "mistral", "olmo2", "qwen2", "qwen3", "smollm3")  # every matrix of a layer is one Linear


@dataclass(frozen=True)
class Format:
    """A quantized format.

    Attributes:
        name: After `--quantize`.
        summary: One line of help.
        architectures: Hosts whose matrices the format holds; docs/quantized.md has those that an engine recited.
        flavour: Of the fixture's design, unless another is chosen: `quantized` tolerates errors of weights.
        multiple: The sizes of matrices are multiples of this.
        encode: From a matrix's name and numbers to its stored parts; None leaves the matrix as it is.
        settings: From the names of modules that are left as they are to quantization_config.
        chosen: Which tensors are quantized, by name.
        flavours: Of single hosts, where they differ.
    """

    name: str
    summary: str
    architectures: tuple[str, ...]
    flavour: str
    multiple: int
    encode: Callable[[str, Array], Parts | None]
    settings: Callable[[Sequence[str]], dict[str, Any]]
    chosen: Callable[[str], bool]
    flavours: Mapping[str, str] = field(default_factory=dict)

    def flavour_of(self, architecture: str) -> str:
        """Return the flavour of a host's fixture.

        Raises:
            OptionError: No engine's loader was seen to read this host in this format.
        """
        if architecture not in self.architectures:
            known = ", ".join(self.architectures)
            raise OptionError(f"--quantize {self.name}: {architecture} is not supported; these are: {known}")
        return self.flavours.get(architecture, self.flavour)


_FORMATS: dict[str, Format] = {}


def add(wanted: Format) -> Format:
    """Register a format."""
    _FORMATS[wanted.name] = wanted
    return wanted


def formats() -> dict[str, Format]:
    """Return name -> format."""
    return dict(sorted(_FORMATS.items()))


def format_of(name: str) -> Format:
    """Return the format of a name.

    Raises:
        OptionError: There is none.
    """
    if name not in _FORMATS:
        raise OptionError(f"unknown quantized format {name!r}; known: {', '.join(formats())}")
    return _FORMATS[name]


def without_anchors(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Return the tensors without the weights that read a channel which a norm multiplies by 0.

    The flavour `quantized` has such weights, twice as large as others, for formats that scale 32 weights by the largest
    of them. Here they only take codes from the others.

    >>> norm, matrix = np.array([1.0, 0.0]), np.ones((2, 2))
    >>> layer = {"layers.0.input_layernorm.weight": norm, "layers.0.self_attn.q_proj.weight": matrix}
    >>> without_anchors(layer)["layers.0.self_attn.q_proj.weight"].tolist()
    [[1.0, 0.0], [1.0, 0.0]]
    """
    found = dict(tensors)
    norms = {"self_attn": "input_layernorm", "mlp": "post_attention_layernorm"}
    for name in tensors:
        layer, branch, module = ["", "", *name.removesuffix(".weight").rsplit(".", 2)][-3:]
        # Where norms follow the branches, a layer has no input_layernorm.
        reads = module in READERS and f"{layer}.input_layernorm.weight" in tensors
        norm = tensors.get(f"{layer}.{norms.get(branch, '')}.weight") if reads else None
        if norm is not None:
            found[name] = np.where(norm == 0, 0.0, tensors[name])
    return found


def projections(name: str) -> bool:
    """Return whether a tensor is the matrix of a projection in a layer.

    >>> projections("model.layers.0.mlp.up_proj.weight"), projections("model.layers.0.mlp.gate.weight")
    (True, False)
    """
    module = name.removesuffix(".weight")
    return ".layers." in name and name.endswith(".weight") and module.endswith(("_proj", "_proj_with_mqa"))


def scales_of(groups: Array, largest: int, least: int) -> Array:
    """Choose a scale for every row of `groups`, so that codes lie between -least and largest.

    Candidates are the row's smallest number divided by a possible code of it, its largest number divided by `largest`
    with few bits, and a power of two. Of those whose products with codes are representable in 16 bits, the one with
    the smallest sum of errors wins: a row whose numbers are whole multiples of one keeps them all. Rows take turns
    among the scales without any error, so that a matrix has codes of all sizes.

    Args:
        groups: (rows, numbers that share a scale).
        largest: The largest code.
        least: The size of the smallest code.

    >>> scales_of(np.array([[0.375, -0.75, 0.0], [0.875, -2.0, 0.0], [0.0, 0.0, 0.0]]), 7, 8).tolist()
    [0.375, 0.25, 1.0]
    >>> scales_of(np.ones((4, 2)), 7, 8).tolist()
    [1.0, 0.5, 0.25, 1.0]
    """
    sizes, above, below = np.abs(groups), groups.max(1, initial=0.0), -groups.min(1, initial=0.0)
    need = np.maximum(above / largest, below / least)
    used = need > 0
    smallest = np.where(sizes > 0, sizes, np.inf).min(1)
    best = np.clip(np.exp2(np.ceil(np.log2(np.where(used, need, 1.0)))), 2.0**-24, 2.0**15)
    error = np.abs(groups - coded(groups, best, largest, least) * best[:, None]).sum(1)
    exponents = np.exp2(np.floor(np.log2(np.where(used, need, 1.0))) - 3)
    few = np.ceil(np.where(used, need, 1.0) / exponents) * exponents
    exact, scales = [], []
    for wanted in (*(np.where(used, smallest, 1.0) / code for code in SMALL_CODES), few):
        products = coded(groups, wanted, largest, least) * wanted[:, None]
        fits = np.where(used, _held(wanted) & _held(products).all(1), False)
        found = np.abs(groups - products).sum(1)
        better = fits & (found < error)
        best, error = np.where(better, wanted, best), np.where(better, found, error)
        exact.append(fits & (found == 0))
        scales.append(wanted)
    return in_turn(np.array(exact), np.array(scales), best)


def in_turn(fits: Array, values: Array, otherwise: Array) -> Array:
    """Choose, for every column, one of the values that fit: column i the one of number i, counted round.

    >>> fits, values = np.array([[True, True, False], [True, True, False]]), np.array([[1, 1, 1], [2, 2, 2]])
    >>> in_turn(fits, values, np.array([0, 0, 9])).tolist()
    [1, 2, 9]
    """
    count, places = fits.sum(0), np.arange(fits.shape[1])
    wanted = places % np.maximum(count, 1)
    chosen = (fits & (np.cumsum(fits, axis=0) == wanted + 1)).argmax(0)
    return np.where(count > 0, values[chosen, places], otherwise)


SMALL_CODES = (1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64)


def coded(groups: Array, scales: Array, largest: int, least: int) -> Array:
    """Return the nearest codes of numbers (rows, n) under scales (rows,)."""
    return np.clip(np.rint(groups / scales[:, None]), -least, largest)


def _held(values: Array) -> Array:
    """Whether bfloat16 and float16 represent a number."""
    with np.errstate(over="ignore"):
        return (rounded(values, "bfloat16") == values) & (rounded(values, "float16") == values)


def packed_words(codes: Array, axis: int) -> Array:
    """Eight codes of four bits per int32, the first in the lowest bits.

    >>> hex(int(packed_words(np.arange(8)[None], 1)[0, 0]))
    '0x76543210'
    """
    moved = np.moveaxis(codes, axis, -1).astype(np.uint32)
    apart = moved.reshape(*moved.shape[:-1], -1, 8) << np.arange(0, 32, 4, dtype=np.uint32)
    words = np.bitwise_or.reduce(apart, axis=-1).astype(np.uint32).view(np.int32)
    return np.ascontiguousarray(np.moveaxis(words, -1, axis))


def nearest_codes(values: Array, book: Array) -> Array:
    """The index of the nearest number of an ascending book, for every value.

    >>> nearest_codes(np.array([0.2, 0.9, -7.0]), np.array([-1.0, 0.0, 1.0])).tolist()
    [1, 2, 0]
    """
    middles = (book[1:] + book[:-1]) / 2
    return np.searchsorted(middles, values)
