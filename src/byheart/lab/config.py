"""The configuration of a training run: the model's shape and its training. Plain frozen values, storable as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import cos, pi
from typing import Any, Literal

from byheart.errors import OptionError
from byheart.lab.problem import Documents, Sequences

Shape = Literal["constant", "linear", "cosine"]
ATTENTIONS = ("uniform", "softmax", "hardmax")
PRECISIONS = ("float64", "float32", "bfloat16")


@dataclass(frozen=True)
class Uniform:
    """KS25 eq. (165): E_in, `blocks` feed-forward blocks, attention, `blocks` blocks, E_out.

    attention: `uniform` averages, as in the paper; `softmax` weighs by W_K and W_Q; `hardmax` selects the largest
    weights only, and learns as if it were softmax (straight through).

    >>> Uniform(blocks=4).feed_forward
    336
    """

    blocks: int
    m: int = 2
    q: int = 8
    s: int = 2
    kind: str = "uniform"
    attention: str = "uniform"

    def __post_init__(self) -> None:
        if min(self.blocks, self.m, self.q, self.s) < 1:
            raise OptionError(f"blocks, m, q, s = {self.blocks}, {self.m}, {self.q}, {self.s}: each must be at least 1")
        if self.attention not in ATTENTIONS:
            raise OptionError(f"unknown attention {self.attention!r}; known: {', '.join(ATTENTIONS)}")

    @property
    def size(self) -> int:
        return self.blocks

    @property
    def feed_forward(self) -> int:
        """Parameters of both stacks: 2·blocks·(2mq + q + m)."""
        return 2 * self.blocks * (2 * self.m * self.q + self.q + self.m)

    def parameters(self, problem: Sequences) -> int:
        """Every trained number: E_in, both stacks, W_V and W_O (and W_K and W_Q), E_out."""
        matrices = 2 if self.attention == "uniform" else 4
        return self.m * problem.d + self.feed_forward + matrices * self.m * self.s + problem.outputs * self.m


@dataclass(frozen=True)
class DecoderModel:
    """Madden et al., Section 7, as their public code has it (github.com/curtfox/decoder-memory-capacity): embedding of
    dimension d, one head, `neurons` GELU units, no residual connection, a bias in every linear layer."""

    neurons: int
    d: int = 16
    kind: str = "decoder"

    def __post_init__(self) -> None:
        if min(self.neurons, self.d) < 1 or self.d % 2:
            raise OptionError(f"neurons, d = {self.neurons}, {self.d}: at least 1, and d even for sines and cosines")

    @property
    def size(self) -> int:
        return self.neurons

    def parameters(self, problem: Documents) -> int:
        """The embedding, W_Q, W_K, W_V and W_O, and both linear layers, all with their biases."""
        return (
            problem.vocabulary * self.d
            + 4 * self.d * (self.d + 1)
            + self.neurons * (self.d + 1)
            + problem.vocabulary * (self.neurons + 1)
        )


Model = Uniform | DecoderModel


@dataclass(frozen=True)
class Training:
    """Full-batch AdamW (`decay` = 0: Adam), a linear warmup, then a schedule of the learning rate.

    clip: a gradient longer than this is shortened to it (0: never), which keeps deep narrow streams from exploding.
    identity: blocks start as the identity (W₂ = 0) and not with a random share of the stream.
    slowdown, token_slowdown: the blocks after attention (F2) learn at rate / blocks**slowdown, those before it (F1),
    which all tokens share, at rate / blocks**token_slowdown: a step moves deep stacks no farther than shallow ones.
    summed: the loss that is descended is the sum over all predictions, not the mean. To Adam, which forgets the length
    of a gradient, it is an `epsilon` that is smaller by that count; the reported value stays the mean.
    precision: the network's float type. `bfloat16`: its weights are rounded to eight significant bits wherever
    they are used, while the optimizer adds its steps to float32 weights, as mixed-precision training does.
    starts: a run that misses its goal begins again from other weights, up to this many times; the best run counts.
    before: the numbers of blocks of smaller networks that are trained first, each for all `epochs`; a network starts
    from the weights of the one before it, with new blocks that do nothing yet (a warm start that grows). The k-th
    network learns at rate / k**calm: a full step would destroy the progress of a long stack. If it
    ends with a higher loss than it began with all the same, it is trained again at half the rate, `retries` times.

    >>> plan = Training(epochs=100, rate=0.01, warmup=0.1, shape="linear")
    >>> [round(plan.rate_at(epoch), 5) for epoch in (0, 9, 55, 99)]
    [0.001, 0.01, 0.00489, 0.0]
    """

    epochs: int
    rate: float
    warmup: float = 0.0  # share of the epochs
    shape: Shape = "linear"
    decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    clip: float = 0.0
    identity: bool = False
    slowdown: float = 0.0
    token_slowdown: float = 0.0
    summed: bool = False
    precision: str = "float32"
    starts: int = 1
    before: tuple[int, ...] = ()
    calm: float = 1.0
    retries: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "before", tuple(self.before))  # JSON has lists only
        if min(self.epochs, self.starts) < 1 or not self.rate > 0 or not 0 <= self.warmup < 1:
            raise OptionError(
                f"epochs, rate, warmup = {self.epochs}, {self.rate}, {self.warmup}: need at least one epoch, "
                "one start, a positive rate and a warmup of 0 <= share < 1"
            )
        if self.precision not in PRECISIONS:
            raise OptionError(f"unknown precision {self.precision!r}; known: {', '.join(PRECISIONS)}")

    def rate_at(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0."""
        peak: float = self.rate / (1 + len(self.before)) ** self.calm
        rising = max(1, round(self.warmup * self.epochs)) if self.warmup else 0
        if epoch < rising:
            return peak * (epoch + 1) / rising
        left = (self.epochs - 1 - epoch) / max(1, self.epochs - 1 - (rising - 1 if rising else 0))
        if self.shape == "linear":
            return peak * left
        return peak * (1 + cos(pi * (1 - left))) / 2 if self.shape == "cosine" else peak

    def pace(self, weight: str, blocks: int) -> float:
        """Return the factor of a weight's learning rate; weights of blocks are called F1.… and F2.…

        >>> plan = Training(epochs=1, rate=0.1, slowdown=0.5, token_slowdown=1)
        >>> [plan.pace(weight, blocks=25) for weight in ("E_in", "F1.W2", "F2.W2")]
        [1.0, 0.04, 0.2]
        """
        powers = {"F1.": self.token_slowdown, "F2.": self.slowdown}
        return float(blocks ** -powers.get(weight[:3], 0.0))


def as_plain(config: Model | Training) -> dict[str, Any]:
    """Plain values for JSON; `model_of` and `Training(**…)` read them."""
    return asdict(config)


def model_of(plain: dict[str, Any]) -> Model:
    """The model that `as_plain` wrote.

    >>> model_of(as_plain(Uniform(blocks=3)))
    Uniform(blocks=3, m=2, q=8, s=2, kind='uniform', attention='uniform')
    """
    kinds: dict[str, type[Model]] = {"uniform": Uniform, "decoder": DecoderModel}
    if plain.get("kind") not in kinds:
        raise OptionError(f"unknown model {plain.get('kind')!r}; known: {', '.join(kinds)}")
    return kinds[plain["kind"]](**plain)
