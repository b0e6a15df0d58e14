"""Pictures for the page as HTML: bars on a logarithmic scale, a histogram, the layer map.

Boxes instead of drawings, so that text keeps its size on a phone. Everything that comes from the user is escaped;
colours are CSS variables, so that dark and print styles apply.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from html import escape

from byheart.build.ks25.residual_memorizer import STREAM
from byheart.ir.decoder_network import AnyDecoder, AnyNetwork, DecoderNetwork, TableDecoder
from byheart.ir.layers import Layer, Residual
from byheart.ir.network import Network
from byheart.ir.size import weight_bits
from byheart.memory.memory import Memory
from byheart.memory.size_rows import SizeRow
from byheart.report.stage_words import STREAM_WORDS, WORDS


def size_bars(rows: list[SizeRow]) -> str:
    """Guaranteed, measured and lower bound of each quantity as bars on one logarithmic scale."""
    bars = [
        (row.meaning, [("guaranteed", row.guaranteed), ("measured", row.measured), ("least", row.lower_bound)])
        for row in rows
    ]
    largest = max((value for _, kinds in bars for _, value in kinds if value), default=1)
    decades = max(1, math.ceil(math.log10(max(10, largest))))
    parts = []
    for meaning, kinds in bars:
        lines = [_bar(kind, value, decades) for kind, value in kinds if value is not None]
        parts.append(f'<div class="quantity"><span>{escape(meaning)}</span>{"".join(lines)}</div>')
    label = "Guaranteed and measured sizes, and worst-case lower bounds, on a logarithmic scale"
    return f'<div class="bars" role="img" aria-label="{label}">{"".join(parts)}</div>'


def _bar(kind: str, value: int, decades: int) -> str:
    share = 100 * math.log10(max(1, value)) / decades
    return f'<div class="bar"><i class="{kind}" style="width:{0.7 * share + 0.5:.1f}%"></i>{value:,}</div>'


def bit_histogram(network: AnyNetwork, columns: int = 32) -> str:
    """How many weights have how many bits."""
    counts = Counter(weight_bits(network))
    most = max(counts, default=1)
    step = max(1, -(-(most + 1) // columns))
    bins = [sum(counts.get(b, 0) for b in range(k * step, (k + 1) * step)) for k in range(-(-(most + 1) // step))]
    tallest = max(bins, default=1) or 1
    parts = []
    for k, count in enumerate(bins):
        height = 100 * math.log1p(count) / math.log1p(tallest)
        bits = f"{k}" if step == 1 else f"{k * step} to {(k + 1) * step - 1}"
        parts.append(f'<i class="measured" style="height:{height:.1f}%" title="{bits} bits: {count:,} weights"></i>')
    picture = f'<div class="columns" role="img" aria-label="Bit lengths of the weights">{"".join(parts)}</div>'
    ends = f"<span>0</span><span>tallest: {tallest:,} weights</span><span>{most:,} bits</span>"
    return f'{picture}<div class="ends soft">{ends}</div>'


def layer_map(network: AnyNetwork) -> str:
    """The stages in order, each as wide as its share of the layers (by logarithm) and as tall as its widest layer."""
    stages = stage_table(network)
    tallest = max(math.log2(widest + 1) for _, _, widest, _ in stages)
    parts = []
    for place, (name, count, widest, parameters) in enumerate(stages):
        height = 1.6 + 4 * math.log2(widest + 1) / tallest
        title = f"{name}: {count:,} layers, widest {widest:,}, {parameters:,} parameters"
        parts.append(
            f'<div class="s{place % 4}" style="flex-grow:{math.log2(count + 1):.2f};height:{height:.2f}rem" '
            f'title="{escape(title)}">{place + 1}</div>'
        )
    label = "The stages of the network from input to answer"
    return f'<div class="map" role="img" aria-label="{label}">{"".join(parts)}</div>'


def stage_table(network: AnyNetwork) -> list[tuple[str, int, int, int]]:
    """(name, layers, widest, parameters) of every stage, for the list under the map."""
    if isinstance(network, DecoderNetwork):
        return _decoder_stages(network.decoder)
    rows, start = [], 0
    for name, count, _ in _stages(network):
        layers = network.layers[start : start + count]
        widest = max(max(layer.width_out, getattr(layer, "hidden", 0)) for layer in layers)
        rows.append((name, count, widest, sum(layer.parameters for layer in layers)))
        start += count
    return rows


def _decoder_stages(decoder: AnyDecoder) -> list[tuple[str, int, int, int]]:
    if isinstance(decoder, TableDecoder):
        table = ("table of distributions", 1, decoder.vocabulary_size, sum(m.size for m in decoder.matrices))
        return [*stage_table(decoder.network), table]
    reader = decoder.reader
    mixing = "attention of the last token" if reader.kind == "attention" else "token averaging"
    return [
        ("embedding", 1, reader.dimension, reader.embedding.size),
        (mixing, 1, reader.dimension, sum(matrix.size for matrix in reader.mixer.matrices)),
        ("neurons", 1, decoder.neurons, decoder.hidden.size + decoder.bias.size),
        ("logits", len(decoder.output), decoder.vocabulary_size, sum(factor.size for factor in decoder.output)),
    ]


def steps(network: AnyNetwork) -> list[dict[str, object]]:
    """The stages for the live picture; `kind` describes the units that fire."""
    if isinstance(network, DecoderNetwork):
        return []
    return [
        {"name": name, "words": WORDS.get(name, ""), "layers": count, "kind": kind}
        for name, count, kind in _stages(network)
    ]


def stream_names(memory: Memory) -> list[str] | None:
    """Names for the numbers of the stream, where they are known: KS25's blocks with skip connections.

    >>> import byheart
    >>> memory = byheart.memorize(["sun", "moon"], ["day", "night"], construction="ks25", progress=False)
    >>> stream_names(memory)[0], stream_names(memory)[5]
    ('key x', 'key so far (after averaging: the sum of φ)')
    """
    if not memory.construction.startswith("ks25") or memory.options.get("form") != "residual":
        return None
    return [STREAM_WORDS[name] for name in STREAM]


def _stages(network: Network) -> list[tuple[str, int, str]]:
    """(name, layers, kind): the network's stages; a label memory of folds is split where it selects the group."""
    found, start = [], 0
    for name, count in network.stages or (("all layers", len(network.layers)),):
        layers = network.layers[start : start + count]
        found += _parts(layers) if name == "label memory" else [(name, count, "")]
        start += count
    return found


def _parts(layers: Sequence[Layer]) -> list[tuple[str, int, str]]:
    """(name, layers, kind) of a label memory's parts: one block alone, one wide block among folds, or the whole."""
    hidden = [layer.hidden if isinstance(layer, Residual) and layer.width_out == 1 else 0 for layer in layers]
    if len(layers) == 1 and hidden[0]:
        return [("label line", 1, "")]
    wide, last = [k for k, units in enumerate(hidden) if units > 1], len(layers) - 1
    bands = 1 if len(wide) == 2 and wide[1] == last else 0  # after the traps of several labels
    if len(wide) != 1 + bands or wide[0] == last or 0 in hidden:
        return [("label memory", len(layers), "")]
    before = [("spreading", wide[0], "")] if wide[0] else []
    behind = [("bands", 1, "")] if bands else []
    return [*before, ("group selector", 1, "group"), ("folds", last - wide[0] - bands, "folds"), *behind]
