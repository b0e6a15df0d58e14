"""Fewer neurons than contexts: start in closed form, then polish every weight by L-BFGS.

The closed form with m < n neurons is a least-squares fit of the target logits. All its weights (embedding, positions,
attention, both layers) then descend the cross-entropy together, as the paper does with Adam.

The gradient of the cross-entropy with respect to every weight is written in NumPy. Weights travel as one flat vector;
`flatten` and `unflatten` keep to the order of `Decoder.matrices`. byheart itself builds nothing this way: the script is
for the comparison in docs/decoder.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from byheart.build.madden24.fit import DecoderFit, DecoderShape, injectivity, name, space_reader, target_logits
from byheart.build.madden24.lowrank import allowed_gap
from byheart.build.madden24.neurons import own_directions, scipy_linalg, solve
from byheart.data.dataset.targets import Distributions
from byheart.errors import MissingExtraError, OptionError
from byheart.ir.decoder import Activation, AttentionHead, Average, ContextReader, Decoder, SelfAttention
from byheart.progress import SILENT, Progress

Floats = npt.NDArray[np.float64]


def flatten(decoder: Decoder) -> Floats:
    """All weights, matrix after matrix."""
    return np.concatenate([matrix.ravel() for matrix in decoder.matrices])


def unflatten(decoder: Decoder, flat: Floats) -> Decoder:
    """A decoder of the same shape with the weights `flat`."""
    edges = np.cumsum([0, *(matrix.size for matrix in decoder.matrices)])
    parts = iter(
        [flat[a:b].reshape(m.shape).copy() for a, b, m in zip(edges[:-1], edges[1:], decoder.matrices, strict=True)]
    )
    embedding, positions = next(parts), next(parts)
    if isinstance(decoder.reader.mixer, Average):
        mixer: Average | SelfAttention = Average(positions)
    else:
        output = next(parts)
        heads = tuple(AttentionHead(next(parts), next(parts), next(parts)) for _ in decoder.reader.mixer.heads)
        mixer = SelfAttention(positions, heads, output)
    hidden, bias = next(parts), next(parts)
    reader = ContextReader(embedding, mixer, decoder.reader.skip)
    return Decoder(reader, hidden, bias, decoder.activation, tuple(parts))


@dataclass(frozen=True, eq=False)
class CrossEntropy:
    """𝓛 of a decoder on contexts, as a function of its flat weights."""

    decoder: Decoder  # the shape
    contexts: Distributions
    counts: Floats  # (n, ω)

    @staticmethod
    def of(decoder: Decoder, contexts: Distributions) -> CrossEntropy:
        return CrossEntropy(decoder, contexts, contexts.matrix())

    def value_and_gradient(self, flat: Floats) -> tuple[float, Floats]:
        """(𝓛 in nats, its gradient)."""
        decoder = unflatten(self.decoder, flat)
        tape = _Reading(decoder.reader, self.contexts)
        before = tape.mixed @ decoder.hidden + decoder.bias
        layers = [decoder.activation(before)]
        for factor in decoder.output:
            layers.append(layers[-1] @ factor)
        loss, error = self._softmax(layers[-1])
        output_gradients = []
        for values, factor in zip(reversed(layers[:-1]), reversed(decoder.output), strict=True):
            output_gradients.append(values.T @ error)
            error = error @ factor.T
        error = error * _derivative(decoder.activation, before)
        reading = tape.gradients(error @ decoder.hidden.T)
        parts = [*reading, tape.mixed.T @ error, error.sum(axis=0), *reversed(output_gradients)]
        return loss, np.concatenate([part.ravel() for part in parts])

    def _softmax(self, logits: Floats) -> tuple[float, Floats]:
        """(loss, its derivative with respect to the logits)."""
        own = float((self.counts * logits).sum())
        shifted = logits - logits.max(axis=1, keepdims=True)
        exponentials = np.exp(shifted)
        mass = exponentials.sum(axis=1, keepdims=True)
        weights = self.contexts.weights
        loss = float(weights @ (np.log(mass) + logits.max(axis=1, keepdims=True))[:, 0]) - own
        return loss, exponentials * (weights[:, None] / mass) - self.counts


def _derivative(activation: Activation, x: Floats) -> Floats:
    match activation:
        case Activation.TANH:
            return 1.0 - np.tanh(x) ** 2
        case Activation.ARCTAN:
            return 1.0 / (1.0 + x * x)
        case Activation.SIGMOID:
            return 0.25 * (1.0 - np.tanh(0.5 * x) ** 2)
        case Activation.GELU:
            from scipy.special import ndtr

            return ndtr(x) + x * np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


class _Reading:
    """Run the reader's forward pass and keep the inputs of its gradient."""

    def __init__(self, reader: ContextReader, contexts: Distributions) -> None:
        self.reader, self.tokens = reader, contexts.tokens
        self.present = self.tokens >= 0
        self.rows, self.last = np.arange(len(self.tokens)), contexts.lengths - 1
        positions = reader.mixer.positions[: self.tokens.shape[1]]
        embedded = np.where(self.present[:, :, None], reader.embedding[self.tokens], 0.0)
        if isinstance(reader.mixer, Average):
            self.plain = embedded
            self.mixed = np.einsum("ntd,t->nd", embedded, positions)
        else:
            self.plain = np.where(self.present[:, :, None], embedded + positions, 0.0)
            self.shares = [self._shares(head) for head in reader.mixer.heads]
            self.means = [np.einsum("nt,ntd->nd", share, self.plain) for share in self.shares]
            self.gathered = np.concatenate(
                [m @ h.value for m, h in zip(self.means, reader.mixer.heads, strict=True)], axis=1
            )
            self.mixed = self.gathered @ reader.mixer.output
        if reader.skip:
            self.mixed = self.mixed + self.plain[self.rows, self.last]

    def _shares(self, head: AttentionHead) -> Floats:
        query = self.plain[self.rows, self.last] @ head.query
        scores = np.where(self.present, np.einsum("ntr,nr->nt", self.plain @ head.key, query), -np.inf)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def gradients(self, error: Floats) -> list[Floats]:
        """Of the reader's matrices, in the order of `Reader.matrices`, from the derivative of the mixed vectors."""
        mixer = self.reader.mixer
        if isinstance(mixer, Average):
            full = np.zeros(len(mixer.positions))
            used = self.tokens.shape[1]
            full[:used] = np.einsum("ntd,nd->t", self.plain, error)
            inner = mixer.positions[None, :used, None] * error[:, None, :]
            return [self._scatter(inner, error), full]
        inner = np.zeros_like(self.plain)
        heads: list[Floats] = []
        row = 0
        for head, shares, mean in zip(mixer.heads, self.shares, self.means, strict=True):
            size = head.value.shape[1]
            through = error @ mixer.output[row : row + size].T
            row += size
            heads += [*self._head(head, shares, through @ head.value.T, inner), mean.T @ through]
        positions = np.zeros_like(mixer.positions)
        embedding = self._scatter(inner, error)
        positions[: self.tokens.shape[1]] = inner.sum(axis=0)
        return [embedding, positions, self.gathered.T @ error, *heads]

    def _head(self, head: AttentionHead, shares: Floats, error: Floats, inner: Floats) -> tuple[Floats, Floats]:
        """Gradients of keys and query; adds the gradient of the embedded tokens to `inner`."""
        last = self.plain[self.rows, self.last]
        query = last @ head.query
        direct = np.einsum("ntd,nd->nt", self.plain, error)
        scores = shares * (direct - (shares * direct).sum(axis=1, keepdims=True))
        inner += shares[:, :, None] * error[:, None, :]
        seen = np.einsum("nt,ntd->nd", scores, self.plain)  # Σ_t ds_t·x_t
        inner += scores[:, :, None] * (query @ head.key.T)[:, None, :]
        to_query = seen @ head.key
        inner[self.rows, self.last] += to_query @ head.query.T
        return seen.T @ query, last.T @ to_query

    def _scatter(self, inner: Floats, error: Floats) -> Floats:
        if self.reader.skip:
            inner[self.rows, self.last] += error
        inner[~self.present] = 0.0
        gradient = np.zeros_like(self.reader.embedding)
        np.add.at(gradient, self.tokens[self.present], inner[self.present])
        return gradient


