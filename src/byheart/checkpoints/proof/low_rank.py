"""Adapters that are not merged: y = W x + scale * B (A x), as engines compute it beside the base's tensors.

In exact arithmetic that is the merged matrix M = W + scale * B A, which is what the rest of the proof looks at. An
engine may store W x, A x, its multiple, B (A x) and its multiple, each by itself or not at all, so a row errs by more
than one of the merged matrix. `LowRank.error` bounds that.

Where every product of a row is a multiple of one power of two, and no partial sum needs more digits than the type has,
no store and no sum errs: a selection of channels, as A usually is here, and small whole patterns. Elsewhere each store
errs by the type's unit.

adapter_config.json is untrusted: keys are read strictly, and what changes the mathematics is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from byheart.checkpoints.proof import rounding
from byheart.checkpoints.proof.config import Undecided, count
from byheart.checkpoints.proof.storage import Array, Interval, Storage, finite, in_float32
from byheart.checkpoints.proof.tensors import TensorFile, open_tensors, read_json

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
EXACT_SUM = 2.0**23  # units of one power of two that float32 adds up without error, in any order

# Keys of adapter_config.json with the values under which the formula above is what PEFT computes. A key that is missing
# has its default, which is the first.
FIXED: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",), "bias": ("none",), "fan_in_fan_out": (False,), "use_dora": (False,),
    "lora_bias": (False,), "use_qalora": (False,), "modules_to_save": (None,), "layers_to_transform": (None, []),
    "layers_pattern": (None, []), "rank_pattern": ({},), "alpha_pattern": ({},), "target_parameters": (None,),
    "trainable_token_indices": (None,), "alora_invocation_tokens": (None,), "layer_replication": (None,),
    "exclude_modules": (None,), "megatron_config": (None,), "arrow_config": (None,), "kasa_config": (None,),
    "velora_config": (None,), "monteclora_config": (None,), "use_bdlora": (None,), "ensure_weight_tying": (False,),
    "auto_mapping": (None,), "corda_config": (None,), "lora_ga_config": (None,), "eva_config": (None,),
    "qalora_group_size": (16,), "loftq_config": ({}, None), "runtime_config": ({}, None),
}  # fmt: skip
# Keys without effect on inference.
HARMLESS: dict[str, Callable[[Any], bool]] = {
    "task_type": lambda value: value == "CAUSAL_LM",
    "base_model_name_or_path": lambda value: value is None or isinstance(value, str),
    "revision": lambda value: value is None or isinstance(value, str),
    "peft_version": lambda value: value is None or isinstance(value, str),
    "megatron_core": lambda value: isinstance(value, str),
    "lora_dropout": lambda value: isinstance(value, int | float) and 0 <= value < 1,
    "init_lora_weights": lambda value: isinstance(value, bool),
    "inference_mode": lambda value: isinstance(value, bool),
}


@dataclass(frozen=True)
class Lattice:
    """What is known of the values of a stored vector: channel c is a multiple of `steps[c]` (0: of nothing), and
    `origin[c]` plus a multiple of `apart[c]`."""

    steps: Array
    origin: Array
    apart: Array


@dataclass(frozen=True, eq=False)
class LowRank:
    """The parts of one linear map with an adapter, in one type."""

    name: str
    base: Array  # (out, in)
    b: Array  # (out, rank)
    a: Array  # (rank, in)
    scale: float
    store: Storage

    @property
    def merged(self) -> Array:
        """W + scale * B A; exact, or off by `rounding.own` of the absolute sums, which `error` includes."""
        return self.base + self.scale * (self.b @ self.a)

    def error(
        self, size: Array, whole: Array | None = None, lattice: Lattice | None = None, *, stored: bool = True
    ) -> tuple[Array, Array]:
        """By how much y may differ from M x before it is stored, and which rows have no error at all.

        A row of zeros in B adds zero without error, so such a row is left to the rules of the base.

        Args:
            size: bounds of |x|, (..., in).
            whole: bounds of |W x|, (..., out), where they are known better than by `size`.
            lattice: the values that x may have.
            stored: the engine may store the parts; else all is float32.

        Returns:
            Bounds (..., out), and bool (out,).
        """
        scale, wide_b = abs(self.scale), np.abs(self.b)
        total, latent = size @ np.abs(self.base).T, size @ np.abs(self.a).T
        added = scale * (latent @ wide_b.T)
        whole = total if whole is None else np.minimum(whole + rounding.own(total), total)
        for part in (whole, latent, scale * latent, latent @ wide_b.T, added):
            finite(f"{self.name}: a part of an adapter", part)
            if stored:
                finite(f"{self.name}: a part of an adapter", part, self.store.largest)
        finite(f"{self.name}: a sum", total + added)
        terms = [(x != 0).sum(1) for x in (self.base, self.a, self.b)]
        several = terms[0] + int(terms[1].max(initial=0)) + terms[2] + 4
        own = rounding.own((1 + terms[2]) * (total + added))  # of `merged`, too
        error = rounding.dot(several, total + added) + own
        # What is flushed inside of A x is multiplied by B and the scale.
        error = error + rounding.underflow(terms[1].max(initial=0)) * (scale * wide_b.sum(1) + scale)
        if stored:
            error = error + rounding.adapter_stores(whole, added, scale, wide_b.sum(1), self._times, self.store)
        exact = np.zeros(len(self.base), dtype=bool)
        if stored and lattice is not None and np.ndim(size) == 1:
            exact = self._exact(lattice, whole, total, latent, added)
        return np.where(terms[2] == 0, 0.0, np.where(exact, own, error)), exact

    @property
    def doubling(self) -> bool:
        """Whether the scale is a power of two, by which nothing is rounded."""
        return math.frexp(self.scale)[0] in (0.5, -0.5)

    @property
    def scale_ends(self) -> tuple[float, float]:
        """The scale as a constant of float32 or of the type."""
        near = float(self.store.nearest(np.array([self.scale]))[0])
        slack = 0.0 if self.doubling else max(rounding.multiplier(self.scale), abs(near - self.scale))
        return self.scale - slack, self.scale + slack

    @property
    def idle(self) -> Array:
        """Rows of y that the adapter does not change."""
        return np.asarray(~self.b.any(1))

    @property
    def _times(self) -> Array:
        """How often s B (A x) is rounded by stores. What was stored once is not rounded again by a power of two."""
        powers = np.isin(np.frexp(np.abs(self.b))[0], (0.0, 0.5)).all(1) & ((self.b != 0).sum(1) == 1)
        if self.doubling:
            return np.where(powers, 1, 4)
        return np.full(len(self.b), 4 if self.store.nearest(np.array([self.scale]))[0] == self.scale else 5)

    def enclose(self, lo: Array, hi: Array) -> Interval:
        """Bounds of y for x in [lo, hi], (rows, in), before y itself is stored: a number that is nearly one of the type
        is stored as that one."""
        first = self._product(self.base, lo, hi)
        inner = self._product(self.a, lo, hi)
        ways = [
            self.store.maybe(*self._scaled(self._product(self.b, *inner))),
            self._product(self.b, *self.store.maybe(*self._scaled(inner))),
        ]
        low, high = np.minimum(ways[0][0], ways[1][0]), np.maximum(ways[0][1], ways[1][1])
        return in_float32(first[0] + low, first[1] + high)

    def _scaled(self, x: Interval) -> Interval:
        """An interval times the scale."""
        ends = [end * s for end in x for s in self.scale_ends]
        return np.minimum.reduce(ends), np.maximum.reduce(ends)

    def _product(self, weight: Array, lo: Array, hi: Array) -> Interval:
        middle, radius = (lo + hi) / 2, (hi - lo) / 2
        size = np.maximum(np.abs(lo), np.abs(hi)) @ np.abs(weight).T
        finite(f"{self.name}: a part of an adapter", size, self.store.largest)
        slack = radius @ np.abs(weight).T + rounding.dot((weight != 0).sum(1), size) + rounding.own(size)
        return self.store.maybe(middle @ weight.T - slack, middle @ weight.T + slack)

    def _exact(self, lattice: Lattice, whole: Array, total: Array, latent: Array, added: Array) -> Array:
        """Rows in which every part is a short multiple of one power of two, so that nothing is ever rounded."""
        if not self.doubling:
            return np.zeros(len(self.base), dtype=bool)
        scale = abs(self.scale)
        first, inner = (least_step(x, lattice.steps) for x in (self.base, self.a))
        # Sums of signs have one parity, so W x needs fewer digits than its terms.
        shown = np.minimum(step_of(self.base @ lattice.origin), least_step(self.base, lattice.apart))
        fine = rounding.short(latent, inner, self.store) & rounding.short(scale * latent, scale * inner, self.store)
        second = least_step(self.b, np.where(latent > 0, np.where(fine, inner, 0.0), np.inf))
        fine = rounding.short(added, scale * second, self.store) & rounding.short(added / scale, second, self.store)
        fine &= rounding.short(whole, shown, self.store)
        return np.asarray(fine & (total + added <= EXACT_SUM * np.minimum(first, scale * second)))


def step_of(x: Array) -> Array:
    """The largest power of two of which a number with at most 24 significant bits is a multiple; 0 has none, and gets
    infinity.

    >>> step_of(np.array([3.0, 0.625, 0.0])).tolist()
    [1.0, 0.125, inf]
    """
    mantissa, exponent = np.frexp(np.abs(x))
    whole = np.ldexp(mantissa, 24).astype(np.int64)
    exact = np.ldexp(mantissa, 24) == whole
    low = (whole & -whole).astype(np.float64)
    return np.where(whole == 0, np.inf, np.where(exact, np.ldexp(low, exponent - 24), 0.0))


def least_step(weight: Array, steps: Array) -> Array:
    """Per row: a power of two of which every product is a multiple; infinite for a row without products."""
    used = (weight != 0) & np.isfinite(steps)
    return np.asarray(np.where(used, step_of(np.where(used, weight, 1.0)) * np.where(used, steps, 1.0), np.inf).min(1))


@dataclass(frozen=True, eq=False)
class AdapterFile:
    """An adapter's folder: its scale, the modules that it changes, and its tensors."""

    folder: Path
    scale: float
    rank: int
    targets: tuple[str, ...]
    files: TensorFile

    def parts(self, module: str, base: Array, store: Storage, *, embedding: bool = False) -> LowRank | None:
        """The parts for the matrix of a module, such as `model.layers.0.mlp.up_proj`; None where it has none.

        Args:
            module: the module's name in the base.
            base: its matrix, (out, in).
            store: the type that the engine computes in.
            embedding: PEFT names the factors of an embedding differently; the matrix is then (hidden, vocabulary).
        """
        names = tensor_names(module, embedding)
        if not any(module == t or module.endswith(f".{t}") for t in self.targets):
            return None
        found = []
        for name, shape in zip(names, ((self.rank, base.shape[1]), (base.shape[0], self.rank)), strict=True):
            if name not in self.files.entries:
                raise Undecided(f"{self.folder.name} targets {module} and has no {name}; PEFT would start from noise")
            if self.files.entries[name][1] != shape:
                raise Undecided(f"{self.folder.name}: {name} has the shape {self.files.entries[name][1]}, not {shape}")
            values = self.files.read(name).astype(np.float64)
            if (store.nearest(values) != values).any():
                raise Undecided(
                    f"{self.folder.name}: {name} has numbers that {store.name} does not hold; engines may round them"
                )
            found.append(values)
        a, b = found
        parts = LowRank(module, base, b, a, self.scale, store)
        if any((store.nearest(x) != x).any() for x in (parts.merged, self.scale * (b @ a))):
            raise Undecided(
                f"{module}: {store.name} rounds the merged matrix; prove the folder of the merged checkpoint"
            )
        return parts


