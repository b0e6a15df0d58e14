"""M24 as constructions: rows with labels, or documents with their next-token distributions, to a decoder.

A label is a distribution of one class, so whatever Theorem 5 stores, it stores labels too; `byheart compare` builds it
beside the constructions that store nothing else.

    >>> from byheart.compile.documents import memorize_documents
    >>> memory = memorize_documents(["a cat sat", "a dog sat", "a dog ran"])
    >>> memory.construction, memory.certificate.verdict.value, memory.generate("a cat")
    ('madden24', 'proved', 'a cat sat')

The fewest parameters: `compact` names each context's distribution, a low-rank table says what it is.

Deeper than the decoder of M24 (it has the memory's blocks) and with long weights, but with the fewest numbers.

    >>> from byheart.data.dataset.documents import Corpus
    >>> contexts = Corpus.of_texts(["a cat sat", "a dog sat", "a dog ran"]).contexts()
    >>> table_decoder(contexts, smallest_factors(contexts, 0.01, 1, 0), seed=0).vocabulary_size
    5
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from byheart.build._base import SYMBOLS, Construction, Option, register
from byheart.build.compact.construction import build_compact
from byheart.build.madden24.construction import closed_form
from byheart.build.madden24.factors import Factors
from byheart.build.madden24.fit import Fit, MixerKind, Shape
from byheart.build.madden24.lowrank import assemble, smallest_factors
from byheart.data.dataset.dataset import Dataset, load, ordered_distributions
from byheart.data.dataset.targets import Distributions, Target
from byheart.data.task import Task
from byheart.data.values import key
from byheart.errors import AssumptionError, BuildError, OptionError
from byheart.ir.decoder import Activation
from byheart.ir.decoder_network import AnyDecoder, DecoderNetwork, TableDecoder, context_number
from byheart.ir.network import Network, Read
from byheart.paper import Ref
from byheart.progress import SILENT, Progress
from byheart.theory.promises.madden24 import CLOSED_FORM, LOW_RANK, SIZE


def table_decoder(contexts: Distributions, factors: Factors, *, seed: int, progress: Progress = SILENT) -> TableDecoder:
    """The exact network that leads every context to its row of the factors, and the factors."""
    prefixes = [contexts.prefix(i) for i in range(contexts.count)]
    dataset = load(prefixes, contexts.classes.tolist(), task="next-token", positions=True)
    network = build_compact(dataset, seed=seed, progress=progress).network
    if not isinstance(network, Network):
        raise BuildError("the memory of the contexts is no exact network")
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
OBJECTIVES = "a neuron per context; shared outputs of low rank; or the fewest parameters, in a deeper network"


def _options(mixer: MixerKind) -> tuple[Option, ...]:
    return (
        Option("mixer", str, mixer.value, "what tells contexts apart", tuple(kind.value for kind in MixerKind)),
        Option("activation", str, "tanh", "of the neurons", tuple(kind.value for kind in Activation)),
        Option("objective", str, CLOSED_FORM, OBJECTIVES, (CLOSED_FORM, LOW_RANK, SIZE)),
        Option("effort", int, 1, f"with objective={LOW_RANK} or {SIZE}: how hard to look, 1 or more"),
        Option("gap", float, 0.01, "the part of the entropy that the cross-entropy may exceed it by"),
        Option("dimension", int, None, "of the embedding; none: as the construction needs it", optional=True),
        Option("heads", int, 1, "of the attention"),
        Option("skip", bool, False, "whether the last token's vector is added behind the mixer"),
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
    words="A one-layer decoder with a neuron per context that stores whole next-token distributions, not only a label: "
    "it needs ω numbers per context. Float64 weights. Take it when the distributions matter.",
    distributions=True,
)
@register(
    "madden24-average",
    summary="the same with averaged tokens in place of attention",
    ref=Ref("M24", "Theorem 7"),
    tasks=TASKS,
    options=_options(MixerKind.AVERAGE),
    assumptions=(SYMBOLS,),
    order=90,
    formula="Madden 2024, averaging",
    words="The same with averaged tokens in place of attention.",
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
        raise AssumptionError(SYMBOLS, "a decoder reads symbols, these tokens are vectors; take another construction")
    contexts = ordered_distributions(dataset)
    shape = Shape(MixerKind(mixer), Activation(activation), dimension, heads, skip)
    if objective == CLOSED_FORM:
        fit = closed_form(contexts, shape, factored=_factored(dataset, contexts), seed=seed, progress=progress)
        return _construction(dataset, contexts, fit)
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


def _construction(dataset: Dataset, contexts: Distributions, fit: Fit) -> Construction:
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


def _facts(fit: Fit) -> dict[str, Any]:
    decoder = fit.decoder
    return {
        "vocabulary": decoder.vocabulary_size,
        "neurons": decoder.neurons,
        "dimension": decoder.reader.dimension,
        "rank": decoder.output[0].shape[1] if len(decoder.output) > 1 else None,
        **fit.numbers(),
    }