Ints = npt.NDArray[np.int64]

START_FLOOR = 3e-2  # gentle target logits to start from: steep ones saturate the neurons


class Start(StrEnum):
    """Return the neurons before polishing."""

    DIRECTIONS = "directions"  # one in the direction of each of m chosen contexts
    RANDOM = "random"


RIDGES = {Start.DIRECTIONS: 0.1, Start.RANDOM: 1e-3}  # relative to the mean square of a neuron
STARTS = (Start.DIRECTIONS, Start.RANDOM, Start.RANDOM)  # L-BFGS may get stuck: further starts follow
PIVOTED = 1200  # contexts up to which neurons are chosen by pivoted QR


def few_neurons(
    contexts: Distributions,
    shape: DecoderShape,
    neurons: int,
    *,
    fraction: float = 0.01,
    iterations: int = 800,
    seed: int = 0,
    progress: Progress = SILENT,
) -> DecoderFit:
    """A decoder with `neurons` ≤ n neurons, polished until its gap is below 0.9·`fraction` of the entropy.

    Several starts are tried; if none succeeds, the best is returned and the certificate reports it.
    """
    if not 1 <= neurons <= contexts.count:
        raise OptionError(f"neurons={neurons}: polishing needs 1 to {contexts.count} (the number of contexts)")
    target = 0.9 * allowed_gap(contexts, fraction)
    fits: list[tuple[float, DecoderFit]] = []
    for attempt, style in enumerate(STARTS):
        start, condition = _start(contexts, shape, neurons, style, seed + attempt)
        decoder, used = polish(start, contexts, target=target, iterations=iterations, progress=progress)
        gap = contexts.cross_entropy(decoder.log_probabilities(contexts.tokens)) - contexts.entropy
        notes = (f"{neurons} neurons, start {attempt + 1} ({style.value}) polished by {used} steps of L-BFGS",)
        closest = max(injectivity(column).smallest_gap for column in decoder.reader.mixed(contexts.tokens).T)
        fit = DecoderFit(decoder, f"{name(shape.mixer)}-polished", condition, None, closest, None, None, notes)
        fits.append((gap, fit))
        if gap <= target:
            break
    return min(fits, key=lambda found: found[0])[1]


