"""The theorem, per type: every layer compared with its part of the function, then the head.

Four layers compute the function. Where attention and MLP see the same stream (GPT-NeoX), what units write is read one
layer later, so there are six.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from byheart.certify.certificate import Verdict
from byheart.checkpoints.proof import rounding
from byheart.checkpoints.proof.attention import check_masked_row
from byheart.checkpoints.proof.bounds import interval_product
from byheart.checkpoints.proof.branches import scaled_head
from byheart.checkpoints.proof.certificate import TypeResult, padding_line
from byheart.checkpoints.proof.check import TYPES, fingerprint, padded
from byheart.checkpoints.proof.checkpoint import open_checkpoint
from byheart.checkpoints.proof.config import Shape, Undecided
from byheart.checkpoints.proof.decoder import Layer, Linear, Norm, StoredCheckpoint, TensorReader
from byheart.checkpoints.proof.padding import padding_gap
from byheart.checkpoints.proof.recall.content import ContentGaps, PlaceKeys, match_gaps
from byheart.checkpoints.proof.recall.layout import NAME, RecallLayout, read_layout
from byheart.checkpoints.proof.recall.looking import FixedDistance, read_distance, read_places
from byheart.checkpoints.proof.recall.stream import Balance, SignStream, SmallRows, hull, normed, read_rows, scaled
from byheart.checkpoints.proof.recall.turning import head_pairs
from byheart.checkpoints.proof.recall.updates import Branch, Writing, activated, attended, by_head, write_channels
from byheart.checkpoints.proof.recall.words import StoredWords, read_words
from byheart.checkpoints.proof.storage import ERROR_MODEL, Storage, finite, in_float32, storage
from byheart.checkpoints.proof.surroundings import check_surroundings
from byheart.errors import ByheartError
from byheart.progress import timed

LAYERS, PARALLEL_LAYERS = 4, 6
LARGEST_LEAK = 2.0**-4


@dataclass(frozen=True)
class RecallCertificate:
    """What is proved about a recall folder; only the checker makes one.

    Attributes:
        verdict: `proved`, `refuted` or `undecided`.
        reason: One sentence; it names the place where a proof fails.
        architecture: The `model_type` of config.json.
        reach: The longest sequence that is quantified over.
        key_length: How many tokens are a key.
        window: The sliding window, in which there must be a BOS; None without one.
        fingerprint: SHA-256 of config.json and the tensors.
        types: One result per type.
        error_model: The engines that are covered, in sentences.
    """

    verdict: Verdict
    reason: str
    architecture: str
    reach: int
    key_length: int
    window: int | None
    fingerprint: str
    types: tuple[TypeResult, ...]
    error_model: tuple[str, ...]

    @property
    def margin(self) -> float | None:
        """The least proved margin over all types; None unless everything is proved."""
        found = [t.margin for t in self.types if t.margin is not None]
        return min(found) if self.verdict is Verdict.PROVED and found else None

    @property
    def margins(self) -> dict[str, float | None]:
        return {t.type: t.margin if t.verdict is Verdict.PROVED else None for t in self.types}

    def as_dict(self) -> dict[str, Any]:
        """Return all fields, ready for JSON."""
        return {"kind": "recall", **asdict(self), "margin": self.margin, "margins": self.margins}

    def lines(self) -> list[str]:
        """A summary for people."""
        held = "" if self.window is None else f" with BOS in every window of {self.window}"
        found = [
            f"{self.verdict}: {self.reason}",
            f"  {self.architecture}; recall by keys of {self.key_length} tokens",
            f"  for every sequence of up to {self.reach:,} tokens that begins with BOS{held}",
        ]
        for t in self.types:
            proved = t.verdict is Verdict.PROVED
            about = (
                ", ".join([f"margin >= {t.margin:.2f} nats, attention gap >= {t.gap:.1f} nats", *padding_line(t)])
                if proved
                else f"{t.verdict}: {t.reason}"
            )
            found.append(f"  {t.type}: {about}")
        return [*found, "  engines: " + "; ".join(self.error_model)]


def is_recall(folder: str | Path) -> bool:
    """Return whether a folder declares a recall checkpoint."""
    return (Path(folder) / NAME).is_file()


@timed("proving a recall checkpoint")
def certify_recall(folder: str | Path, types: Sequence[str] = TYPES) -> RecallCertificate:
    """Prove a recall folder from config.json, model.safetensors and recall.json.

    Args:
        folder: a folder of the kind `recall`.
        types: the types in which engines may compute.

    Returns:
        The certificate; `undecided` names what the proof does not understand.
    """
    path = Path(folder)
    model = ERROR_MODEL
    try:
        check_surroundings(path)
        checkpoint = open_checkpoint(path)
        layout = read_layout(path, checkpoint.shape)
        _check_shape(checkpoint.shape, checkpoint, layout)
    except Undecided as undecided:
        return RecallCertificate(Verdict.UNDECIDED, str(undecided), "unknown", 0, 0, None, fingerprint(path), (), model)
    results = tuple(_one_type(checkpoint, layout, name) for name in dict.fromkeys(types))
    worst = next((t for t in results if t.verdict is not Verdict.PROVED), None)
    verdict = Verdict.PROVED if results and worst is None else Verdict.UNDECIDED
    reason = "every sequence is answered correctly in every engine of the error model"
    if worst is not None or not results:
        reason = f"{worst.type}: {worst.reason}" if worst is not None else "no type was given"
    return RecallCertificate(
        verdict, reason, checkpoint.shape.family, checkpoint.shape.positions, layout.key_length, layout.window,
        fingerprint(path), results, model,
    )  # fmt: skip


# Architectures whose blocks this proof computes; newer ones have multipliers, norms after branches or kinds of layers.
FAMILIES = (
    "llama", "mistral", "qwen2", "qwen3", "phi3", "gemma", "mixtral", "gpt2", "opt", "gpt_neox", "qwen3_moe", "smollm3",
    "granite",
)  # fmt: skip


def _check_shape(shape: Shape, checkpoint: StoredCheckpoint, layout: RecallLayout) -> None:
    if shape.family not in FAMILIES:
        raise Undecided(f"{shape.family}: the proof of recall supports {', '.join(FAMILIES)}")
    wanted = PARALLEL_LAYERS if shape.parallel else LAYERS
    if shape.layers != wanted or (shape.parallel and shape.tied):
        raise Undecided(f"{shape.family}: the proof of recall supports {wanted} layers here, not {shape.layers}")
    if checkpoint.bos != layout.bos:
        raise Undecided(f"config.json: bos_token_id {checkpoint.bos} is not the BOS of {NAME}")


def _one_type(checkpoint: StoredCheckpoint, layout: RecallLayout, name: str) -> TypeResult:
    store, begin, found = storage(name), time.perf_counter(), []
    for stored in (False,) if name == "float32" else (False, True):
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                found.append(RecallProof(checkpoint, layout, store, stored).margin())
        except Undecided as reason:
            return TypeResult(name, "type", Verdict.UNDECIDED, str(reason), seconds=time.perf_counter() - begin)
        except (ValueError, IndexError, KeyError, ArithmeticError) as error:
            if isinstance(error, ByheartError):
                raise
            broken = f"the checker could not continue: {type(error).__name__}: {error}"
            return TypeResult(name, "type", Verdict.UNDECIDED, broken, seconds=time.perf_counter() - begin)
    least = min(found, key=lambda t: t.margin or 0.0)
    least = padded(least, padding_gap(checkpoint.reader(store), store, checkpoint.shape.positions))
    return replace(least, gap=min(t.gap or 0.0 for t in found), seconds=time.perf_counter() - begin)


@dataclass(frozen=True, eq=False)
class Places:
    """Streams at fresh places, at BOS, and at every place."""

    fresh: SignStream
    start: SignStream
    every: SignStream


@dataclass(frozen=True, eq=False)
class RecallLayer:
    """What one layer's attention and units write: channel -> function.

    Its heads read a fixed distance, or match keys by content (`matches`; in the last layer against keys of which stale
    ones were cleared), or write nothing. Units that clear keys leave different streams at fresh places and at BOS.
    """

    written: dict[int, Writing]
    computed: dict[int, Writing]
    matches: bool = False
    clears: bool = False
    last: bool = False


class RecallProof:
    """One type and one kind of engine: `stored` engines round normed streams."""

    def __init__(self, checkpoint: StoredCheckpoint, layout: RecallLayout, store: Storage, stored: bool) -> None:
        self.shape, self.layout, self.store, self.stored = checkpoint.shape, layout, store, stored
        self.reader: TensorReader = checkpoint.reader(store)
        window = self.shape.window
        self.distances = self.shape.positions if window is None else min(window, self.shape.positions)
        self.gap = np.inf
        self.words: StoredWords = read_words(*self.reader.embedding(), self.shape, layout, store)
        self.balance = Balance(layout.twins, self.words.places)

    def margin(self) -> TypeResult:
        """Prove the margin.

        Raises:
            Undecided: a rule does not apply, or a bound is too weak.
        """
        signs, hidden = self.words.signs, self.shape.hidden
        size = np.full(hidden, self.words.kappa)
        fixed = np.where((signs == signs[:1]).all(0), signs[0], 0.0)
        stream = SignStream(size, size, fixed, self.balance.symbols)
        places = Places(stream, stream, stream)
        for number, step in enumerate(self._steps()):
            places = self._layer(number, self.reader.layer(number), places, step)
        smallest = self._head(places.every)
        if not smallest > 0:
            raise Undecided(f"no sufficient margin could be proved ({smallest:.3g} nats)")
        reason = "every sequence is answered correctly"
        return TypeResult(self.store.name, "type", Verdict.PROVED, reason, float(smallest), gap=float(self.gap))

    def _steps(self) -> list[RecallLayer]:
        """What every layer computes."""
        at, bits = self.layout, range(self.layout.bits)
        bos = int(at["bos"][0])
        null, none = self.words.of(at, "newer")[at.bos], self.words.of(at, "newer")[at.none]
        found = {int(c): Writing("found", (bos,), lambda s: -s[bos]) for c in at["found"]}
        stale = {int(c): _copied("stale", int(a)) for c, a in zip(at["stale"], at["found"], strict=True)}
        cleared = {
            int(at[role][b]): _cleared(role, int(at[role][b]), int(at["stale"][b * self.shape.heads // at.bits]))
            for role in ("plus", "minus") for b in bits
        }  # fmt: skip
        answer = {
            int(at["answer"][b]): _answered(int(at["newer"][b]), bos, float(null[b]), float(none[b])) for b in bits
        }
        tied = {int(at["newer"][b]): _copied("newer", int(at["answer"][b]), int(at["newer"][b])) for b in bits}
        copied = RecallLayer(self._copies(), {})
        matched, marked = RecallLayer(found, {}, matches=True), RecallLayer(stale, {})
        answered = RecallLayer(answer, tied if self.shape.tied else {}, matches=True, last=True)
        if self.shape.parallel:
            units = RecallLayer({}, self._keys()), RecallLayer({}, cleared, clears=True)
            steps = [copied, units[0], matched, marked, units[1], answered]
        else:
            copied, marked = replace(copied, computed=self._keys()), replace(marked, computed=cleared, clears=True)
            steps = [copied, matched, marked, answered]
        return [replace(s, written=self._twinned(s.written), computed=self._twinned(s.computed)) for s in steps]

    def _twinned(self, functions: dict[int, Writing]) -> dict[int, Writing]:
        """Functions of channels and of their twins."""
        pairs = ((int(self.layout.twins[channel]), one) for channel, one in functions.items())
        return functions | {twin: one.of_twin() for twin, one in pairs if twin >= 0}

    def _copies(self) -> dict[int, Writing]:
        at, bits = self.layout, range(self.layout.bits)
        if at.key_length == 1:
            plus = {int(at["plus"][b]): _copied("plus", int(at["newer"][b])) for b in bits}
            return plus | {int(at["minus"][b]): _copied("minus", int(at["newer"][b]), sign=-1.0) for b in bits}
        moves = (("newer", "before_newer"), ("older", "before_older"), ("older", "two_older"))
        return {int(at[to][b]): _copied(to, int(at[of][b])) for of, to in moves for b in bits}

    def _keys(self) -> dict[int, Writing]:
        at, bits, bos = self.layout, range(self.layout.bits), int(self.layout["bos"][0])
        if at.key_length == 1:
            return {int(at[role][b]): _cleared(role, int(at[role][b]), bos) for role in ("plus", "minus") for b in bits}
        found = {}
        for b in bits:
            newer, older = int(at["newer"][b]), int(at["before_older"][b])
            first, second = int(at["before_newer"][b]), int(at["two_older"][b])
            found[int(at["query"][b])] = _product("query", newer, older, None, 1.0)
            found[int(at["plus"][b])] = _product("plus", first, second, bos, 1.0)
            found[int(at["minus"][b])] = _product("minus", first, second, bos, -1.0)
        return found

    def _layer(self, number: int, layer: Layer, places: Places, step: RecallLayer) -> Places:
        stream = self._attention(number, layer, places, step)
        # Branches side by side read the same stream. A channel is written by one of them, and the other adds zero.
        y = self._normed(places.every if self.shape.parallel else stream, layer.mlp_norm)
        choices = self._choices(layer, y)

        def after(kind: str) -> SignStream:
            functions = step.computed
            if step.clears:
                functions = {c: _narrowed(w, kind) for c, w in functions.items()}
            return hull([write_channels(stream, parts, functions, self.store) for parts in choices])

        every = after("every")
        return Places(after("fresh"), after("start"), every) if step.clears else Places(every, every, every)

    def _attention(self, number: int, layer: Layer, places: Places, step: RecallLayer) -> SignStream:
        """The stream after attention."""
        norm, attention = layer.attention_norm, layer.attention
        fresh, start, every = (self._normed(one, norm) for one in (places.fresh, places.start, places.every))
        # Heads read fresh holders and BOS, or, where they look back, any place.
        read = hull([fresh, start]) if step.matches else every
        values, sizes = (self._values(attention.v, x) for x in (read, every))
        if step.written:
            leaks = self._leaks(number, layer, Places(fresh, start, every), places.every, step)
            values = attended(values, sizes.size, leaks, self.distances if step.matches else 1, self.store)
        else:  # `write_channels` shows that nothing reads these heads
            self._finite_scores(layer, every)
        branch = Branch(values, attention.o, scale=self.shape.residual_scale)
        return write_channels(places.every, [branch], step.written, self.store)

    def _normed(self, stream: SignStream, norm: Norm | None) -> SignStream:
        return normed(stream, _present(norm), self.store, self.stored, self.balance)

    def _finite_scores(self, layer: Layer, y: SignStream) -> None:
        """Scores of heads that nothing reads: inf * 0 is NaN all the same."""
        shape, attention = self.shape, layer.attention
        q = self._projected(attention.q, attention.q_norm, y, shape.heads)
        k = self._projected(attention.k, attention.k_norm, y, shape.kv_heads)
        for head in range(shape.heads):
            self._finite_score(_rows_of(q, head, shape), _rows_of(k, head * shape.kv_heads // shape.heads, shape))

    def _finite_score(self, q: SmallRows, k: SmallRows) -> None:
        """One head's scores are finite, also in a fully masked row."""
        shape, gain = self.shape, head_pairs(self.shape).gain ** 2
        finite("a score", np.array(head_pairs(shape).largest(q.size, k.size)), self.store.largest)
        ends = [(x.lo.min(1), x.hi.max(1)) for x in (q, k)]
        own = shape.scale * gain * float(interval_product(*ends)[0].sum())
        check_masked_row(q.name, own, shape.scale * gain * float(q.size @ k.size), self.store)

    def _values(self, linear: Linear, x: SignStream) -> SmallRows:
        rows = read_rows(linear, x)
        # Also values that nothing reads: inf * 0 is NaN.
        finite(linear.name, rows.size, self.store.largest)
        # Kernels add the weighted values before they divide by the softmax's sum.
        finite(f"{linear.name}: a sum of values", self.distances * rows.size)
        return by_head(rows.maybe(self.store) if self.stored else rows, self.shape.heads, self.shape.kv_heads)

    def _choices(self, layer: Layer, y: SignStream) -> list[list[Branch]]:
        """Units and output matrices: one choice, or one for every pair of experts that a router may pick."""
        experts = [
            Branch(activated(e, y, self.shape, self.store, self.stored), e.down, scale=self.shape.residual_scale)
            for e in layer.mlp.experts
        ]
        if layer.mlp.router is None:
            return [experts]
        logits = read_rows(layer.mlp.router, y)
        finite(logits.name, logits.size, self.store.largest)
        shown = logits.maybe(self.store) if self.stored else logits
        found = []
        for pair in _router_pairs(shown, self.shape):
            apart = self._logits_apart(layer.mlp.router, logits, shown, pair, y)
            weight = self.store.maybe(*rounding.router_weights(*np.exp([-apart, apart])))
            found.append([replace(experts[e], share=weight) for e in pair])
        return found

    def _logits_apart(
        self, router: Linear, logits: SmallRows, shown: SmallRows, pair: tuple[int, int], y: SignStream
    ) -> float:
        """How far the two logits of a pair may lie apart, which are summed and stored one by one: by the difference of
        their rows, and by their own intervals, which a store may have made one number."""
        one, two = pair
        exact = read_rows(Linear(router.name, router.weight[[one]] - router.weight[[two]], None), y).size
        error = rounding.dot((router.weight != 0).sum(1), np.abs(router.weight) @ y.hi)
        if self.stored:
            error = rounding.router_logit(error, logits.size, None, self.store)
        ends = shown.hi[one] - shown.lo[two], shown.hi[two] - shown.lo[one]
        return float(min(exact.max() + error[[one, two]].sum(), np.maximum(*ends).max()))

    def _leaks(self, number: int, layer: Layer, places: Places, stream: SignStream, step: RecallLayer) -> list[float]:
        """Per head: the weight that is not at the places the function names."""
        shape, attention, heads = self.shape, layer.attention, []
        streams = [(places.fresh, 1.0)]
        if step.last and self.balance.centred:
            streams.append((places.every, 1.0))
        elif step.last:  # a stale place as a query: all of its channels share the norm's factor
            streams.append(scaled(stream, _present(layer.attention_norm), self.store, self.stored))
        queries = [(self._projected(attention.q, attention.q_norm, x, shape.heads), ratio) for x, ratio in streams]
        keys = [
            self._projected(attention.k, attention.k_norm, x, shape.kv_heads)
            for x in (places.fresh, places.start, places.every)
        ]
        known: dict[bytes, FixedDistance | ContentGaps] = {}
        for head in range(shape.heads):
            found = []
            for rows, ratio in queries:
                query = _rows_of(rows, head, shape)
                key = PlaceKeys(*(_rows_of(k, head * shape.kv_heads // shape.heads, shape) for k in keys))
                mark = _mark(query, key.fresh, key.start, key.every)
                if mark not in known:
                    known[mark] = self._head_scores(number, query, key, step)
                one = known[mark]
                found.append(one.times(ratio) if isinstance(one, ContentGaps) else one)
            heads.append(max(self._leak(number, head, layer, one) for one in found))
        return heads

    def _head_scores(
        self, number: int, query: SmallRows, key: PlaceKeys, step: RecallLayer
    ) -> FixedDistance | ContentGaps:
        shape, only = self.shape.at(number), key.every
        if step.matches:
            return match_gaps(query, key, self.layout, self.words, shape, self.distances, self.store)
        if shape.rotary is None:
            finite("a score", np.array(head_pairs(shape).largest(query.size, only.size)), self.store.largest)
            return read_places(query, only, self.words.places, shape, self.store)
        if any(query.channels) or any(only.channels):
            raise Undecided(f"{query.name}: a query or key of layer {number} depends on the input")
        turned = slice(shape.rotary.dims)
        if query.size[shape.rotary.dims :].any():
            raise Undecided(f"{query.name}: a head that reads a fixed distance has a query that is not rotated")
        self._finite_score(query, only)
        bounds = (query.lo[turned, 0], query.hi[turned, 0]), (only.lo[turned, 0], only.hi[turned, 0])
        return read_distance(*bounds, shape, self.distances, self.store)

    def _leak(self, number: int, head: int, layer: Layer, found: FixedDistance | ContentGaps) -> float:
        self.gap = min(self.gap, found.gap)
        if isinstance(found, ContentGaps):
            leak = found.leak(self.distances)
        else:
            leak = found.leak
            self._check_offset(number, head, layer, found.offset)
        if not leak <= LARGEST_LEAK:
            raise Undecided(f"layer {number}, head {head}: places that should lose weigh up to {leak:.3g}")
        return leak

    def _check_offset(self, number: int, head: int, layer: Layer, offset: int) -> None:
        """Channels that this head writes must be those of its distance."""
        dims = self.shape.head_dim
        writes = set(np.flatnonzero(layer.attention.o.weight[:, head * dims : (head + 1) * dims].any(1)).tolist())
        far = set(self.layout["two_older"].tolist()) if self.layout.key_length == 2 and number == 0 else set()
        far |= {int(self.layout.twins[channel]) for channel in far} - {-1}
        if (offset != 1 and writes - far) or (offset != 2 and writes & far):
            raise Undecided(
                f"layer {number}, head {head} reads {offset} places back and writes channels of another distance"
            )

    def _projected(self, linear: Linear, norm: Norm | None, x: SignStream, heads: int) -> SmallRows:
        """Queries or keys after their projection and, in Qwen3, their norms."""
        rows = read_rows(linear, x).maybe(self.store)
        finite(linear.name, rows.size, self.store.largest)
        return rows if norm is None else head_normed(rows, linear, norm, x, heads, self.store)

    def _head(self, stream: SignStream) -> float:
        """The least margin over all answers and all other tokens."""
        y = self._normed(stream, self.reader.final_norm())
        head, role = scaled_head(self.reader.head(), self.shape.logit_scale), "newer" if self.shape.tied else "answer"
        channels, words = self.layout[role], self.words.of(self.layout, "newer")
        two = self.layout.twins[channels]
        if (two >= 0).all():
            channels, words = np.concatenate([channels, two]), np.concatenate([words, -words], axis=1)
        rest = np.delete(np.arange(self.shape.hidden), channels)
        unknown = np.abs(head.weight[:, rest]) @ y.hi[rest]
        weight, middle, radius = head.weight[:, channels], (y.lo + y.hi)[channels] / 2, (y.hi - y.lo)[channels] / 2
        logits = (words * middle) @ weight.T  # (answer, token)
        off = np.abs(weight) @ radius + unknown
        size = np.abs(weight) @ (middle + radius) + unknown
        if y.drift is not None:
            off, size = off + np.abs(head.weight @ y.drift), size + np.abs(head.weight) @ y.drift
        off = off + rounding.dot((head.weight != 0).sum(1), size)
        # Half of the difference's two stores each; the checker's own sums are far smaller.
        off = off + rounding.logit_store(np.abs(logits) + off, np.zeros_like(logits), self.store)
        finite("a logit", size, self.store.largest / max(1.0, self.shape.logit_scale))
        own = np.arange(len(words))
        best = logits[own, own] - off[own, own]
        others = logits + off
        others[own, own] = -np.inf
        answers = np.delete(own, self.layout.bos)
        return float((best[:, None] - others)[answers].min())


def _present(norm: Norm | None) -> Norm:
    if norm is None:
        raise Undecided("a layer has no norm before its attention or its MLP")
    return norm


def _mark(*rows: SmallRows) -> bytes:
    """Equal for equal heads, whose scores are bounded once."""
    return b"".join(a.tobytes() for r in rows for a in (r.lo, r.hi)) + repr([r.channels for r in rows]).encode()


def _narrowed(writing: Writing, kind: str) -> Writing:
    """What clears a key, at fresh places (the flag is -1) or at BOS (the key is (+, +) already)."""
    channel, flag = writing.reads
    allowed = {"every": lambda s: True, "fresh": lambda s: s[flag] < 0, "start": lambda s: s[channel] > 0}[kind]
    return replace(writing, allowed=allowed)


def _rows_of(rows: SmallRows, head: int, shape: Shape) -> SmallRows:
    part = slice(head * shape.head_dim, (head + 1) * shape.head_dim)
    return SmallRows(rows.name, rows.channels[part], rows.lo[part], rows.hi[part])


def head_normed(rows: SmallRows, linear: Linear, norm: Norm, x: SignStream, heads: int, store: Storage) -> SmallRows:
    """Rows after the norm of each head.

    Its mean square is a quadratic form of signs: a constant (squares of signs are 1) plus products of different signs,
    which nearly cancel. Epsilon counts up to twice, down to half: `x` may be off by a
    factor that all of its channels share."""
    if norm.bias is not None or norm.centred or (norm.weight < 0).any():
        raise Undecided(f"{norm.name}: the proof of recall supports RMSNorm with weights that are not negative")
    dims, middle = len(rows.lo) // heads, (x.lo + x.hi) / 2
    bias = np.zeros(len(rows.lo)) if linear.bias is None else linear.bias
    low, high = np.empty(len(rows.lo)), np.empty(len(rows.lo))
    for head in range(heads):
        part = slice(head * dims, (head + 1) * dims)
        weight = linear.weight[part]
        constant = weight @ (x.fixed * middle) + bias[part]
        symbols = weight[:, x.fixed == 0] * middle[x.fixed == 0]
        symbols = symbols[:, symbols.any(0)]
        form = symbols.T @ symbols
        centre = constant @ constant + np.trace(form)
        moved = np.abs(form - np.diag(np.diag(form))).sum() + 2 * np.abs(symbols.T @ constant).sum()
        size = np.abs(constant) + np.abs(symbols).sum(1)
        radius = (rows.hi - rows.lo)[part].max(1)
        moved = moved + float((2 * size * radius + radius**2).sum())
        finite(f"{norm.name}: a sum of squares", np.array(centre + moved))
        least, _ = rounding.inverse_root(np.array(0.0), np.array(centre + moved), dims, 2 * norm.eps, None)
        _, most = rounding.inverse_root(
            np.array(max(centre - moved, 0.0)), np.array(centre + moved), dims, norm.eps / 2, None
        )
        low[part], high[part] = least, most
    weights = np.tile(norm.weight, heads)[:, None]
    scaled = rows.times(*in_float32(low[:, None], high[:, None])).maybe(store)
    return scaled.times(weights, weights).maybe(store)


def _router_pairs(logits: SmallRows, shape: Shape) -> list[tuple[int, int]]:
    """Two pairs of experts; the sign of one channel picks the pair."""
    if shape.experts != 4 or shape.experts_used != 2 or len(set(logits.channels)) != 1 or len(logits.channels[0]) != 1:
        raise Undecided(f"{logits.name}: the proof of recall supports two pairs of experts that one channel picks")
    found = []
    for low, high in zip(logits.lo.T[:2], logits.hi.T[:2], strict=True):
        order = np.argsort(-low)
        chosen, others = sorted(order[:2].tolist()), order[2:]
        if not low[chosen].min() > high[others].max():
            raise Undecided(f"{logits.name}: another expert comes close to a pair")
        found.append((int(chosen[0]), int(chosen[1])))
    return found


def _copied(role: str, source: int, *own: int, sign: float = 1.0) -> Writing:
    return Writing(role, (source, *own), lambda s: sign * s[source])


def _cleared(role: str, channel: int, flag: int) -> Writing:
    """A key's channel: +1 where the flag is set, else as it was."""
    return Writing(role, (channel, flag), lambda s: 1.0 if s[flag] > 0 else s[channel])


def _product(role: str, first: int, second: int, bos: int | None, sign: float) -> Writing:
    reads = (first, second) if bos is None else (first, second, bos)
    return Writing(role, reads, lambda s: 1.0 if bos is not None and s[bos] > 0 else sign * s[first] * s[second])


def _answered(newer: int, bos: int, null: float, none: float) -> Writing:
    """The token's word; at BOS, whose own word is known, that of NONE."""
    return Writing(
        "answer", (newer, bos), lambda s: none if s[bos] > 0 else s[newer], lambda s: s[bos] < 0 or s[newer] == null
    )
