"""Six probes that identify how an engine computes, as one Llama of one layer per type.

Each probe is a prompt whose answer depends on one choice of the engine:

    sum        width of sums: 128 large products, 256 small ones, 128 large ones of the other sign. Accumulators in
               bfloat16 lose the small ones
    norm       whether the mean square of a norm is stored in bfloat16: two groups of channels are rounded differently
    cache      a value of 8 bits beside 1, and 1/4 beside 100: floats of 8 bits lose the first, integers both
    rotation   whether cosines are stored in bfloat16 before they multiply: two keys' scores change their order
    subnormal  an `up` weight of 2^-127, made large again by a gate of 2^117: flushed to zero or kept
    inputs     weights 1 + 2^-12 against 1 in float32: TF32 and its kin round both to 1

The stream of a token is zero outside of its probe's channels, so all other probes' answers have the logit 0. Its mean
square is 1, except in `norm`: a norm leaves every channel as it is, however it is computed. The first four need
bfloat16, `inputs` needs float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.dtypes import rounded
from byheart.errors import ExportError

Floats = npt.NDArray[np.float64]
HIDDEN, DIMS, HEADS, UNITS, POSITIONS, EPS, THETA = 2048, 64, 2, 32, 64, 1e-5, 10_000.0
MARK = 32.0  # a token of two such channels has the mean square 1
ASKING = range(20, 50, 3)  # positions that may ask in the probe of rotation
SAFE = 2.0**-12  # relative distance from a tie of roundings that every choice of the search keeps
SPECIAL = 4  # tokens below this one are special


@dataclass(frozen=True)
class Probe:
    """A prompt and its answers: token's name -> what the engine does.

    `field` and `choices` are the proof's names of what each answer means; None where the order of sums decides, which
    the proof leaves open.
    """

    name: str
    dtype: str
    tokens: tuple[str, ...]
    answers: dict[str, str]
    field: str | None = None
    choices: tuple[tuple[str, ...], ...] = ()


@dataclass(eq=False)
class ProbeModel:
    """The weights, filled probe by probe."""

    dtype: str
    names: list[str] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    rows: dict[str, tuple[Floats, Floats]] = field(default_factory=dict)  # embedding and head of a token
    query: Floats = field(default_factory=lambda: np.zeros((HEADS * DIMS, HIDDEN)))
    key: Floats = field(default_factory=lambda: np.zeros((DIMS, HIDDEN)))
    value: Floats = field(default_factory=lambda: np.zeros((DIMS, HIDDEN)))
    output: Floats = field(default_factory=lambda: np.zeros((HIDDEN, HEADS * DIMS)))
    gate: Floats = field(default_factory=lambda: np.zeros((UNITS, HIDDEN)))
    up: Floats = field(default_factory=lambda: np.zeros((UNITS, HIDDEN)))
    down: Floats = field(default_factory=lambda: np.zeros((HIDDEN, UNITS)))
    used: int = 0  # channels

    def token(self, name: str) -> tuple[Floats, Floats]:
        """Return the embedding and the head of a token, to be filled."""
        return self.rows.setdefault(name, (np.zeros(HIDDEN), np.zeros(HIDDEN)))

    def block(self, count: int) -> slice:
        """Return `count` channels that nothing uses yet."""
        self.used += count
        if self.used > HIDDEN:
            raise ExportError(f"the probes need {self.used} channels, but there are {HIDDEN}")
        return slice(self.used - count, self.used)

    def marked(self, name: str) -> slice:
        """Make a token of two channels, and return them."""
        channels = self.block(2)
        self.token(name)[0][channels] = MARK
        return channels

    def tensors(self) -> dict[str, Floats]:
        """Return the tensors under their stock names; tokens are numbered in the order in which they were made."""
        layer, norm = "model.layers.0.", np.ones(HIDDEN)
        special = [np.zeros((SPECIAL, HIDDEN))]
        return {
            "model.embed_tokens.weight": np.concatenate([*special, [e for e, _ in self.rows.values()]]),
            "lm_head.weight": np.concatenate([*special, [h for _, h in self.rows.values()]]),
            "model.norm.weight": norm, layer + "input_layernorm.weight": norm,
            layer + "post_attention_layernorm.weight": norm,
            layer + "self_attn.q_proj.weight": self.query, layer + "self_attn.k_proj.weight": self.key,
            layer + "self_attn.v_proj.weight": self.value, layer + "self_attn.o_proj.weight": self.output,
            layer + "mlp.gate_proj.weight": self.gate, layer + "mlp.up_proj.weight": self.up,
            layer + "mlp.down_proj.weight": self.down,
        }  # fmt: skip

    def number(self, name: str) -> int:
        """Return the id of a token."""
        return SPECIAL + list(self.rows).index(name)

    def config(self, vocabulary: int) -> dict[str, Any]:
        """Return config.json."""
        return {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": vocabulary,
            "hidden_size": HIDDEN, "intermediate_size": UNITS, "num_hidden_layers": 1, "num_attention_heads": HEADS,
            "num_key_value_heads": 1, "head_dim": DIMS, "max_position_embeddings": POSITIONS, "rms_norm_eps": EPS,
            "rope_theta": THETA, "rope_parameters": {"rope_type": "default", "rope_theta": THETA},
            "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "attention_dropout": 0.0,
            "initializer_range": 0.02, "use_cache": True, "tie_word_embeddings": False, "bos_token_id": 1,
            "eos_token_id": 2, "pad_token_id": 3, "dtype": self.dtype, "torch_dtype": self.dtype,
        }  # fmt: skip


@lru_cache(maxsize=2)
def probe_model(dtype: str) -> ProbeModel:
    """Return the probes of one type, bfloat16 or float32.

    >>> [probe.name for probe in probe_model("bfloat16").probes]
    ['sum', 'norm', 'cache', 'rotation', 'subnormal']
    >>> [probe.name for probe in probe_model("float32").probes]
    ['subnormal', 'inputs']
    """
    model = ProbeModel(dtype)
    if dtype == "bfloat16":
        _sums(model)
        _norms(model)
        _cache(model)
        _rotation(model)
    _subnormal(model)
    if dtype == "float32":
        _inputs(model)
    return model


def _sums(model: ProbeModel) -> None:
    where = model.block(512)
    model.token("sum")[0][where] = 2.0
    wide, narrow = (model.token(f"sum: {name}")[1] for name in ("float32", "narrow"))
    large = np.concatenate([np.full(128, 128.0), np.full(256, 27 / 256), np.full(128, -128.0)])
    wide[where] = large  # 54, or 0 where a sum of large products swallows the small ones
    narrow[where.start] = 13.5  # 27
    answers = {"sum: float32": "float32", "sum: narrow": "narrow"}
    model.probes.append(Probe("sum", "bfloat16", ("sum",), answers))


def _norms(model: ProbeModel) -> None:
    """Two levels whose normed values are rounded up or down, depending on the mean square's own rounding."""
    where, (count, first, second) = model.block(1024), _levels()
    embedding = model.token("norm")[0]
    embedding[where][:256], embedding[where][256:512] = first, second
    embedding[where][512 : 512 + count] = 1.0
    plain, stored = (_normed(embedding[[where.start, where.start + 256]], embedding, way) for way in (False, True))
    ratio = (plain[0] / plain[1] + stored[0] / stored[1]) / 2
    row = np.zeros(1024)
    row[:256], row[256:512] = 16.0, -_mixed(16 * ratio, 256)
    sign = 1.0 if plain @ row[[0, 256]] > stored @ row[[0, 256]] else -1.0
    readings = [float(row[:256].sum() * n[0] + row[256:512].sum() * n[1]) for n in (plain, stored)]
    size = 2.0 ** math.ceil(math.log2(30 / min(abs(r) for r in readings)))
    for name, turn in (("norm: float32", sign), ("norm: bfloat16", -sign)):
        model.token(name)[1][where] = turn * size * row
    answers = {"norm: float32": "float32", "norm: bfloat16": "bfloat16"}
    model.probes.append(Probe("norm", "bfloat16", ("norm",), answers, "norm", (("float32",), ("stored",))))


