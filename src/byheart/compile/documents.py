"""memorize_documents(): from texts to a certified decoder of their next-token distributions, straight down.

>>> memory = memorize_documents(["a cat sat", "a dog sat", "a dog ran"], max_length=3)
>>> memory.certificate.verdict.value, memory.contexts
('proved', 3)
>>> memory.generate("a cat")
'a cat sat'
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from byheart.build.madden24.construction import Features, closed_form
from byheart.build.madden24.fit import Fit, Shape
from byheart.build.madden24.lowrank import low_rank, smallest
from byheart.build.madden24.polish import few_neurons
from byheart.certify.next_token import DecoderCertificate, certify_decoder
from byheart.data.dataset.documents import WORDS, Corpus, Document, encode, tokens_of
from byheart.data.dataset.targets import Distributions
from byheart.data.read.documents import GivenDistributions
from byheart.data.tokens.tokenizer import Tokenizer
from byheart.errors import DataError, OptionError
from byheart.ir.decoder import Decoder
from byheart.ir.generate import generate
from byheart.progress import SILENT, Progress


@dataclass(frozen=True, eq=False)
class DecoderMemory:
    """A decoder, its certificate and where it comes from: what a decoder file holds.

    `known` has a 64-bit number for each context that was memorized: the certificate speaks about these alone, and
    generated text ends where they end.
    """

    decoder: Decoder
    tokenizer: Tokenizer
    certificate: DecoderCertificate
    numbers: dict[str, Any]  # of the fit: construction, condition number, residual, norms, floor
    seed: int
    cross_entropy: float
    seconds: dict[str, float] = field(default_factory=dict)
    known: frozenset[int] = frozenset()

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
            "gap_per_token": gap / certificate.tokens if certificate.tokens else None,
            "gap_proved": certificate.gap_upper,
            "gap_allowed": certificate.allowed,
            "parameters": self.decoder.parameters,
            "parameters_per_context": self.decoder.parameters / certificate.contexts,
            "neurons": self.decoder.neurons,
            "length": self.decoder.length,
            "labels_proved": certificate.labels_proved,
            "labels_refuted": certificate.labels_refuted,
            "verdict": certificate.verdict.value,
            "reason": certificate.reason,
            "arithmetic": certificate.arithmetic,
            "activation": self.decoder.activation.value,
            "mixer": self.decoder.reader.kind,
            "dimension": self.decoder.reader.dimension,
            "skip": self.decoder.reader.skip,
            "tokenizer": self.tokenizer.kind,
            "seed": self.seed,
            **self.numbers,
            "seconds": sum(self.seconds.values()),
            "build_seconds": self.seconds.get("build"),
            "certify_seconds": self.seconds.get("certify"),
        }

    def knows(self, tokens: Sequence[int]) -> bool:
        """Whether these tokens are one of the memorized contexts."""
        return context_number(tokens) in self.known

    def knows_text(self, text: str) -> bool:
        """The same for a text."""
        return self.knows(encode(text, self.decoder.vocabulary, self.tokenizer))

    def generate(self, prompt: str, *, temperature: float = 0.0, seed: int = 0, limit: int | None = None) -> str:
        """Text that begins with the prompt: greedy at temperature 0, else drawn; it ends where a document ended.

        A prompt that is not a memorized context is continued too, but nothing is promised about what follows it.
        """
        tokens = encode(prompt, self.decoder.vocabulary, self.tokenizer)
        knows = self.knows if self.known else None
        found = generate(self.decoder, tokens, temperature=temperature, seed=seed, limit=limit, knows=knows)
        return self.tokenizer.join([self.decoder.vocabulary[t] for t in found])

    def verify(
        self,
        documents: Sequence[Document] | GivenDistributions,
        *,
        fraction: float = 0.01,
        progress: Progress = SILENT,
    ) -> DecoderCertificate:
        """Proves the gap again, against documents, from nothing but the weights."""
        if isinstance(documents, GivenDistributions):
            contexts, vocabulary = documents.contexts_and_vocabulary(self.tokenizer)
            if vocabulary != self.decoder.vocabulary:
                raise DataError(
                    f"the distributions have {len(vocabulary)} tokens, not the {len(self.decoder.vocabulary)} of the "
                    "decoder's vocabulary; verify the data that it was made of"
                )
        else:
            tokenizer = replace(self.tokenizer, max_length=self.decoder.length + 1)
            numbers = tuple(
                encode(tuple(tokens_of(text, tokenizer)), self.decoder.vocabulary, tokenizer) for text in documents
            )
            contexts = Corpus(self.decoder.vocabulary, numbers, self.tokenizer).contexts()
        return certify_decoder(self.decoder, contexts, fraction=fraction, progress=progress)


def context_number(tokens: Sequence[int]) -> int:
    """64 bits that name a context."""
    return int.from_bytes(hashlib.blake2b(np.array(tokens, dtype="<i8").tobytes(), digest_size=8).digest(), "little")


def memorize_documents(
    texts: Sequence[Document] | GivenDistributions,
    *,
    tokenizer: Tokenizer = WORDS,
    max_length: int | None = 10,
    shape: Shape = Shape(),  # noqa: B008  # frozen
    neurons: int | None = None,
    rank: int | None = None,
    find_smallest: bool = False,
    effort: int = 1,
    features: Features | None = None,
    fraction: float = 0.01,
    floor: float | None = None,
    seed: int = 0,
    progress: Progress = SILENT,
) -> DecoderMemory:
    """A decoder that knows the next-token distributions of all prefixes of the texts, with a certificate for its gap.

    By default the closed form with one neuron for each context; `neurons` below that polishes a smaller network, `rank`
    shares outputs, and `find_smallest` looks for the lowest rank, the harder the higher `effort`. The gap to be
    proved is `fraction` of the entropy. Given distributions are taken as they are, whatever `max_length` says.
    """
    started = time.perf_counter()
    contexts, vocabulary = contexts_of(texts, tokenizer, max_length)
    memory = memorize_contexts(
        contexts, vocabulary, tokenizer=tokenizer, shape=shape, neurons=neurons, rank=rank, find_smallest=find_smallest,
        effort=effort, features=features, fraction=fraction, floor=floor, seed=seed, progress=progress,
    )  # fmt: skip
    whole = time.perf_counter() - started - memory.seconds["certify"]
    return replace(memory, seconds={**memory.seconds, "build": whole})


def contexts_of(
    texts: Sequence[Document] | GivenDistributions, tokenizer: Tokenizer, max_length: int | None
) -> tuple[Distributions, tuple[str, ...]]:
    """Contexts and vocabulary of documents, or of given distributions."""
    if isinstance(texts, GivenDistributions):
        return texts.contexts_and_vocabulary(tokenizer)
    corpus = Corpus.of_texts(texts, tokenizer, max_length)
    return corpus.contexts(), corpus.vocabulary


def memorize_contexts(
    contexts: Distributions,
    vocabulary: tuple[str, ...],
    *,
    tokenizer: Tokenizer = WORDS,
    shape: Shape = Shape(),  # noqa: B008  # frozen
    neurons: int | None = None,
    rank: int | None = None,
    find_smallest: bool = False,
    effort: int = 1,
    features: Features | None = None,
    fraction: float = 0.01,
    floor: float | None = None,
    seed: int = 0,
    progress: Progress = SILENT,
) -> DecoderMemory:
    """`memorize_documents` for contexts with any distributions (`Distributions.given`).

    >>> contexts = Distributions.given([(0,), (0, 1)], [{0: 0.1, 1: 0.9}, {1: 0.5, 2: 0.5}], vocabulary_size=3)
    >>> memorize_contexts(contexts, ("a", "b", "c")).certificate.verdict.value
    'proved'
    """
    if not 0 < fraction < math.inf:
        raise OptionError(f"fraction={fraction}: the allowed gap must be positive and finite, for example 0.01")
    started = time.perf_counter()
    fit = _fit(
        contexts, vocabulary, shape, neurons, rank, find_smallest * effort, features, fraction, floor, seed, progress
    )
    built = time.perf_counter()
    certificate = certify_decoder(fit.decoder, contexts, fraction=fraction, progress=progress)
    middle = (certificate.gap_lower + certificate.gap_upper) / 2  # known to far more digits than anybody reads
    loss = certificate.entropy + middle
    seconds = {"build": built - started, "certify": time.perf_counter() - built}
    known = frozenset(context_number(contexts.prefix(i)) for i in range(contexts.count))
    return DecoderMemory(fit.decoder, tokenizer, certificate, fit.as_dict(), seed, loss, seconds, known)


def _fit(
    contexts: Distributions, vocabulary: tuple[str, ...], shape: Shape, neurons: int | None, rank: int | None,
    effort: int, features: Features | None, fraction: float, floor: float | None, seed: int, progress: Progress,
) -> Fit:  # fmt: skip
    """Which construction the options ask for; effort 0 means not to look for the smallest."""
    if sum((neurons is not None, rank is not None, effort > 0)) > 1:
        raise OptionError("neurons, rank and smallest are three ways to choose a size; give one of them")
    if effort:
        return smallest(contexts, vocabulary, shape, fraction=fraction, effort=effort, seed=seed, progress=progress)
    if rank is not None:
        return low_rank(contexts, vocabulary, shape, rank=rank, fraction=fraction, seed=seed, progress=progress)
    if neurons is None or neurons >= contexts.count:
        return closed_form(
            contexts, vocabulary, shape, features=features, neurons=neurons, floor=floor, seed=seed, progress=progress
        )
    return few_neurons(contexts, vocabulary, shape, neurons, fraction=fraction, seed=seed, progress=progress)
