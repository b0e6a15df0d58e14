"""Recall per architecture: stock defaults of rope, head size and context, and what is refused.

Combinations of rope, head size and context without enough slow frequencies are refused by name, with combinations that
work: keys of one token, a longer rope, a shorter context.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from byheart.checkpoints.hosts._base import Tensors
from byheart.checkpoints.hosts.granite import stream_size
from byheart.checkpoints.hosts.recall.channels import recall_channels
from byheart.checkpoints.hosts.recall.gated import GatedShape, gated_config, gated_tensors
from byheart.checkpoints.hosts.recall.matching import feasible, slow_count
from byheart.checkpoints.hosts.recall.plain import PlainShape, plain_config, plain_tensors, twins
from byheart.checkpoints.hosts.recall.positions import LLAMA_3_1, HeadRotation, head_rotation, yarn
from byheart.checkpoints.hosts.recall.stages import RecallPlan
from byheart.checkpoints.windows.recall import RecallFunction, key_code
from byheart.errors import OptionError

ORIGINAL = 32_768  # positions of Qwen's ropes before YaRN
ORIGINAL_LLAMA = 8192
SCALINGS = ("default", "llama3", "yarn", "linear")


@dataclass(frozen=True)
class RecallHost:
    """Defaults of one architecture. `hidden` is None where it is a multiple of 64 that holds all channels."""

    name: str
    context: int
    theta: float | None = 1e6  # None: learned positions
    scaling: Mapping[str, Any] | None = None
    head_dim: int = 128
    heads: int = 4
    kv_heads: int = 2
    window: int | None = None
    eps: float = 1e-5
    tied: bool = False
    activation: str = "silu"
    kappa: float = 2.0
    square: bool = False  # heads * head_dim is the hidden size
    hidden: int | None = None
    stores: int = 0
    share: float = 1.0  # of a head's dimensions, rotated
    plain: bool = False  # LayerNorm, biases, an MLP without a gate

    def rotation(self, scaling: Mapping[str, Any] | None) -> HeadRotation:
        return head_rotation(self.head_dim, self.theta, scaling, self.share)


HOSTS = {
    host.name: host
    for host in (
        RecallHost("llama", 131_072, theta=5e5, scaling=LLAMA_3_1),
        RecallHost("qwen3", 32_768, eps=1e-6, stores=3),
        RecallHost("qwen2", 32_768, eps=1e-6, square=True),
        RecallHost("mistral", 32_768, window=512),
        RecallHost("mixtral", 32_768),
        RecallHost("phi3", 32_768, square=True),
        RecallHost("qwen3-moe", 32_768, eps=1e-6, stores=3),
        RecallHost("smollm3", 32_768, theta=2e6, eps=1e-6, tied=True, square=True),
        RecallHost("granite", 32_768, theta=1e7, square=True, kappa=stream_size(), stores=9),
        # The root of 576 is 24, and 24 / 16 = kappa: every engine computes embeddings without error.
        RecallHost("gemma", 2048, theta=1e4, head_dim=256, heads=2, kv_heads=1, eps=1e-6, tied=True,
                   activation="gelu_pytorch_tanh", kappa=1.5, hidden=576),
        RecallHost("gpt2", 1024, theta=None, head_dim=64, heads=12, kv_heads=12, tied=True, square=True,
                   plain=True),
        RecallHost("opt", 2048, theta=None, head_dim=64, heads=12, kv_heads=12, tied=True, square=True,
                   plain=True),
        RecallHost("gpt-neox", 2048, theta=1e4, heads=6, kv_heads=6, square=True,
                   share=0.25, plain=True),
    )
}  # fmt: skip


@dataclass(frozen=True)
class RecallOptions:
    """What a user may choose; None is the architecture's default."""

    context: int | None = None
    key_length: int = 2
    rope_theta: float | None = None
    rope_scaling: str | None = None  # default, llama3, yarn, linear
    head_dim: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    hidden: int | None = None
    window: int | None = None
    tied: bool | None = None
    epsilon: float | None = None


