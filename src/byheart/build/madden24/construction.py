"""The one-layer decoder in closed form: embed, mix to distinct vectors, place neurons between them, solve for V.

M24 names an algorithm (sample all of θ, scale, solve for V); features="sampled" runs it as written. In a dozen
dimensions or more its system can be solved in float64; on the line to which the proof reduces it cannot, for more than
a handful of contexts. Without that option neurons are placed where the contexts need them and the condition number
stays small.

    >>> rows, follow = [["a", "cat"], ["a", "dog"], ["a", "dog"]], [["cat", "sat"], ["dog", "sat"], ["dog", "ran"]]
    >>> contexts = load(rows, follow, task="causal", target="distribution").distributions
    >>> fit = closed_form(contexts)
    >>> fit.decoder.neurons, fit.condition < 10, fit.residual < 1e-12
    (3, True, True)

The constructions take rows with labels, or documents with their next-token distributions. A label is a distribution of
one class, so whatever Theorem 5 stores, it stores labels too; `byheart compare` builds it beside the constructions that
store nothing else.

    >>> from byheart.memory.documents import memorize_documents
    >>> memory = memorize_documents(["a cat sat", "a dog sat", "a dog ran"])
    >>> memory.construction, memory.certificate.verdict.value, memory.generate("a cat")
    ('madden24', 'proved', 'a cat sat')

objective=size gives the fewest parameters: `compact` numbers each context's distribution, a low-rank table stores it.
Deeper than the decoder of M24 (it has the memory's blocks) and with long weights, but with the fewest numbers.

    >>> table_decoder(contexts, smallest_factors(contexts, 0.01, 1, 0), seed=0).vocabulary_size
    5
"""

from __future__ import annotations

import math
from dataclasses import replace
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.build._base import SYMBOLS, Construction, Option, register
from byheart.build.compact.construction import build_compact
from byheart.build.madden24.fit import (
    DecoderFit,
    DecoderShape,
    MixerKind,
    check_size,
    chosen_floor,
    injectivity,
    line_direction,
    line_reader,
    name,
    sampled_neurons,
    sampled_reader,
    space_reader,
    target_logits,
)
from byheart.build.madden24.lowrank import Factors, assemble, smallest_factors
from byheart.build.madden24.neurons import own_directions, solve, solve_staircase, steps_between
from byheart.data.dataset.dataset import Dataset, load, ordered_distributions
from byheart.data.dataset.targets import Distributions, Target
from byheart.data.task import Task
from byheart.data.values import key
from byheart.errors import AssumptionError, BuildError, OptionError
from byheart.ir.decoder import Activation, ContextReader, Decoder
from byheart.ir.decoder_network import AnyDecoder, DecoderNetwork, TableDecoder, context_number
from byheart.ir.network import Network, Read
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress
from byheart.theory.guarantees.madden24 import CLOSED_FORM, FEATURES, LOW_RANK, SAMPLED_DIMENSION, SIZE

Floats = npt.NDArray[np.float64]

DIMENSION = 32  # of the space in which neurons look in their contexts' directions
LARGER = (3 * DIMENSION, 8 * DIMENSION)  # tried if that is too small
ACCURATE = 1e8  # a condition number from which on other features are tried, if any are left


class Features(StrEnum):
    """The placement of the neurons."""

    STEPS = "steps"  # on a line, between neighbouring contexts
    DIRECTIONS = "directions"  # in R^d, one in the direction of each context
    SAMPLED = "sampled"  # sampled with all of θ: the algorithm below Theorem 5


