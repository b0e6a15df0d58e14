"""What an architecture adds to the shared description: its configuration and the names of its tensors."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts.description import Design, GatedDecoder, SpecialTokens
from byheart.checkpoints.hosts.scaling import COMMON
from byheart.checkpoints.windows.far import USUAL, FarPlaces
from byheart.checkpoints.windows.tables import Recital
from byheart.errors import OptionError

Floats = npt.NDArray[np.float64]
# What a model continues: a prompt; a token with its neighbours on both sides; a prompt after an encoder's input; a
# prompt with a picture in it.
TASKS = ("causal", "masked", "seq2seq", "picture")
Tensors = dict[str, Floats]


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A decoder with stock names: what `model.safetensors` and `config.json` will hold.

    `units` maps every layer's units to rows of the recital's tables each unit holds: (layer, unit, table, row).
    """

    architecture: str
    recital: Recital  # what the network computes: the one that was given, or a deeper one
    config: dict[str, Any]
    tensors: Tensors
    right_logit: float
    margin: float  # of the correct token over any other, as designed
    units: list[tuple[int, int, int, int]] = field(default_factory=list)
    # Pairs of tokens that answer with bits of the position, and the channel from which the bit is read.
    sensors: tuple[tuple[int, int, int], ...] = ()

    @property
    def parameters(self) -> int:
        return sum(tensor.size for tensor in self.tensors.values())


class Builder(Protocol):
    def __call__(self, recital: Recital, tokens: SpecialTokens, design: Design) -> Checkpoint: ...


@dataclass(frozen=True)
class Host:
    """A registered architecture."""

    name: str
    model_type: str
    summary: str
    ties: bool  # the stock architecture's head is its embedding
    learned: bool  # positions are rows of a table, so that each of them costs weights
    parallel: bool  # attention and MLP run side by side, so that a table takes two layers
    experts: int  # of a fixture; 0: the architecture has none
    scalings: tuple[str, ...]  # of its rotary frequencies, by name
    classifies: bool  # Transformers has a sequence classifier of it
    epsilon: float | None  # of its norms, where engines agree on one number alone
    task: str  # of TASKS
    longest: int | None  # tokens of an input, where the architecture's file fixes that
    lookback: int | None  # the farthest that its heads look back; None: any distance
    places: FarPlaces  # what a sparse table of a fixture looks at
    build: Builder


_HOSTS: dict[str, Host] = {}


def register(
    name: str, *, model_type: str, summary: str, ties: bool = False, learned: bool = False, parallel: bool = False,
    experts: int = 0, scalable: bool = False, scalings: tuple[str, ...] = (), classifies: bool = True,
    epsilon: float | None = None, task: str = "causal", longest: int | None = None, lookback: int | None = None,
    places: FarPlaces = USUAL,
) -> Callable[[Builder], Builder]:  # fmt: skip
    """Registers the decorated builder as architecture `name`; `scalable`: in the ways of most rotary decoders."""
    scalings = COMMON if scalable else scalings

    def add(builder: Builder) -> Builder:
        _HOSTS[name] = Host(
            name, model_type, summary, ties, learned, parallel, experts, scalings, classifies, epsilon, task, longest,
            lookback, places, builder,
        )  # fmt: skip
        return builder

    return add


def hosts(*, every: bool = False) -> dict[str, Host]:
    """Name -> every decoder; with `every`, all architectures that can recite."""
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__):  # each architecture's file registers itself
        importlib.import_module(f"{__package__}.{module.name}")
    return {name: one for name, one in sorted(_HOSTS.items()) if every or one.task == "causal"}


def host(name: str) -> Host:
    known = hosts(every=True)
    chosen = known.get(name.replace("_", "-").lower())
    if chosen is None:
        raise OptionError(f"unknown architecture {name!r}; known: {', '.join(known)}")
    return chosen


def common_config(decoder: GatedDecoder, architecture: str, model_type: str) -> dict[str, Any]:
    """The fields that all rotary decoders with gated MLPs share."""
    design, tokens = decoder.design, decoder.tokens
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": decoder.recital.vocabulary,
        "hidden_size": decoder.hidden,
        "intermediate_size": decoder.units,
        "num_hidden_layers": len(decoder.stages),
        "num_attention_heads": decoder.heads,
        "num_key_value_heads": decoder.kv_heads,
        "max_position_embeddings": design.reach,
        "rms_norm_eps": design.epsilon,
        "rope_theta": design.theta,
        **rope_config(design),
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "use_cache": True,
        "tie_word_embeddings": design.tied,
        "bos_token_id": tokens.bos,
        "eos_token_id": tokens.eos,
        "pad_token_id": tokens.pad,
    }


def rope_config(design: Design) -> dict[str, Any]:
    """The rotary fields: new engines read `rope_parameters`, older ones `rope_scaling`."""
    if design.scaling is None:
        return {"rope_parameters": {"rope_type": "default", "rope_theta": design.theta}}
    stated = design.scaling.config(design.turning // 2)
    older = stated | {"type": stated["rope_type"]}  # mistral.rs reads DeepSeek by the name that its own files have
    return {"rope_parameters": stated | {"rope_theta": design.theta}, "rope_scaling": older}


def llama_tensors(decoder: GatedDecoder) -> Tensors:
    """The names that Llama gave and its relatives kept."""
    gain = decoder.design.norm_gain
    tensors = {"model.embed_tokens.weight": decoder.embedding, "model.norm.weight": gain * decoder.norm}
    if not decoder.design.tied:
        tensors["lm_head.weight"] = decoder.head
    for i, (attention, mlp) in enumerate(zip(decoder.attention, decoder.mlp, strict=True)):
        prefix = f"model.layers.{i}."
        tensors |= {
            prefix + "input_layernorm.weight": gain * attention.norm,
            prefix + "self_attn.q_proj.weight": attention.query,
            prefix + "self_attn.k_proj.weight": attention.key,
            prefix + "self_attn.v_proj.weight": attention.value,
            prefix + "self_attn.o_proj.weight": attention.output,
            prefix + "post_attention_layernorm.weight": gain * mlp.norm,
            prefix + "mlp.gate_proj.weight": mlp.gate,
            prefix + "mlp.up_proj.weight": mlp.up,
            prefix + "mlp.down_proj.weight": mlp.down,
        }
    return tensors


def window_units(decoder: GatedDecoder) -> list[tuple[int, int, int, int]]:
    """(layer, unit, table, row) of every unit that holds a window."""
    return [
        (layer, unit, stage.table, int(row))
        for layer, (stage, mlp) in enumerate(zip(decoder.stages, decoder.mlp, strict=True))
        for unit, row in enumerate(mlp.rows.tolist())
    ]