def _mixed(mean: float, count: int) -> Floats:
    """Numbers of bfloat16 whose mean is nearly this one: neighbours, mixed."""
    low = float(2.0 ** math.floor(math.log2(mean)) / 128 * math.floor(mean / 2.0 ** math.floor(math.log2(mean)) * 128))
    step = 2.0 ** math.floor(math.log2(mean)) / 128
    high = round((mean - low) / step * count)
    return np.concatenate([np.full(high, low + step), np.full(count - high, low)])


def _normed(values: Floats, stream: Floats, stored: bool) -> Floats:
    """Values after a norm whose mean square, its sum with epsilon, and its root are stored or not."""
    square = float((stream**2).mean())
    root = 1 / math.sqrt(_short(_short(square) + EPS) if stored else square + EPS)
    return rounded(values * (_short(root) if stored else root), "bfloat16")


def _short(value: float) -> float:
    return float(rounded(np.array([value]), "bfloat16")[0])


def _tied(values: Floats) -> Floats:
    """The relative distance of numbers from the middle between two neighbours of bfloat16."""
    size = np.abs(values)
    step = 2.0 ** (np.floor(np.log2(np.where(size > 0, size, 1.0))) - 7)
    away = np.abs(size / step - np.floor(size / step) - 0.5)
    return np.asarray(np.where(size > 0, away * step / np.maximum(size, 1e-300), 1.0))