@dataclass(frozen=True, eq=False)
class RecallCheckpoint:
    """A recall decoder with stock names: what `model.safetensors` and `config.json` will hold."""

    architecture: str
    function: RecallFunction
    context: int
    config: dict[str, Any]
    tensors: Tensors
    layout: dict[str, Any]
    facts: dict[str, float] = field(default_factory=dict)

    @property
    def parameters(self) -> int:
        return sum(tensor.size for tensor in self.tensors.values())


def recall_checkpoint(architecture: str, options: RecallOptions | None = None) -> RecallCheckpoint:
    """Compute a recall checkpoint.

    Args:
        architecture: a name of HOSTS.
        options: the user's choices.

    Returns:
        Tensors and configuration.

    Raises:
        OptionError: the architecture is not known, or its rope has too few slow frequencies.
    """
    wish = options or RecallOptions()
    name = architecture.replace("_", "-").lower()
    if name not in HOSTS:
        raise OptionError(f"recall: no construction for {architecture}; known: {', '.join(HOSTS)}")
    host = _chosen(HOSTS[name], wish)
    function = RecallFunction(wish.key_length, host.window)
    _check(host, function)
    scaling = _scaling(host, wish)
    _slow_enough(host, function, scaling)
    plan = RecallPlan(
        function,
        host.rotation(scaling),
        recall_channels(function, host.heads, host.theta is None),
        host.heads,
        host.kv_heads,
        host.context,
        host.tied,
        host.stores,
        last=head_rotation(host.head_dim, None) if name == "smollm3" else None,
    )
    hidden = _hidden(host, plan)
    layout: dict[str, Any] = {"channels": plan.channels.to_json(), "hidden": hidden}
    if host.plain:
        plain = PlainShape(name, hidden, host.kappa, host.eps, host.theta, host.share)
        tensors = plain_tensors(plan, plain)
        config = plain_config(plan, plain, tensors)
        layout["twins"] = dict(zip(("first", "second"), twins(plan), strict=True))
    else:
        shape = GatedShape(name, hidden, host.kappa, host.eps, host.theta or 0.0, scaling, host.activation)
        tensors = gated_tensors(plan, shape)
        config = gated_config(plan, shape, _units(tensors))
    return RecallCheckpoint(name, function, host.context, config, tensors, layout, plan.facts)


def _chosen(host: RecallHost, wish: RecallOptions) -> RecallHost:
    fields: dict[str, Any] = {
        "context": wish.context, "theta": wish.rope_theta, "head_dim": wish.head_dim, "heads": wish.heads,
        "kv_heads": wish.kv_heads, "hidden": wish.hidden, "window": wish.window, "tied": wish.tied, "eps": wish.epsilon,
    }  # fmt: skip
    if wish.heads is not None and wish.kv_heads is None:
        fields["kv_heads"] = wish.heads // 2 if wish.heads % 2 == 0 and host.kv_heads < host.heads else wish.heads
    _possible(host, wish)
    if wish.window is not None and host.window is None:
        raise OptionError(f"recall: {host.name} has no sliding window here; mistral has")
    return replace(host, **{key: value for key, value in fields.items() if value is not None})


def _possible(host: RecallHost, wish: RecallOptions) -> None:
    """Raise an OptionError for a choice that the architecture does not have."""
    if host.theta is None and (wish.rope_theta is not None or wish.rope_scaling is not None):
        raise OptionError(f"recall: {host.name} has learned positions, which have no rope")
    if host.share < 1 and wish.rope_scaling not in (None, "default"):
        raise OptionError(f"recall: {host.name} rotates a part of each head; no rope scaling is built for it")
    if host.plain and wish.kv_heads not in (None, wish.heads or host.heads):
        raise OptionError(f"recall: {host.name} has a key-value head for every head")
    if wish.tied and host.name == "gpt-neox":
        raise OptionError("recall: gpt-neox has its own head here; tied heads need a sequential layer")
    if wish.epsilon is not None and host.name == "opt":
        raise OptionError("recall: opt has the epsilon 1e-5, which config.json cannot change")


