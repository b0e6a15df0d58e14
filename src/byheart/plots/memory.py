"""A memory as pictures: its sizes between guarantee and lower bound, and where its bits are.

>>> import byheart
>>> memory = byheart.memorize(["cat", "act"], [0, 1], progress=False)
>>> size_figure(memory).axes[0].get_xlabel(), weights_figure(memory).axes[0].get_xlabel()
('size', 'layer')

`way_figure` shows one window's way through a computed checkpoint: the targets of its heads, the active unit, the
output. Everything is read from the running network: the picture shows the tensors of the folder, not the plan.

`contexts_figure` shows a contextual mapping: the position of each token of each sequence on the line of ids.

`condition_figure` shows the conditioning of M24's algorithm: condition numbers against the dimension of the draw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from byheart.build.madden24.construction import TELLABLE
from byheart.checkpoints.engines.queries import read_queries
from byheart.checkpoints.formats.stock import StockDecoder, read_decoder
from byheart.data.wording import short
from byheart.errors import MissingExtraError, OptionError
from byheart.exact import bit_length
from byheart.ir.decoder_network import DecoderNetwork
from byheart.ir.size import FLOAT_BITS
from byheart.memory.contextual import ContextualMapping
from byheart.memory.memory import Memory
from byheart.memory.size_rows import size_rows
from byheart.plots.style import colour, label_axes, marker, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def condition_figure(lines: Sequence[tuple[int, str, Mapping[int, float]]]) -> Figure:
    """A line for each (contexts, kind, {dimension: condition number}); one colour per number of contexts, and all that
    is infinite is plotted at the largest number that float64 resolves."""
    figure = new_figure(height=5.0)
    counts = list(dict.fromkeys(count for count, _, _ in lines))
    kinds = list(dict.fromkeys(kind for _, kind, _ in lines))
    with styled():
        axes = figure.axes[0]
        for count, kind, found in lines:
            place, dashes = counts.index(count), ("-", "--", ":", "-.")[kinds.index(kind) % 4]
            label = f"n = {count:,}, {kind}"
            heights = [min(number, TELLABLE) for number in found.values()]
            axes.plot(list(found), heights, marker(place) + dashes, color=colour(place), label=label)
        right = max(dimension for _, _, found in lines for dimension in found)
        axes.axhline(TELLABLE, color="#7F7F7F", linewidth=0.8)
        words = "at this value or above: float64 cannot solve the system"
        axes.annotate(words, (right, 1.4 * TELLABLE), fontsize=8, color="#5F5F5F", ha="right")
        label_axes(axes, "Sampling all of θ: condition number of the system for V", "dimension d", "condition number")
        axes.set_xscale("log", base=2)
        figure.legend(loc="outside lower center", ncols=3)
    return figure


LIMITS = {"guaranteed": "guaranteed by the theorem", "budget": "budget, tuned"}
_THICK = 0.26  # of a bar; three of them are side by side


def size_figure(memory: Memory) -> Figure:
    """Guaranteed and measured sizes, and worst-case lower bounds, as bars on a logarithmic scale."""
    rows = size_rows(memory)
    figure = new_figure(width=7.6, height=0.62 * len(rows) + 1.3)
    kinds: list[tuple[str, list[int | None], str]] = [
        (LIMITS[memory.claim.limit], [row.guaranteed for row in rows], "#B8C4D0"),
        ("measured", [*(row.measured for row in rows)], colour(0)),
        ("worst-case lower bound", [row.lower_bound for row in rows], colour(1)),
    ]
    with styled():
        axes = figure.axes[0]
        for offset, (name, values, ink) in enumerate(kinds):
            places = [place + (offset - 1) * _THICK for place, value in enumerate(values) if value]
            bars = axes.barh(places, [value for value in values if value], _THICK, color=ink, label=name)
            axes.bar_label(bars, [f"{value:,}" for value in values if value], padding=3, fontsize=7.5)
        label_axes(axes, f"{memory.construction}: {memory.certificate.rows:,} rows memorized", "size", "", log=False)
        axes.set_xscale("log")
        axes.set_xlim(0.8, 12 * max(max(filter(None, values), default=1) for _, values, _ in kinds))
        axes.set_yticks(range(len(rows)), [row.meaning for row in rows])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        figure.legend(loc="outside lower center", ncols=3)
    return figure


def contexts_figure(mapping: ContextualMapping, most: int = 40) -> Figure:
    """Plot KS25's Definition 4.1: one line per sequence, each token at its context id.

    Left the sequence id, which is the same for sequences with equal multisets; tokens of one colour are equal tokens
    (vectors are numbered in the order in which they come up), and no two contexts come closer than δ. Of more than
    `most` sequences the first ones are shown, as the title states.
    """
    rows = list(zip(mapping.sequences, mapping.context_ids, mapping.sequence_ids, strict=True))[:most]
    power = max(0, len(str(int(mapping.r))) - 300)  # a float is at most about 10^308
    unit, along = 10**power, f"context id / 10^{power}" if power else "context id"
    seen = {token: number for number, token in enumerate(dict.fromkeys(t for row, _, _ in rows for t in row))}
    marks = {token: f"{number + 1}" if isinstance(token, tuple) else str(token)[:3] for token, number in seen.items()}
    figure = new_figure(width=8.0, height=0.34 * len(rows) + 1.6)
    with styled():
        axes = figure.axes[0]
        for height, (tokens, ids, _) in enumerate(rows):
            axes.axhline(height, color="#B8C4D0", linewidth=0.6, zorder=0)
            for token, place in zip(tokens, ids, strict=True):
                x = float(place / unit)
                axes.plot(x, height, "o", color=colour(seen[token]), markersize=11)
                axes.text(x, height, marks[token], ha="center", va="center", fontsize=7, color="white")
        shown = f" (the first {len(rows)} of {len(mapping.sequences):,})" if len(rows) < len(mapping.sequences) else ""
        apart = "" if mapping.delta is None else f", different contexts at least {short(mapping.delta)} apart"
        label_axes(axes, f"{mapping.contexts:,} contexts{apart}{shown}", along, "sequence, its id", log=False)
        words = [" ".join(map(_word, tokens))[:24] for tokens, _, _ in rows]
        axes.set_yticks(
            range(len(rows)), [f"{word}  {short(id)}" for word, (_, _, id) in zip(words, rows, strict=True)]
        )
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
    return figure


def _word(token: Any) -> str:
    return f"({', '.join(short(Fraction(x)) for x in token)})" if isinstance(token, tuple) else str(token)


def weights_figure(memory: Memory) -> Figure:
    """Plot the length of the longest weight of each layer: long weights store the labels."""
    if isinstance(memory.network, DecoderNetwork):
        bits = [FLOAT_BITS for _ in memory.network.decoder.matrices]
    else:
        bits = [max((bit_length(weight) for weight in layer.weights()), default=0) for layer in memory.network.layers]
    figure = new_figure(width=8.0, height=3.0)
    with styled():
        axes = figure.axes[0]
        axes.bar(range(1, len(bits) + 1), bits, width=1.0, color=colour(0))
        title = f"{memory.construction}: bits of the longest weight, layer by layer"
        label_axes(axes, title, "layer", "bits", log=False)
    return figure


SHOWN = 10  # tokens before the answer


@dataclass(frozen=True, eq=False)
class LayerTrace:
    """The state of one layer at the last position."""

    shares: Any  # (heads, positions) of the attention
    units: Any  # (units,) activations of the MLP before the output matrix


def trace(decoder: StockDecoder, ids: Sequence[int]) -> tuple[list[LayerTrace], Any]:
    """The steps of every layer at the last position, and the logits there."""
    import torch

    from byheart.checkpoints.suite.machine import Machine

    machine = Machine(decoder)
    shares: list[Any] = []
    units: list[Any] = []
    outputs = {id(layer.mlp.experts[0].down) for layer in decoder.layers if layer.mlp.router is None}

    def keep_shares(step: Any, scores: Any, seen: Any) -> Any:
        found = step(scores, seen)
        shares.append(found[:, -1].numpy())
        return found

    def keep_units(step: Any, x: Any, linear: Any) -> Any:
        if id(linear) in outputs:
            units.append(x[-1].numpy())
        return step(x, linear)

    machine.wrap("weights", keep_shares).wrap("linear", keep_units)
    with torch.inference_mode():
        logits = machine.run(ids)[-1].numpy()
    return [LayerTrace(a, u) for a, u in zip(shares, units, strict=True)], logits


def way_figure(folder: str | Path, start: int = 40, length: int = SHOWN) -> Figure:
    """The way of the window that ends at position start + length - 1 of the first document."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MissingExtraError("names of tokens in a picture", "data") from None
    decoder, queried = read_decoder(folder), read_queries(folder)
    if decoder.shape.experts:
        raise OptionError("the picture shows one MLP per layer; this model has experts")
    ids = queried.documents[0][start : start + length]
    tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    names = [repr(tokenizer.decode([t], skip_special_tokens=False))[1:-1] for t in ids]
    steps, logits = trace(decoder, ids)
    with styled():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(11, 2.3 * len(steps) + 2.0), layout="constrained")
        grid = figure.add_gridspec(len(steps) + 1, 2, width_ratios=(1, 1.5))
        for depth, step in enumerate(steps):
            _draw_heads(figure.add_subplot(grid[depth, 0]), step, names, depth)
            _draw_units(figure.add_subplot(grid[depth, 1]), step, depth)
        _draw_logits(figure.add_subplot(grid[len(steps), :]), logits, tokenizer)
    return figure