def _levels() -> tuple[int, float, float]:
    """Counts and levels of the norm's probe: the pair whose ratio differs most, away from every tie.

    Squares of levels have 8 bits, so it does not matter whether they are stored."""
    levels = [n / 8 for n in range(8, 16)]
    best = (0.0, 0, 0.0, 0.0)
    for count in range(0, 513, 8):
        for a in levels:
            for b in levels:
                square = (256 * (a * a + b * b) + count) / HIDDEN
                short = _short(_short(square) + EPS)
                roots = (1 / math.sqrt(square + EPS), _short(1 / math.sqrt(short)))
                ties = [np.array([square, _short(square) + EPS, 1 / math.sqrt(short)])]
                ties += [np.array([a, b]) * root for root in roots]
                if min(float(_tied(t).min()) for t in ties) < SAFE:
                    continue
                plain, stored = (rounded(np.array([a, b]) * root, "bfloat16") for root in roots)
                apart = abs(float(plain[0] / plain[1] - stored[0] / stored[1]))
                best = max(best, (apart, count, a, b))
    return best[1:]


def _cache(model: ProbeModel) -> None:
    held, asks = model.marked("cached"), model.marked("cache")
    dim = 30  # turns by 2^-12 per place: the key is one place back
    model.query[dim, asks], model.key[dim, held] = 64 / (2 * MARK), 64 / (2 * MARK)
    values = (135 / 128, 1.0, 100.0, 0.25)
    for row, value in enumerate(values):
        model.value[row, held] = value / (2 * MARK)
    six, one, small = (model.block(8) for _ in range(3))
    for row, where in ((0, six), (1, one), (3, small)):
        model.output[where, row] = 1.0
    names = ("cache: 16 bits", "cache: 8-bit floats", "cache: integers")
    full, floats, integers = (model.token(name)[1] for name in names)
    full[six], full[one] = 240.0, -240.0  # 105, or 0
    floats[small] = 26.0  # 52 if the small one is there
    integers[asks], integers[small] = 0.75, -50.0  # 48, or less than 0
    answers = dict(zip(names, ("16 bits or more", "8-bit floats", "integers of 8 bits or fewer"), strict=True))
    kinds = (("kept",), ("e4m3", "e5m2"), ("int8", "int4"))
    model.probes.append(Probe("cache", "bfloat16", ("cached", "cache"), answers, "cache", kinds))


def _rotation(model: ProbeModel) -> None:
    """Two keys at two places, in one fast frequency; a slow one takes away what both scores share."""
    design = _turns()
    first, second, asks, _ = (model.marked(name) for name in ("turned 1", "turned 2", "rotation", "filler"))
    slow = DIMS // 2 - 1
    size = 2.0 ** math.ceil(math.log2(40 * 8 / design.margin) / 2)  # powers of two change no rounding
    unit = size / (2 * MARK)
    model.query[design.frequency, asks], model.query[slow, asks] = design.query * unit, -design.common * unit
    for channels in (first, second):
        model.key[design.frequency, channels], model.key[slow, channels] = design.key * unit, unit
    marks = model.block(2)
    for row, channels, mark in ((8, first, marks.start), (9, second, marks.start + 1)):
        model.value[row, channels] = 0.5  # 2 * MARK / 2
        model.output[mark, row] = 1.0
    names = ("rotation: float32", "rotation: stored")
    for name, mark in zip(names if design.plain_first else names[::-1], range(marks.start, marks.stop), strict=True):
        model.token(name)[1][mark] = 2.0
    tokens = ["filler"] * design.asks
    tokens[design.first - 1], tokens[design.second - 1], tokens[-1] = "turned 1", "turned 2", "rotation"
    answers = dict(zip(names, ("cosines in float32", "cosines stored in bfloat16"), strict=True))
    kinds = (("float32",), ("stored",))
    model.probes.append(Probe("rotation", "bfloat16", tuple(tokens), answers, "cosines", kinds))


@dataclass(frozen=True)
class TurnDesign:
    """Sizes of the query, of keys and of the slow part, the places, and the least difference of their scores."""

    frequency: int
    asks: int
    query: float
    key: float
    common: float
    first: int
    second: int
    plain_first: bool
    margin: float


def _part(value: Floats, angle: Floats, stored: bool) -> Floats:
    """A pair (value, 0), turned by angles: (values, angles, 2)."""
    both = np.stack([np.cos(angle), np.sin(angle)], -1)
    both = rounded(both, "bfloat16") if stored else both
    return rounded(np.asarray(value)[..., None, None] * both, "bfloat16")