def _check(host: RecallHost, function: RecallFunction) -> None:
    if host.heads % host.kv_heads:
        raise OptionError(f"recall: {host.heads} heads cannot share {host.kv_heads} key-value heads")
    if host.head_dim % 2 or host.head_dim < key_code(function.key_length).bits + 2:
        raise OptionError(
            f"recall: head size {host.head_dim} is odd or too small for keys of {function.key_length} tokens"
        )
    if host.context < 16:
        raise OptionError(f"recall: a context of {host.context} positions is too short; 16 is the least")


def _scaling(host: RecallHost, wish: RecallOptions) -> Mapping[str, Any] | None:
    """The scaling: as named, else the architecture's; Qwen's contexts beyond 32,768 use YaRN, as its model cards do."""
    kind = wish.rope_scaling
    if kind is None:
        if host.name == "qwen3" and host.context > ORIGINAL and wish.rope_theta is None:
            return yarn(host.context / ORIGINAL, ORIGINAL)
        # Llama 3 has the plain rope up to 8,192 positions; Llama 3.1 scales it beyond.
        return host.scaling if host.scaling is not None and host.context > ORIGINAL_LLAMA else None
    if kind not in SCALINGS:
        raise OptionError(f"recall: rope scaling {kind!r} is not one of {', '.join(SCALINGS)}")
    if kind == "default":
        return None
    if kind == "llama3":
        return LLAMA_3_1
    factor = host.context / ORIGINAL if host.context > ORIGINAL else 4.0
    return yarn(factor, int(host.context / factor)) if kind == "yarn" else {"rope_type": "linear", "factor": factor}


def _slow_enough(host: RecallHost, function: RecallFunction, scaling: Mapping[str, Any] | None) -> None:
    """Raise an OptionError with alternatives if keys cannot be found over the whole context."""
    seen = host.context if host.window is None else min(host.window, host.context)

    def works(length: int, distances: int, theta: float | None = host.theta, dims: int = host.head_dim) -> bool:
        return feasible(replace(host, theta=theta, head_dim=dims).rotation(scaling), distances, length, host.stores)

    if works(function.key_length, seen):
        return
    ways = []
    if function.key_length == 2 and works(1, seen):
        ways.append("keys of one token (key length 1)")
    shorter = next((n for n in (2**k for k in range(17, 5, -1)) if n < seen and works(function.key_length, n)), None)
    if shorter is not None:
        ways.append(f"a context of {shorter:,}")
    thetas = () if host.theta is None else (t for t in (5e5, 1e6, 1e7, 1e8) if t > (host.theta or 0.0))
    longer = next((t for t in thetas if works(function.key_length, seen, t)), None)
    if longer is not None:
        ways.append(f"a rope theta of {longer:g}")
    wider = next((d for d in (128, 256) if d > host.head_dim and works(function.key_length, seen, dims=d)), None)
    if wider is not None:
        ways.append(f"a head size of {wider}")
    kind = "no scaling" if scaling is None else f"scaling {scaling['rope_type']}"
    rope = "learned positions" if host.theta is None else f"rope theta {host.theta:g}, {kind}"
    raise OptionError(
        f"recall: {host.name} with {rope}, head size {host.head_dim} and {seen:,} positions "
        f"has {slow_count(host.rotation(scaling), seen)} frequencies that turn by one radian or less; keys of "
        f"{function.key_length} tokens need about {key_code(function.key_length).bits // 2 + 1}. "
        f"What works: {'; '.join(ways) or 'no single change'}"
    )


def _hidden(host: RecallHost, plan: RecallPlan) -> int:
    least = plan.channels.used + (len(twins(plan)[0]) if host.plain else 0)
    hidden = host.heads * host.head_dim if host.square else host.hidden or -(-least // 64) * 64
    if hidden < least:
        raise OptionError(f"recall: {least} channels do not fit a hidden size of {hidden}")
    return hidden


def _units(tensors: Tensors) -> int:
    """Units of an MLP, by the shape of the first one's output matrix."""
    name = next(
        n
        for n in tensors
        if n.startswith("model.layers.0.")
        and n.endswith(("mlp.down_proj.weight", "experts.0.w2.weight", "experts.0.down_proj.weight"))
    )
    return int(np.asarray(tensors[name]).shape[1])
