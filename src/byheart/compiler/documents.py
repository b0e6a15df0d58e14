"""memorize_documents(): from texts to a certified decoder of their next-token distributions, straight down.

>>> memory = memorize_documents(["a cat sat", "a dog sat", "a dog ran"], max_length=3)
>>> memory.certificate.verdict.value, memory.contexts
('proved', 3)
>>> memory.generate("a cat")
'a cat sat'
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from byheart.certify.next_token import DecoderCertificate, certify_decoder
from byheart.constructions.decoder_fit import FLOOR, Fit, Shape
from byheart.constructions.madden24 import Features, closed_form
from byheart.constructions.madden24_lowrank import low_rank, smallest
from byheart.constructions.madden24_polish import few_neurons
from byheart.data.documents import Contexts, Corpus, Tokenizer, encode
from byheart.errors import OptionError
from byheart.ir.decoder import Decoder
from byheart.ir.generate import generate
from byheart.progress import SILENT, Progress


@dataclass(frozen=True, eq=False)
class DecoderMemory:
    """A decoder, its certificate and where it comes from: what a decoder file holds."""

    decoder: Decoder
    tokenizer: Tokenizer
    certificate: DecoderCertificate
    numbers: dict[str, Any]  # of the fit: construction, condition number, residual, norms, floor
    seed: int
    cross_entropy: float
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def contexts(self) -> int:
        return self.certificate.contexts

    def summary(self) -> dict[str, Any]:
        """The numbers of the build and of the proof, in one flat dictionary."""
        certificate = self.certificate
        gap = max(0.0, self.cross_entropy - certificate.entropy)
        return {
            "contexts": certificate.contexts,
            "vocabulary": len(self.decoder.vocabulary),
            "entropy": certificate.entropy,
            "cross_entropy": self.cross_entropy,
            "gap": gap,
            "relative_gap": gap / certificate.entropy if certificate.entropy else None,
            "gap_proved": certificate.gap_upper,
            "gap_allowed": certificate.allowed,
            "parameters": self.decoder.parameters,
            "parameters_per_context": self.decoder.parameters / certificate.contexts,
            "neurons": self.decoder.neurons,
            "length": self.decoder.length,
            "labels_proved": certificate.labels_proved,
            "verdict": certificate.verdict.value,
            "reason": certificate.reason,
            "arithmetic": certificate.arithmetic,
            "activation": self.decoder.activation.value,
            "seed": self.seed,
            **self.numbers,
            "seconds": sum(self.seconds.values()),
            "build_seconds": self.seconds.get("build"),
            "certify_seconds": self.seconds.get("certify"),
        }

    def generate(self, prompt: str, *, temperature: float = 0.0, seed: int = 0, limit: int | None = None) -> str:
        """Text that begins with the prompt: greedy at temperature 0, else drawn."""
        tokens = encode(prompt, self.decoder.vocabulary, self.tokenizer)
        found = generate(self.decoder, tokens, temperature=temperature, seed=seed, limit=limit)
        return self.tokenizer.text_of([self.decoder.vocabulary[t] for t in found])


def memorize_documents(
    texts: Sequence[str],
    *,
    tokenizer: Tokenizer = Tokenizer.WORDS,
    max_length: int | None = 10,
    shape: Shape = Shape(),  # noqa: B008  # frozen
    neurons: int | None = None,
    rank: int | None = None,
    find_smallest: bool = False,
    effort: int = 1,
    features: Features | None = None,
    fraction: float = 0.01,
    floor: float = FLOOR,
    seed: int = 0,
    progress: Progress = SILENT,
) -> DecoderMemory:
    """A decoder that knows the next-token distributions of all prefixes of the texts, with a certificate for its gap.

    By default the closed form with one neuron for each context; `neurons` below that polishes a smaller network, `rank`
    shares outputs, and `find_smallest` looks for the lowest rank, the harder the higher `effort`. The gap to be
    proved is `fraction` of the entropy.
    """
    started = time.perf_counter()
    corpus = Corpus.of_texts(texts, tokenizer, max_length)
    contexts = corpus.contexts()
    fit = _fit(
        contexts,
        corpus.vocabulary,
        shape,
        neurons,
        rank,
        find_smallest * effort,
        features,
        fraction,
        floor,
        seed,
        progress,
    )
    built = time.perf_counter()
    certificate = certify_decoder(fit.decoder, contexts, fraction=fraction, progress=progress)
    middle = (certificate.gap_lower + certificate.gap_upper) / 2  # known to far more digits than anybody reads
    loss = certificate.entropy + middle
    seconds = {"build": built - started, "certify": time.perf_counter() - built}
    return DecoderMemory(fit.decoder, tokenizer, certificate, fit.as_dict(), seed, loss, seconds)


def _fit(
    contexts: Contexts, vocabulary: tuple[str, ...], shape: Shape, neurons: int | None, rank: int | None,
    effort: int, features: Features | None, fraction: float, floor: float, seed: int, progress: Progress,
) -> Fit:  # fmt: skip
    """Which construction the options ask for; effort 0 means not to look for the smallest."""
    if sum((neurons is not None, rank is not None, effort > 0)) > 1:
        raise OptionError("neurons, rank and smallest are three ways to choose a size; give one of them")
    if effort:
        return smallest(contexts, vocabulary, shape, fraction=fraction, effort=effort, seed=seed, progress=progress)
    if rank is not None:
        return low_rank(contexts, vocabulary, shape, rank=rank, fraction=fraction, seed=seed, progress=progress)
    if neurons is None or neurons == contexts.count:
        return closed_form(contexts, vocabulary, shape, features=features, floor=floor, seed=seed, progress=progress)
    if neurons > contexts.count:
        raise OptionError(f"neurons={neurons}: {contexts.count} contexts need at most as many neurons (Theorem 5)")
    return few_neurons(contexts, vocabulary, shape, neurons, fraction=fraction, seed=seed, progress=progress)