def _turns() -> TurnDesign:
    """The sizes and places whose scores change their order by most."""
    found = []
    sizes = np.arange(128, 256, 5) / 128
    for frequency in range(1, 7):
        angle = THETA ** (-2 * frequency / DIMS) * np.arange(ASKING.stop)
        turned = [_part(sizes, angle, stored) for stored in (False, True)]
        away = _safe(sizes, angle)
        for asks in ASKING:
            for i in np.flatnonzero(away[:, asks]):
                scores = [np.einsum("kpc,c->kp", part[:, :asks], part[i, asks]) for part in turned]
                apart = [s[:, :, None] - s[:, None, :] for s in scores]
                fair = (scores[0] > 0.3 * sizes[i] * sizes[:, None]) & away[:, :asks]
                fair[:, 0] = False
                margin = np.minimum(np.abs(apart[0]), np.abs(apart[1])) * (apart[0] * apart[1] < 0)
                margin = np.tril(margin * fair[:, :, None] * fair[:, None, :], -1) / (sizes[i] * sizes)[:, None, None]
                j, one, two = np.unravel_index(int(margin.argmax()), margin.shape)
                if margin[j, one, two] > 0:
                    sides = (frequency, asks, float(sizes[i]), float(sizes[j]), int(one), int(two))
                    found.append((float(margin[j, one, two]), sides))
    for _, sides in sorted(found, reverse=True):
        design = _without_common(*sides)
        if design is not None:
            return design
    raise ExportError("no two places have scores that change their order with stored cosines")


def _safe(sizes: Floats, angle: Floats) -> npt.NDArray[np.bool_]:
    """(sizes, angles): where cosines and their products are away from ties."""
    both = np.stack([np.cos(angle), np.sin(angle)], -1)
    near = np.minimum(_tied(both).min(-1), 1)[None]
    for one in (both, rounded(both, "bfloat16")):
        near = np.minimum(near, _tied(sizes[:, None, None] * one[None]).min(-1))
    return np.asarray(near >= SAFE)


def _without_common(frequency: int, asks: int, query: float, key: float, first: int, second: int) -> TurnDesign | None:
    """The smallest positive scores that a slow frequency leaves of the two; None if it leaves none."""
    angles = [THETA ** (-2 * f / DIMS) * np.arange(asks + 1) for f in (frequency, DIMS // 2 - 1)]
    if not _safe(np.ones(1), angles[1][[first, second]]).all():
        return None
    options = []
    for exponent in (-1, 0, 1):
        for common in np.arange(128, 256) / 128 * 2.0**exponent:
            if not _safe(np.array([common]), angles[1][[asks]])[0, 0]:
                continue
            scores = []
            for stored in (False, True):
                parts = [_part(np.array([q]), a, stored)[0] for q, a in zip((query, common), angles, strict=True)]
                keys = [_part(np.array([k]), a, stored)[0] for k, a in zip((key, 1.0), angles, strict=True)]
                both = (keys[0] @ parts[0][asks] - keys[1] @ parts[1][asks])[[first, second]]
                scores.append(both.tolist())
            apart = [a - b for a, b in scores]
            margin = min(map(abs, apart))
            if apart[0] * apart[1] < 0 and min(map(min, scores)) > margin:
                options.append((max(map(max, scores)), float(common), margin, apart[0] > 0))
    if not options:
        return None
    _, common, margin, plain_first = min(options)
    return TurnDesign(frequency, asks, query, key, common, first, second, plain_first, margin)


def _subnormal(model: ProbeModel) -> None:
    asks, held = model.marked("subnormal"), model.block(1).start
    channel = asks.start
    model.up[0, channel], model.gate[0, channel], model.down[held, 0] = 2.0**-127, 2.0**112, 2.0**9
    kept, flushed = (model.token(f"subnormal: {name}")[1] for name in ("kept", "flushed"))
    kept[held], flushed[channel] = 4.0, 1.0  # 60 or 0; 30
    answers = {"subnormal: kept": "kept", "subnormal: flushed": "flushed to zero"}
    kinds = (("kept",), ("flushed",))
    model.probes.append(Probe("subnormal", model.dtype, ("subnormal",), answers, "subnormal", kinds))


def _inputs(model: ProbeModel) -> None:
    """Normed values lie a quarter of a step of 10 bits above 8, so truncating and rounding both give 8."""
    where, other = model.block(30), model.block(1).start
    embedding = model.token("inputs")[0]
    embedding[where], embedding[other] = 8.0, math.sqrt(2048 * (1 - 2.0**-11) - 30 * 64)
    full, short = (model.token(f"inputs: {name}")[1] for name in ("full", "short"))
    full[where] = 2048 * np.concatenate([np.full(15, 1 + 2.0**-12), np.full(15, -1.0)])  # 60, or 0
    short[other] = 2.75  # 31
    answers = {"inputs: full": "float32", "inputs: short": "10 bits (TF32 and its kin)"}
    kinds = (("full",), ("rounded", "cut"))
    model.probes.append(Probe("inputs", "float32", ("inputs",), answers, "inputs", kinds))