@implements(
    Ref("M24", "Theorem 5"),
    statement="a one-layer decoder with m neurons interpolates any positive next-token distributions of m contexts",
    test="tests/build/madden24/test_construction.py",
    partly="solved in float64: the gap to the entropy is proved to be small, the theorem interpolates exactly",
)
@implements(
    Ref("M24", "Algorithm after Theorem 5"),
    statement="sample θ from a continuous distribution, scale W into the interval of convergence, solve for V: as "
    "written, with features=sampled; float64 solves it where the condition number allows, and the gap is proved",
    test="tests/build/madden24/test_construction.py",
)
@implements(
    Ref("M24", "Theorem 7"),
    statement="so does the decoder with token averaging instead of self-attention",
    test="tests/build/madden24/test_construction.py",
    partly="solved in float64: the gap to the entropy is proved to be small, the theorem interpolates exactly",
)
def closed_form(
    contexts: Distributions,
    shape: DecoderShape = DecoderShape(),  # noqa: B008  # frozen
    *,
    features: Features | None = None,
    scaled: bool = True,
    floor: float | None = None,
    factored: bool = False,
    seed: int = 0,
    progress: Progress = SILENT,
) -> DecoderFit:
    """A decoder with one neuron for each context whose distributions are the given ones, zeros replaced by `floor`.

    Notation: contexts.count = n = m, V = decoder.output[0], (z, u) are sampled from `seed`. Without a `floor` it is set
    such that zeros cost at most 10^-5 of the entropy. `factored` stores V as (m, s)·(s, ω), where s tokens follow
    anywhere: fewer numbers when s is much smaller than ω. `scaled` is step 2 of the sampled algorithm. The paper needs
    it for a ψ that is analytic near one point; ours are analytic on the whole line, so the minors are analytic in all
    of θ and vanish on a null set with or without it.
    Cost: O(n²ω) for steps, O(n³ + n²ω) for the others. Steps and directions depart from the proof in the choice of w
    and b only: the proof uses any generic w near 0 and b = η, these are placed where the system is well conditioned
    (steps: of order n; directions: as long as contexts are few for the dimension, see docs/decoder.md).
    """
    follow = np.unique(contexts.pair_token) if factored else None
    columns = contexts.vocabulary_size if follow is None else len(follow)
    check_size(contexts.count, columns, "the output matrix V")
    floor = chosen_floor(contexts) if floor is None else floor
    best: DecoderFit | None = None
    failure: BuildError | None = None
    for features_, dimension in _attempts(contexts, shape, features):
        try:
            tried = replace(shape, dimension=dimension)
            fit = _fit(contexts, tried, features_, scaled, floor, follow, seed, progress)
        except BuildError as error:
            failure = failure or error
            continue
        if best is None or fit.condition < best.condition:
            best = fit
        if fit.condition < ACCURATE:
            break
    if best is None:
        raise failure or BuildError("no features were tried")
    return best


