"""Mixtral: every MLP is a choice of two experts out of several.

Bits of the newest slot pick a pair of experts. Inside a pair the router's weights are 0.785 and 0.215; each of the two
holds one half of the pair's windows, and what its units write is divided by its weight. So a router that picks other
experts loses windows, and one that weighs them otherwise writes words of the wrong size. Probes are held by both: each
writes its half of the channels.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts._base import Checkpoint, common_config, llama_tensors, register
from byheart.checkpoints.hosts.description import Design, GatedDecoder, GatedWeights, SpecialTokens, fill_idle
from byheart.checkpoints.hosts.ends import LEAD, writes
from byheart.checkpoints.hosts.gated import PROBES, Demands, build_gated, unit_count
from byheart.checkpoints.hosts.layout import LayerStage
from byheart.checkpoints.hosts.recognising import PROBE_UNITS, Recognising
from byheart.checkpoints.windows.tables import ANY, Recital
from byheart.errors import OptionError

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
_UNIT_MULTIPLE = 32
_LOUDER = 3 / 2  # than Llama's logits: rounded router weights cost some of the lead
_WITHIN = 83  # 128ths: the router logit of a pair's first expert; its second has the opposite
# The inverses of the two weights, 0.7853 and 0.2147, as numbers of 8 bits: right to 4e-4, whatever the type.
_INVERSES = (163 / 128, 149 / 32)


@register("mixtral", model_type="mixtral", summary="Llama with experts, two per token")
def mixtral(recital: Recital, tokens: SpecialTokens, design: Design) -> Checkpoint:
    bits = _pair_bits(design.experts)
    decoder = build_gated(
        recital, tokens, replace(design, logit=design.logit * _LOUDER, units=None), Demands(free=True)
    )
    picking = [_picking_bits(decoder, stage, bits) for stage in decoder.stages]
    parts = [
        [_rows_of(decoder, stage, where, expert) for expert in range(design.experts)]
        for stage, where in zip(decoder.stages, picking, strict=True)
    ]
    factor = 2 if design.flavour == "plateau" else 1
    units = factor * max(len(rows) for experts in parts for rows in experts) + PROBE_UNITS
    units = unit_count(-(-units // _UNIT_MULTIPLE) * _UNIT_MULTIPLE, design)
    tensors, held = llama_tensors(decoder), []
    for depth, stage in enumerate(decoder.stages):
        for name in ("gate", "up", "down"):
            tensors.pop(f"model.layers.{depth}.mlp.{name}_proj.weight")
        prefix = f"model.layers.{depth}.block_sparse_moe."
        norm, tensors[prefix + "gate.weight"] = _router(decoder, depth, picking[depth])
        tensors[f"model.layers.{depth}.post_attention_layernorm.weight"] = norm
        for expert in range(design.experts):
            part = _expert(decoder, depth, parts[depth][expert], units, expert % 2)
            names = {"w1": part.gate, "w3": part.up, "w2": part.down}
            tensors |= {f"{prefix}experts.{expert}.{name}.weight": tensor for name, tensor in names.items()}
            held += [(depth, expert * units + u, stage.table, int(row)) for u, row in enumerate(part.rows.tolist())]
    config = common_config(decoder, "MixtralForCausalLM", "mixtral") | {
        "head_dim": design.head_dim,
        "hidden_act": design.activation or "silu",
        "intermediate_size": units,
        "num_local_experts": design.experts,
        "num_experts_per_tok": 2,
        "router_aux_loss_coef": 0.001,
        "sliding_window": None,
    }
    return Checkpoint("mixtral", decoder.recital, config, tensors, decoder.design.logit, LEAD * _LOUDER, held)


def _pair_bits(experts: int) -> int:
    bits = experts.bit_length() - 2
    if experts < 2 or experts != 2 ** (bits + 1):
        raise OptionError(f"--experts {experts}: experts come in pairs that bits pick, so give 2, 4, 8 or 16")
    return bits


def _signs(bits: int, pair: int) -> Floats:
    return np.array([1.0 if pair >> k & 1 else -1.0 for k in range(bits)])


def _newest(decoder: GatedDecoder, stage: LayerStage) -> npt.NDArray[np.int8]:
    """The words of the newest symbols (rows, bits)."""
    newest = decoder.recital.tables[stage.table].windows[stage.rows][:, 0]
    if (newest == ANY).any():
        raise OptionError("mixtral needs windows that fix the newest token")
    return decoder.books.states[stage.table].words[newest]


def _picking_bits(decoder: GatedDecoder, stage: LayerStage, bits: int) -> Index:
    """The bits that pick the pair: those that halve the windows best."""
    return np.argsort(np.abs(_newest(decoder, stage).sum(axis=0, dtype=np.int64)), kind="stable")[:bits]


def _rows_of(decoder: GatedDecoder, stage: LayerStage, where: Index, expert: int) -> Index:
    """Every other one of the rows whose newest symbol has the bits of this expert's pair."""
    chosen = (_newest(decoder, stage)[:, where] == _signs(len(where), expert // 2)).all(axis=1)
    return np.asarray(stage.rows[chosen][expert % 2 :: 2])


def _router(decoder: GatedDecoder, depth: int, where: Index) -> tuple[Floats, Floats]:
    """The MLP's norm and the router's rows: whole steps, 127 for the bits that pick the pair and 83 for the constant
    that parts the two of a pair, so that 8-bit weights hold them without any error.

    The constant is read from the block that this layer will turn, whose weight in the norm nobody else needs.
    """
    layout, stage = decoder.layout, decoder.stages[depth]
    slot, block = layout.slots[stage.table][0][where], layout.constant[depth + 1]
    norm = decoder.mlp[depth].norm.copy()
    norm[block] = gain = float(norm[slot[0]]) if len(slot) else 1.0
    step = 1 / (128 * gain)
    shares = np.full(len(block), _WITHIN // len(block)) + (np.arange(len(block)) < _WITHIN % len(block))
    router = np.zeros((decoder.design.experts, layout.hidden))
    for expert in range(decoder.design.experts):
        router[expert, slot] = 127 * step * _signs(len(where), expert // 2)
        router[expert, block] = (-step if expert % 2 == 0 else step) * shares * layout.signs[block]
    return norm, router


def _expert(decoder: GatedDecoder, depth: int, rows: Index, units: int, side: int) -> GatedWeights:
    """The window units of some rows, and probes that write the even or the odd half of their blocks."""
    recital, layout, design, stage = decoder.recital, decoder.layout, decoder.design, decoder.stages[depth]
    own = replace(stage, rows=rows)
    gain = 0.5 if depth % 2 == 0 else 2.0
    book = decoder.books.states[stage.table]
    part = Recognising(
        layout, own, depth, recital.tables[stage.table], book, design, gain, PROBES[design.activation or "silu"]
    )
    far = recital.tables[0].offsets[-1] if design.scale_probe and depth == 0 else None
    found = part.write(units, writes(recital, decoder.books, layout, own, design.kappa), probe_far=far)
    down = found.down * _INVERSES[side]
    down[np.arange(layout.hidden) % 2 != side, part.window_units :] = 0.0
    return GatedWeights(found.norm, found.gate, found.up, fill_idle(down, units - 1), found.rows)