def _draw_heads(axes: Axes, step: LayerTrace, names: Sequence[str], depth: int) -> None:
    axes.imshow(step.shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right", fontsize=8)
    axes.set_yticks(range(len(step.shares)), [f"head {h}" for h in range(len(step.shares))], fontsize=8)
    axes.grid(visible=False)
    axes.set_title(f"layer {depth}: attention of the last token")


def _draw_units(axes: Axes, step: LayerTrace, depth: int) -> None:
    axes.vlines(range(len(step.units)), 0, step.units, color=colour(0), linewidth=1)
    awake = int(abs(step.units).argmax())
    axes.plot([awake], [step.units[awake]], "o", color=colour(1), markersize=6)
    label_axes(axes, f"layer {depth}: unit {awake} recognizes the window", "unit", "activation", log=False)


def _draw_logits(axes: Axes, logits: Any, tokenizer: Any) -> None:
    best = int(logits.argmax())
    axes.bar(range(len(logits)), logits, width=1.0, color=colour(0))
    axes.bar([best], [logits[best]], width=2.5, color=colour(1))
    answer = repr(tokenizer.decode([best], skip_special_tokens=False))
    margin = logits[best] - sorted(logits)[-2]
    label_axes(axes, f"correct token {answer}: margin {margin:.1f} nats", "token", "logit", log=False)