def tensor_names(module: str, embedding: bool = False) -> tuple[str, str]:
    """The names of A and B in an adapter's file.

    >>> tensor_names("lm_head")
    ('base_model.model.lm_head.lora_A.weight', 'base_model.model.lm_head.lora_B.weight')
    """
    kind = "lora_embedding_{}" if embedding else "lora_{}.weight"
    first, second = (f"{PREFIX}{module}.{kind.format(letter)}" for letter in "AB")
    return first, second


def open_adapter(folder: Path, modules: Mapping[str, bool]) -> AdapterFile:
    """Read an adapter's folder.

    Args:
        folder: adapter_config.json and adapter_model.safetensors.
        modules: names of the base's modules that an adapter may change -> whether it is the embedding.

    Raises:
        Undecided: a setting that changes the mathematics, or a tensor that belongs to no module.
    """
    config = read_json(folder / CONFIG)
    for key, value in config.items():
        if key in FIXED and not any(value == a and type(value) is type(a) for a in FIXED[key]):
            raise Undecided(f"{CONFIG}: {key} = {value!r} changes the mathematics; the proof needs {FIXED[key][0]!r}")
        if key in HARMLESS and not HARMLESS[key](value):
            raise Undecided(f"{CONFIG}: {key} = {value!r} is not a value that PEFT takes for inference")
    unknown = sorted(set(config) - set(FIXED) - set(HARMLESS) - {"r", "lora_alpha", "use_rslora", "target_modules"})
    if unknown:
        raise Undecided(f"{CONFIG}: {unknown[0]} is not a key that the proof supports")
    if config.get("peft_type") != "LORA":
        raise Undecided(f"{CONFIG}: peft_type {config.get('peft_type')!r} is not 'LORA'")
    rank, alpha, stabilized = config.get("r"), config.get("lora_alpha"), config.get("use_rslora", False)
    if not isinstance(rank, int) or not count(rank) or not 1 <= rank < 1 << 16 or not isinstance(stabilized, bool):
        raise Undecided(f"{CONFIG}: r = {rank!r} or use_rslora = {stabilized!r} is not a rank and a flag")
    if not isinstance(alpha, int | float) or isinstance(alpha, bool) or not 0 < alpha < 2.0**20:
        raise Undecided(f"{CONFIG}: lora_alpha = {alpha!r} is not a positive number")
    targets = config.get("target_modules")
    if not isinstance(targets, list) or not targets or not all(isinstance(t, str) and t for t in targets):
        raise Undecided(f"{CONFIG}: target_modules {targets!r} is not a list of names")
    if not (folder / TENSORS).exists():
        raise Undecided(f"{folder} has no {TENSORS}")
    files = open_tensors(folder / TENSORS)
    known = {
        name
        for module, embedding in modules.items()
        if any(module == t or module.endswith(f".{t}") for t in targets)
        for name in tensor_names(module, embedding)
    }
    odd = sorted(set(files.entries) - known)
    if odd:
        raise Undecided(f"{TENSORS} has {odd[0]}, which belongs to no targeted module that the proof supports")
    unused = next((t for t in targets if not any(m == t or m.endswith(f".{t}") for m in modules)), None)
    if unused is not None:
        raise Undecided(f"{CONFIG}: target_modules names {unused!r}, a module that the proof does not support")
    return AdapterFile(folder, alpha / (math.sqrt(rank) if stabilized else rank), rank, tuple(targets), files)


def adapted(value: Any) -> Iterator[Any]:
    """Yield all linear maps with an adapter inside of a layer, whatever its blocks are."""
    if isinstance(value, tuple):
        for one in value:
            yield from adapted(one)
    elif is_dataclass(value) and not isinstance(value, LowRank):
        if getattr(value, "adapter", None) is not None:
            yield value
        for field in fields(value):
            yield from adapted(getattr(value, field.name))
