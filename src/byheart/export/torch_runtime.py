"""A memory in plain PyTorch: this file and the weights are all that is needed.

    model = load("table.pt")                # or load("table.pt").fast() for the fast form
    codes = model.encode([["a", "b"], ["b", "a"]])
    model.predict(codes)                    # class numbers, -1 for none; model.labels[k] is the label of class k
    model.answers([["a", "b"], ["z"]])      # labels, and model.labels[-1], which is not a label, for unknown rows
    model(codes)                            # logits

Ordinary parts (Embedding, softmax attention, Linear, ReLU); `.to(device)`, `state_dict` and batches of any size work as
usual. Every value is exact in the float types that `model.proved` names. In another one the answers would be incorrect
without a sign of it, so casts (`.half()`, `.to(torch.float32)`, a state of another type, autocast) are refused.
"""

# mypy: allow-subclassing-any, allow-untyped-decorators
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

LEAD = 32.0  # margin of the correct class in nats; a power of two, so that scaling is exact
COLUMNS = 4096  # streams that the fast form evaluates together


def load(path: str | Path) -> TorchMemory:
    """The memory in a file written by `byheart export --to torch`; runs no code from it."""
    saved = torch.load(path, weights_only=True)
    return TorchMemory(saved["config"], saved["state"], saved["metadata"])


class TokenEmbedding(nn.Module):
    """Codes (B, n) -> streams (B, n, D); with positions, row code + stride·place of the table."""

    def __init__(self, rows: int, width: int, stride: int) -> None:
        super().__init__()
        self.rows, self.stride = nn.Embedding(rows, width, device="meta"), stride

    def forward(self, codes: Tensor) -> Tensor:
        places = torch.arange(codes.shape[1], device=codes.device)
        found: Tensor = self.rows(codes.clamp(min=0) + self.stride * places)
        return found


class ResidualModule(nn.Module):
    """h + W2 relu(W1 h + b1) + b2."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden, device="meta"), nn.Linear(hidden, width, device="meta")

    def forward(self, h: Tensor) -> Tensor:
        found: Tensor = h + self.down(torch.relu(self.up(h)))
        return found


class Shift(nn.Module):
    """h + b: a block without hidden units."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.empty(width, device="meta"))

    def forward(self, h: Tensor) -> Tensor:
        return h + self.bias


class HeadModule(nn.Module):
    """softmax(Q K^T) V, then the output map."""

    def __init__(self, width: int, size: int, key_size: int) -> None:
        super().__init__()
        self.query, self.key = (nn.Linear(width, key_size, bias=False, device="meta") for _ in range(2))
        self.value = nn.Linear(width, size, bias=False, device="meta")
        self.output = nn.Linear(size, width, bias=False, device="meta")

    def forward(self, h: Tensor, allowed: Tensor | None, last: bool) -> Tensor:
        queries = self.query(h[:, -1:] if last else h)  # (B, 1 or n, s)
        scores = queries @ self.key(h).transpose(1, 2)
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        found: Tensor = self.output(torch.softmax(scores, dim=-1) @ self.value(h))
        return found


class SoftmaxAttention(nn.Module):
    """h + sum over heads; where only the last token's answer is read, it alone asks."""

    def __init__(self, width: int, heads: list[list[int]], causal: bool, last: bool) -> None:
        super().__init__()
        self.heads = nn.ModuleList(HeadModule(width, size, key_size) for size, key_size in heads)
        self.causal, self.last = causal, last

    def forward(self, h: Tensor, present: Tensor | None) -> Tensor:
        allowed = None if present is None else present[:, None, :]
        if self.causal:
            before = torch.ones(h.shape[1], h.shape[1], dtype=torch.bool, device=h.device).tril()
            allowed = before[-1:] if self.last else before
        out = h[:, -1:] if self.last else h
        for head in self.heads:
            out = out + head(h, allowed, self.last)
        return out


class SumPool(nn.Module):
    """The streams of all present tokens added up."""

    def forward(self, h: Tensor, present: Tensor | None) -> Tensor:
        if present is not None:
            h = torch.where(present[..., None], h, torch.zeros_like(h))
        return h.sum(dim=1, keepdim=True)