def _attempts(
    contexts: Distributions, shape: DecoderShape, features: Features | None
) -> list[tuple[Features, int | None]]:
    """Yield attempts until the system is well-conditioned: more dimensions, then a line, if nothing is fixed.

    The mixed vectors lie in the span of ω token and T position vectors: more dimensions than these show nothing new.
    """
    if features is not None:
        return [(features, shape.dimension)]
    if shape.activation.saturates:
        return [(Features.STEPS, shape.dimension)]
    span = contexts.vocabulary_size + contexts.tokens.shape[1]
    dimensions = [shape.dimension] if shape.dimension else [DIMENSION, *(d for d in LARGER if d // 3 < span)]
    return [*((Features.DIRECTIONS, d) for d in dimensions), (Features.STEPS, shape.dimension)]


def _fit(
    contexts: Distributions,
    shape: DecoderShape,
    features: Features,
    scaled: bool,
    floor: float,
    follow: npt.NDArray[np.int64] | None,
    seed: int,
    progress: Progress,
) -> DecoderFit:
    staircase = features is Features.STEPS and shape.activation.saturates
    if not staircase:
        check_size(contexts.count, contexts.count, "the matrix of features")
    with progress.stage(f"placing {contexts.count} neurons"):
        reader, hidden, bias, notes = _neurons(contexts, shape, features, scaled, seed)
    targets, excess = target_logits(contexts, floor, follow)
    mixed = reader.mixed(contexts.tokens)
    with progress.stage("solving for the output matrix"):
        if staircase:
            order = np.argsort(mixed @ line_direction(mixed.shape[1]), kind="stable")
            low, high = shape.activation.step
            solution = solve_staircase(
                lambda rows: shape.activation(mixed[order[rows]] @ hidden + bias), targets[order], low, high
            )
        else:
            solution = solve(shape.activation(mixed @ hidden + bias), targets)
    output: tuple[Floats, ...] = (np.ascontiguousarray(solution.weights),)
    if follow is not None:
        places = np.zeros((len(follow), contexts.vocabulary_size))
        places[np.arange(len(follow)), follow] = 1.0
        output = (*output, places)
    decoder = Decoder(reader, hidden, bias, shape.activation, output)
    gap = _smallest_distance(mixed)
    return DecoderFit(decoder, name(shape.mixer), solution.condition, solution.residual, gap, floor, excess, notes)


def _neurons(
    contexts: Distributions, shape: DecoderShape, features: Features, scaled: bool, seed: int
) -> tuple[ContextReader, Floats, Floats, tuple[str, ...]]:
    """The reader, W (d, n), b (n,), and notes about the sample."""
    if features is Features.SAMPLED:
        rng, dimension = np.random.default_rng(seed), shape.dimension or SAMPLED_DIMENSION
        reader = sampled_reader(contexts, shape, dimension, rng)
        drawn = sampled_neurons(reader.mixed(contexts.tokens), contexts.count, shape.activation, scaled, rng)
        weight, bias, epsilon = drawn
        return reader, weight, bias, (f"all of θ sampled at d = {dimension} with seed {seed}, ε = {epsilon:.3g}",)
    if features is Features.DIRECTIONS:
        reader = space_reader(contexts, shape, shape.dimension or DIMENSION, seed)
        weight, bias = own_directions(reader.mixed(contexts.tokens))
        return reader, weight, bias, ()
    reader, direction, _ = line_reader(contexts, shape, seed)
    numbers = reader.mixed(contexts.tokens) @ direction
    neurons = steps_between(np.sort(numbers), shape.activation)
    return reader, np.outer(direction, neurons.weight), neurons.bias, ()


TELLABLE = 1 / float(np.finfo(np.float64).eps)  # the largest condition number that float64 distinguishes from infinity


def sampled_condition(
    contexts: Distributions,
    dimension: int,
    activation: Activation = Activation.TANH,
    *,
    scaled: bool = True,
    seed: int = 0,
) -> float:
    """The condition number of the system for V that one draw of θ gives.

    inf above `TELLABLE`: float64 returns only rounding there, and the true number can be 10^100 times as large.
    """
    rng, shape = np.random.default_rng(seed), DecoderShape(activation=activation)
    mixed = sampled_reader(contexts, shape, dimension, rng).mixed(contexts.tokens)
    weight, bias, _ = sampled_neurons(mixed, contexts.count, activation, scaled, rng)
    found = float(np.linalg.cond(activation(mixed @ weight + bias)))
    return found if found < TELLABLE else math.inf


def _smallest_distance(mixed: Floats) -> float:
    """The smallest gap of Theorems 4 and 6, along the first axis that shows one (all axes are equal on a line)."""
    return max(injectivity(column).smallest_gap for column in mixed.T)


def table_decoder(contexts: Distributions, factors: Factors, *, seed: int, progress: Progress = SILENT) -> TableDecoder:
    """The exact network that maps every context to its row of the factors, and the factors."""
    prefixes = [contexts.prefix(i) for i in range(contexts.count)]
    dataset = load(prefixes, contexts.classes.tolist(), task="next-token", positions=True)
    network = build_compact(dataset, seed=seed, progress=progress).network
    if not isinstance(network, Network):
        raise BuildError("the memory of the contexts is not an exact network")
    encoder = dataset.encoder
    code = {symbol: number for number, symbol in enumerate(encoder.symbols or (), start=1)}
    return TableDecoder(
        network,
        codes=tuple(code.get(token, 0) for token in range(contexts.vocabulary_size)),
        length=encoder.length,
        padded=encoder.padded,
        coordinates=factors.coordinates.copy(),
        columns=factors.columns.copy(),
    )


TASKS = (Task.NEXT_TOKEN, Task.CAUSAL)
PLACES = "of the neurons; none: as the activation needs them; sampled: the paper's algorithm"
OBJECTIVES = "a neuron per context; shared outputs of low rank; or the fewest parameters, in a deeper network"


def _options(mixer: MixerKind) -> tuple[Option, ...]:
    return (
        Option("mixer", str, mixer.value, "layer that distinguishes contexts", tuple(kind.value for kind in MixerKind)),
        Option("activation", str, "tanh", "of the neurons", tuple(kind.value for kind in Activation)),
        Option("objective", str, CLOSED_FORM, OBJECTIVES, (CLOSED_FORM, LOW_RANK, SIZE)),
        Option("features", str, None, PLACES, FEATURES, optional=True),
        Option("scaled", bool, True, "with features=sampled: ε keeps the neurons where the series of ψ converges"),
        Option("effort", int, 1, f"with objective={LOW_RANK} or {SIZE}: how hard to look, 1 or more"),
        Option("gap", float, 0.01, "the part of the entropy that the cross-entropy may exceed it by"),
        Option("dimension", int, None, "of the embedding; none: as the construction needs it", optional=True),
        Option("heads", int, 1, "of the attention"),
        Option("skip", bool, False, "whether the last token's vector is added after the mixer"),
    )


@register(
    "madden24",
    summary="one-layer decoder with softmax attention and any next-token distributions",
    ref=Ref("M24", "Theorem 5"),
    tasks=TASKS,
    options=_options(MixerKind.ATTENTION),
    assumptions=(SYMBOLS,),
    order=80,
    formula="Madden 2024, attention",
    description="A one-layer decoder with a neuron per context that stores whole next-token distributions, not only a "
    "label: it needs ω numbers per context. Float64 weights. Use it when the distributions matter.",
    distributions=True,
)
@register(
    "madden24-average",
    summary="the same with averaged tokens instead of attention",
    ref=Ref("M24", "Theorem 7"),
    tasks=TASKS,
    options=_options(MixerKind.AVERAGE),
    assumptions=(SYMBOLS,),
    order=90,
    formula="Madden 2024, averaging",
    description="The same with averaged tokens instead of attention.",
    distributions=True,
)
def build(
    dataset: Dataset,
    *,
    seed: int,
    progress: Progress,
    mixer: str,
    activation: str,
    objective: str,
    features: str | None,
    scaled: bool,
    effort: int,
    gap: float,
    dimension: int | None,
    heads: int,
    skip: bool,
) -> Construction:
    """The decoder of the contexts' distributions as a network from the data set's codes to its classes."""
    if not 0 < gap < math.inf:
        raise OptionError(f"gap={gap}: the allowed gap must be positive and finite, for example 0.01")
    if dataset.encoder.symbols is None:
        raise AssumptionError(SYMBOLS, "a decoder reads symbols, these tokens are vectors; use another construction")
    contexts = ordered_distributions(dataset)
    shape = DecoderShape(MixerKind(mixer), Activation(activation), dimension, heads, skip)
    if objective == CLOSED_FORM:
        places, factored = None if features is None else Features(features), _factored(dataset, contexts)
        fit = closed_form(
            contexts, shape, features=places, scaled=scaled, factored=factored, seed=seed, progress=progress
        )
        return _construction(dataset, contexts, fit)
    if features is not None:
        raise OptionError(f"features={features} is for objective={CLOSED_FORM}; {objective} places its own neurons")
    factors = smallest_factors(contexts, gap, effort, seed, progress)
    if objective == LOW_RANK:
        return _construction(dataset, contexts, assemble(contexts, shape, factors, seed, progress))
    table = table_decoder(contexts, factors, seed=seed, progress=progress)
    try:
        fit = assemble(contexts, shape, factors, seed, progress)
        if fit.decoder.parameters <= table.parameters:
            return _construction(dataset, contexts, fit)
    except (OptionError, BuildError):  # a shape that steps on a line cannot have; the table has none
        pass
    note = f"{len(table.coordinates)} distributions of rank {len(table.columns)} in a table, named by an exact network"
    facts = {"vocabulary": table.vocabulary_size, "rank": len(table.columns)}
    return Construction(_network(dataset, contexts, table), notes=(note,), facts=facts)


def _construction(dataset: Dataset, contexts: Distributions, fit: DecoderFit) -> Construction:
    return Construction(_network(dataset, contexts, fit.decoder), notes=fit.notes, facts=_facts(fit))


def _factored(dataset: Dataset, contexts: Distributions) -> bool:
    """Whether V is smaller as neurons to the tokens that follow and these to all tokens; only for labels, because
    Theorem 5 speaks about the whole V."""
    follow, whole = len(np.unique(contexts.pair_token)), contexts.count * contexts.vocabulary_size
    return dataset.target is Target.CLASS and follow * (contexts.count + contexts.vocabulary_size) < whole


def _network(dataset: Dataset, contexts: Distributions, decoder: AnyDecoder) -> DecoderNetwork:
    number = {key(token): place for place, token in enumerate(dataset.vocabulary)}
    return DecoderNetwork(
        decoder,
        inputs=tuple(number[key(symbol)] for symbol in dataset.encoder.symbols or ()),
        classes=tuple(number[key(name)] for name in dataset.classes),
        read=Read.EACH if dataset.encoder.task is Task.CAUSAL else Read.LAST,
        known=tuple(sorted({context_number(contexts.prefix(k)) for k in range(contexts.count)})),
    )


def _facts(fit: DecoderFit) -> dict[str, Any]:
    decoder = fit.decoder
    return {
        "vocabulary": decoder.vocabulary_size,
        "neurons": decoder.neurons,
        "dimension": decoder.reader.dimension,
        "rank": decoder.output[0].shape[1] if len(decoder.output) > 1 else None,
        **fit.numbers(),
    }