def _start(
    contexts: Distributions, shape: DecoderShape, neurons: int, style: Start, seed: int
) -> tuple[Decoder, float]:
    """The closed form by ridge regression onto gentle target logits, and the condition number of its features."""
    reader = space_reader(contexts, shape, shape.dimension or 16, seed)
    points = reader.mixed(contexts.tokens)
    if style is Start.DIRECTIONS:
        weight, bias = own_directions(points, _chosen(points, contexts, shape, neurons))
    else:
        weight, bias = _random_layer(points, neurons, seed)
    targets, _ = target_logits(contexts, START_FLOOR)
    features = shape.activation(points @ weight + bias)
    ridge = math.sqrt(RIDGES[style] * float((features * features).sum()) / neurons)
    solution = solve(
        np.vstack([features, ridge * np.eye(neurons)]), np.vstack([targets, np.zeros((neurons, targets.shape[1]))])
    )
    decoder = Decoder(reader, weight, bias, shape.activation, (np.ascontiguousarray(solution.weights),))
    return decoder, solution.condition


def _random_layer(points: Floats, neurons: int, seed: int) -> tuple[Floats, Floats]:
    """Gaussian neurons whose arguments have standard deviation 2 on the contexts."""
    rng = np.random.default_rng(seed)
    dimension = points.shape[1]
    weight = rng.standard_normal((dimension, neurons)) * (2 / math.sqrt(dimension) / max(float(points.std()), 1e-9))
    return weight, rng.standard_normal(neurons) - points.mean(axis=0) @ weight


def _chosen(points: Floats, contexts: Distributions, shape: DecoderShape, neurons: int) -> Ints:
    """The contexts that get a neuron: the most independent features if affordable, else the heaviest contexts."""
    if neurons == contexts.count:
        return np.arange(neurons)
    if contexts.count > PIVOTED:
        return np.sort(np.argsort(-contexts.weights, kind="stable")[:neurons])
    weight, bias = own_directions(points)
    linalg = scipy_linalg("choosing neurons by pivoted QR")
    _, order = linalg.qr(shape.activation(points @ weight + bias), mode="r", pivoting=True)
    return np.sort(np.asarray(order[:neurons], dtype=np.int64))


class _Reached(Exception):  # no error: ends the minimizer
    def __init__(self, flat: Floats) -> None:
        self.flat = flat


def polish(
    decoder: Decoder, contexts: Distributions, *, target: float, iterations: int = 2000, progress: Progress = SILENT
) -> tuple[Decoder, int]:
    """The decoder after L-BFGS on all weights, and the steps taken; stops once the gap is at most `target` nats."""
    try:
        from scipy.optimize import minimize
    except ImportError as error:
        raise MissingExtraError("polishing a decoder", "decoder") from error
    objective = CrossEntropy.of(decoder, contexts)
    steps = 0
    with progress.stage("polishing all weights", total=iterations) as stage:

        def evaluate(flat: Floats) -> tuple[float, Floats]:
            loss, gradient = objective.value_and_gradient(flat)
            if loss - contexts.entropy <= target:
                raise _Reached(flat.copy())
            return loss, gradient

        def count(_: Floats) -> None:
            nonlocal steps
            steps += 1
            stage.advance()

        options = {"maxiter": iterations, "maxfun": 2 * iterations, "maxcor": 30, "ftol": 1e-13, "gtol": 1e-9}
        try:
            flat = minimize(evaluate, flatten(decoder), jac=True, method="L-BFGS-B", callback=count, options=options).x
        except _Reached as reached:
            flat = reached.flat
    return unflatten(decoder, flat), steps