class TorchMemory(nn.Module):
    """Tokens to logits. `predict` gives class numbers, -1 where the network names no class."""

    def __init__(self, config: dict[str, Any], state: dict[str, Tensor], metadata: dict[str, str]) -> None:
        super().__init__()
        self.config, self.metadata = config, metadata
        self.layers = nn.ModuleList(_module(layer) for layer in config["layers"])
        self.load_state_dict(state, assign=True)
        self.requires_grad_(False)
        self._parts = _parts_with_weights(self)

    @property
    def proved(self) -> tuple[str, ...]:
        """The float types in which every value is proved to be exact."""
        return tuple(self.config.get("proved", (self.config["dtype"],)))

    @property
    def dtype(self) -> torch.dtype:
        """The float type of the weights."""
        return next(tensor.dtype for part in self._parts for tensor in _tensors(part))

    def _apply(self, fn: Any, recurse: bool = True) -> TorchMemory:
        """Casts and moves of all kinds come through here."""
        dtype = fn(torch.zeros(1, dtype=self.dtype)).dtype
        self._allow(dtype)
        super()._apply(fn, recurse)
        self.config = {**self.config, "dtype": str(dtype).removeprefix("torch.")}
        return self

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """States of all kinds come through here, also those of a module that has this one inside."""
        own = {name: tensor for name, tensor in state_dict.items() if name.startswith(prefix)}
        _same_type(own, getattr(torch, self.config["dtype"]))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _allow(self, dtype: torch.dtype) -> None:
        """A TypeError unless the memory is proved in this float type."""
        name = str(dtype).removeprefix("torch.")
        if name not in self.proved:
            raise TypeError(
                f"this memory is proved in {' and '.join(self.proved)} only; in {name} its answers would be incorrect "
                f"without any sign of it. Export it with dtype {name}, if it fits, or memorize the data for that type"
            )

    def _ready(self, device: torch.device) -> None:
        """Whatever was done to parts of the module, and whatever mode torch is in: the weights' own type is used."""
        dtype = self.dtype
        self._allow(dtype)
        for part in self._parts:
            for tensor in _tensors(part):
                if tensor.dtype is not dtype:
                    raise TypeError(f"a part of this memory was cast to {tensor.dtype}, the rest is {dtype}")
        if torch.is_autocast_enabled(device.type):
            raise TypeError("autocast would compute this memory in a smaller float type; call it outside of autocast")
        if dtype is torch.float32 and torch.get_float32_matmul_precision() != "highest":
            raise TypeError("call torch.set_float32_matmul_precision('highest'): this memory needs exact products")

    @property
    def symbols(self) -> list[Any]:
        """Symbol i has code i + 1."""
        if not self.config["symbols"]:
            raise TypeError("this memory takes vectors: give `predict` a tensor of them, (rows, n, numbers)")
        return [_symbol(written) for written in json.loads(self.metadata["byheart.symbols"])]

    def _codes(self) -> Any:
        """Names of symbols to their codes, and what names a token: where all symbols are floats, its value alone."""
        by_value = all(type(symbol) is float for symbol in self.symbols)
        return {_name(x): i + 1 for i, x in enumerate(self.symbols)}, lambda token: _name(token, by_value)

    @property
    def labels(self) -> list[Any]:
        """Label k belongs to class k; the last entry is for class -1, no label, and is not among the labels."""
        return list(json.loads(self.metadata["byheart.labels"]))

    def encode(self, rows: list[Any]) -> Tensor:
        """Codes of rows of symbols: padded with 0 on the left, or with -1 at the end for sets and prefixes."""
        (codes, name), n, ragged = self._codes(), self.config["length"], self.config["ragged"]
        out = torch.full((len(rows), n), -1 if ragged else 0, dtype=torch.int64)
        for i, row in enumerate(rows):
            if not 1 <= len(row) <= n:
                raise ValueError(f"row {i} has {len(row)} tokens; this memory reads 1 to {n}")
            if unknown := [symbol for symbol in row if name(symbol) not in codes]:
                raise ValueError(f"row {i}: {unknown[0]!r} ({type(unknown[0]).__name__}) is a token that this memory "
                                 "has never seen; `answers` calls such rows unknown")  # fmt: skip
            found = torch.tensor([codes[name(symbol)] for symbol in row], dtype=torch.int64)
            first = 0 if ragged else n - len(found)
            out[i, first : first + len(found)] = found
        return out

    def answers(self, rows: list[Any]) -> list[Any]:
        """The label of every row of symbols (of every token where each has one); `labels[-1]` for what is unknown."""
        labels, (codes, name) = self.labels, self._codes()
        fitting = [1 <= len(row) <= self.config["length"] and all(name(x) in codes for x in row) for row in rows]
        queried = [row for row, fits in zip(rows, fitting, strict=True) if fits]
        found = iter(self.predict(self.encode(queried)).tolist() if queried else [])
        out: list[Any] = []
        for row, fits in zip(rows, fitting, strict=True):
            if self.config["read"] != "each":
                out.append(labels[next(found) if fits else -1])
                continue
            classes = next(found) if fits else [-1] * len(row)
            first = 0 if self.config["ragged"] or not fits else len(classes) - len(row)
            out.append([labels[k] for k in classes[first : first + len(row)]])
        return out

    def values(self, tokens: Tensor, present: Tensor | None = None) -> Tensor:
        """The network's outputs: (B, width), or (B, n, width) where every token is read."""
        self._ready(tokens.device)
        h, present = self._read(tokens, present)
        for layer in self.layers:
            h = layer(h, present) if isinstance(layer, SoftmaxAttention | SumPool) else layer(h)
        return h if self.config["read"] == "each" else h[:, -1]

    def forward(self, tokens: Tensor, present: Tensor | None = None) -> Tensor:
        """Logits, one per class. For an answer y they are −32 (k − y)²: 0 for class k = y, at most −32 for any other,
        so that the softmax is 1 up to 3e-14; where the network names no class all are 0, and none is likelier."""
        values, k = self.values(tokens, present), torch.arange(self.config["classes"]) + self.config["offset"]
        logits = LEAD * values if self.config["decode"] == "argmax" else -LEAD * (values - k.to(values)) ** 2
        return torch.where((self._classes(values) < 0)[..., None], torch.zeros_like(logits), logits)

    @torch.no_grad()
    def predict(self, tokens: Tensor, present: Tensor | None = None) -> Tensor:
        """Class numbers, -1 for none: (B,), or (B, n) where every token is read. Takes codes or vectors: `answers`
        takes rows of symbols and returns labels."""
        if not isinstance(tokens, Tensor):
            raise TypeError("predict takes a tensor of codes: predict(model.encode(rows)) returns class numbers, and "
                            "answers(rows) returns the labels of rows of symbols")  # fmt: skip
        return self._classes(self.values(tokens, present))

    def _classes(self, values: Tensor) -> Tensor:
        if self.config["decode"] == "argmax":
            best = values.max(dim=-1, keepdim=True)
            tied = (values == best.values).sum(dim=-1) > 1
            return torch.where(tied, -1, best.indices[..., 0])
        y = values[..., 0] - self.config["offset"]
        known = (y >= 0) & (y < self.config["classes"]) & (y == y.floor())
        return torch.where(known, y, torch.full_like(y, -1)).to(torch.int64)

    def fast(self) -> FastMemory:
        """The same network in a layout that runs several times as fast on a CPU."""
        return FastMemory(self)

    def _read(self, tokens: Tensor, present: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """What the first layer takes: codes (B, n) for a table of them, else streams (B, n, D)."""
        if self.config["symbols"]:
            present = tokens >= 0 if self.config["ragged"] and present is None else present
            table = self.config["layers"][0]["layer"] == "embedding"
            return tokens if table else self._placed(tokens.to(self.dtype)[..., None]), present
        if present is not None:  # what follows the end of a row is multiplied by 0, so it must be finite
            tokens = torch.where(present[..., None], tokens, torch.zeros_like(tokens))
        vectors = tokens.to(self.dtype)
        if not torch.equal(vectors.to(tokens.dtype), tokens):
            raise ValueError(f"the vectors hold numbers that {self.dtype} cannot represent; round them as the data was")
        return self._placed(vectors), present

    def _placed(self, vectors: Tensor) -> Tensor:
        """With positions, the place is one more coordinate."""
        if not self.config["positions"]:
            return vectors
        places = torch.arange(vectors.shape[1], device=vectors.device, dtype=vectors.dtype)
        return torch.cat([vectors, places.expand(vectors.shape[0], -1)[..., None]], dim=-1)


def _symbol(written: Any) -> Any:
    """A symbol as the file format writes it: floats and long integers are hexadecimal."""
    if not isinstance(written, dict):
        return written
    ((kind, digits),) = written.items()
    return float.fromhex(digits) if kind == "float" else int(digits, 16)


def _name(symbol: Any, by_value: bool = False) -> tuple[str, str]:
    """Distinguishes 1, 1.0, True and "1", which a dictionary does not; numbers `by_value` are one if equal."""
    if by_value and type(symbol) in (int, float) and float(symbol) == symbol:
        symbol = float(symbol) + 0.0
    return type(symbol).__name__, symbol.hex() if isinstance(symbol, float) else str(symbol)


def _tensors(module: nn.Module) -> list[Tensor]:
    """The module's own weights, without those of its parts."""
    return [t for t in (*module._parameters.values(), *module._buffers.values()) if t is not None]


def _parts_with_weights(module: nn.Module) -> list[nn.Module]:
    return [part for part in module.modules() if _tensors(part)]


def _same_type(state: Any, dtype: torch.dtype) -> None:
    """A TypeError for weights of another float type: copied or assigned, they would be other numbers."""
    for name, tensor in state.items():
        if tensor.is_floating_point() and tensor.dtype is not dtype:
            raise TypeError(f"{name} is {tensor.dtype}, this memory's weights are {dtype}; nothing was loaded")


def _module(layer: dict[str, Any]) -> nn.Module:
    """The empty module of one layer of the configuration."""
    kind, width = layer["layer"], layer["width"]
    if kind == "embedding":
        return TokenEmbedding(layer["rows"], width, layer["stride"])
    if kind == "affine":
        linear = nn.Linear(layer["width_in"], width, layer["bias"], device="meta")
        return nn.Sequential(linear, nn.ReLU()) if layer["relu"] else linear
    if kind == "residual":
        return ResidualModule(width, layer["hidden"]) if layer["hidden"] else Shift(width)
    if kind == "attention":
        return SoftmaxAttention(width, layer["heads"], layer["causal"], layer["last"])
    return SumPool()


class FastMemory(TorchMemory):
    """Same answers, faster: streams as rows, all weights of the blocks in one buffer, only the rows that a block uses.

    The stream is (1 + D, batch); a row of ones carries the biases, so a block is two matrix products and a ReLU, in
    place. Attention with zero scores is the mean: the sum of the values divided by their number. For inference only.
    """

    weights: Tensor

    def __init__(self, memory: TorchMemory) -> None:
        nn.Module.__init__(self)
        self.config, self.metadata = memory.config, memory.metadata
        mixer = _only_mixer(memory)
        self.layers, self.mixer = memory.layers[: mixer + 1], mixer
        blocks = list(memory.layers[mixer + 1 : -1])
        self.answer = memory.layers[-1]
        packed: list[Tensor] = []
        self.steps = [_fast_step(block, packed) for block in blocks]
        self.register_buffer("weights", torch.cat([part.flatten() for part in packed]))
        self._parts = _parts_with_weights(self)
        self._cut()

    def _cut(self) -> None:
        """Every step's weights as views of the one buffer."""
        self.views, start = [], 0
        for _, _, _, shapes in self.steps:
            parts = []
            for rows, columns in shapes:
                parts.append(self.weights[start : start + rows * columns].view(rows, columns))
                start += rows * columns
            self.views.append(parts)

    def _apply(self, fn: Any, recurse: bool = True) -> FastMemory:
        super()._apply(fn, recurse)
        self._cut()
        return self

    @torch.no_grad()
    def values(self, tokens: Tensor, present: Tensor | None = None) -> Tensor:
        self._ready(tokens.device)
        h, present = self._read(tokens, present)
        for layer in self.layers[: self.mixer]:
            h = layer(h)
        mixed = self._mix(h, present)  # (streams, D)
        rows = torch.empty(1 + mixed.shape[1], len(mixed), dtype=mixed.dtype, device=mixed.device)
        rows[0] = 1
        rows[1:] = mixed.T
        for start in range(0, len(mixed), COLUMNS):
            self._run(rows[:, start : start + COLUMNS])
        found: Tensor = self.answer(rows[1:].T)
        return found.view(h.shape[0], h.shape[1], -1) if self.config["read"] == "each" else found

    def _mix(self, h: Tensor, present: Tensor | None) -> Tensor:
        """The streams of all tokens that are read, after attention or pooling."""
        mixer = self.layers[self.mixer]
        if isinstance(mixer, SumPool):
            return mixer(h, present)[:, 0]
        head = mixer.heads[0]
        values = head.value(h)  # (B, n, s)
        if mixer.causal:
            counts = torch.arange(1, h.shape[1] + 1, device=h.device, dtype=h.dtype)
            return (h + head.output(values.cumsum(dim=1) / counts[:, None])).flatten(0, 1)
        mean = values.sum(dim=1, keepdim=True) / h.shape[1]
        return ((h[:, -1:] if mixer.last else h) + head.output(mean)).flatten(0, 1)

    def _run(self, rows: Tensor) -> None:
        """All blocks, in place. Slices are taken once: slicing costs as much as a small product."""
        largest = max((shapes[0][0] for _, _, _, shapes in self.steps), default=0)
        hidden = torch.empty(largest, rows.shape[1], dtype=rows.dtype, device=rows.device)
        read = {k: rows[:k] for k, _, _, _ in self.steps}
        out = {ends: rows[ends[0] : ends[1]] for _, _, ends, _ in self.steps}
        units = {shapes[0][0]: hidden[: shapes[0][0]] for _, _, _, shapes in self.steps}
        for (until, single, ends, shapes), view in zip(self.steps, self.views, strict=True):
            if shapes[0][0]:
                part = units[shapes[0][0]]
                if single >= 0:
                    torch.add(rows[single], view[0], out=part)
                else:
                    torch.mm(view[0], read[until], out=part)
                out[ends].addmm_(view[1], part.relu_())
            if len(view) > 2:
                out[ends].add_(view[2])


def _only_mixer(memory: TorchMemory) -> int:
    """The place of the one attention or pooling layer, if the fast form can replace it."""
    places = [i for i, layer in enumerate(memory.layers) if isinstance(layer, SoftmaxAttention | SumPool)]
    behind = memory.layers[places[-1] + 1 :] if places else []
    if len(places) != 1 or not all(isinstance(layer, ResidualModule | Shift) for layer in behind[:-1]):
        raise ValueError("the fast form is for one attention or pooling layer, residual blocks and a linear answer")
    mixer = memory.layers[places[0]]
    if isinstance(mixer, SoftmaxAttention):
        scored = any(bool(head.key.weight.any()) and bool(head.query.weight.any()) for head in mixer.heads)
        if len(mixer.heads) != 1 or scored or (memory.config["ragged"] and not mixer.causal):
            raise ValueError("the fast form is for attention of one head whose scores are all equal")
    return places[0]


Step = tuple[int, int, tuple[int, int], list[tuple[int, int]]]


def _fast_step(block: nn.Module, packed: list[Tensor]) -> Step:
    """(rows read, the single row if all units read one, rows written, shapes); the used weights go to `packed`."""
    if isinstance(block, Shift):
        packed += [block.bias[:0, None], block.bias[None, :0], block.bias[:, None]]
        return 1, -1, (1, 1 + len(block.bias)), [(0, 1), (1, 0), (len(block.bias), 1)]
    up, bias1, down, bias2 = block.up.weight, block.up.bias, block.down.weight, block.down.bias
    written = torch.nonzero(down.any(dim=1) | (bias2 != 0)).flatten().tolist() or [0]
    read = torch.nonzero(up.any(dim=0)).flatten().tolist() or [0]
    first, last, until = written[0], written[-1] + 1, read[-1] + 1
    single = read[0] if len(read) == 1 and len(up) > 3 and bool((up[:, read[0]] == 1).all()) else -1
    parts = [bias1[:, None] if single >= 0 else torch.cat([bias1[:, None], up[:, :until]], dim=1), down[first:last]]
    if bool(bias2.any()):
        parts.append(bias2[first:last, None])
    packed += parts
    return (
        1 + until,
        single + 1 if single >= 0 else -1,
        (1 + first, 1 + last),
        [(p.shape[0], p.shape[1]) for p in parts],
    )
