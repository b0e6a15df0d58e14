"""A memory: a network, its encoder, and the certificate that it stores its data."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from byheart.certify import FRACTION, Certificate
from byheart.data.dataset.dataset import Dataset
from byheart.data.dataset.encoder import Encoder
from byheart.data.dataset.sequences import as_list
from byheart.data.dataset.targets import Target
from byheart.data.read.options import Selection
from byheart.data.read.table import Table
from byheart.data.task import Task
from byheart.data.tokens.tokenizer import PLAIN, Tokenizer
from byheart.data.values import UNKNOWN, Unknown, to_json
from byheart.data.wording import written
from byheart.errors import DataError, UnknownSymbolError
from byheart.exact.budget import Budget, check_padding, limited
from byheart.ir.decoder_network import AnyNetwork, DecoderNetwork
from byheart.ir.enclose import decided_answers
from byheart.ir.network import Inputs
from byheart.ir.size import Claim, Size, measure, uniform_parameters
from byheart.notebook import card, tone_of
from byheart.progress import SILENT, Progress

if TYPE_CHECKING:
    from byheart.export.torch_runtime import TorchMemory

Label = Hashable | Unknown


def _spelled(label: Hashable) -> Any:
    """A label as a file writes it; one that no file can hold, by its repr."""
    try:
        return to_json(label)
    except DataError:
        return repr(label)


@dataclass(frozen=True, eq=False, repr=False)
class Memory:
    """A certified network with its symbols and classes: the value of `memorize`, and the content of a file.

    A memory answers UNKNOWN where its network gives no class.

    Attributes:
        construction: What was built.
        options: With which options.
        seed: And seed.
        network: The network.
        encoder: How tokens become inputs.
        classes: The labels.
        claim: The theorem's guarantee.
        certificate: The verdict.
        notes: Remarks for people.
        tokens: How a text is tokenized.
        selection: Which part of a file was memorized.
        budget: The limit on evaluating a loaded file; None sets none.
        recorded_by: The byheart whose file this is; its claim and certificate are records, not proofs.
        dataset: The rows, right after building; never saved.
        seconds: Of building and proving; never saved.
        conflicts: How contradictory rows were handled; never saved.
        facts: Numbers about the build; never saved.

    >>> import byheart
    >>> byheart.memorize(["sun", "moon"], ["day", "night"], construction="ks25", progress=False).classes
    ('day', 'night')
    """

    construction: str
    options: Mapping[str, Any]
    seed: int
    network: AnyNetwork
    encoder: Encoder
    classes: tuple[Hashable, ...]
    claim: Claim
    certificate: Certificate
    notes: tuple[str, ...] = ()
    tokens: Tokenizer = PLAIN
    selection: Selection = Selection()  # noqa: RUF009  # a frozen value
    budget: Budget | None = None
    recorded_by: str = ""
    dataset: Dataset | None = field(default=None, repr=False)
    seconds: Mapping[str, float] = field(default_factory=dict, repr=False)
    conflicts: Mapping[str, Any] = field(default_factory=dict, repr=False)
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        """One line: a network may have a million weights."""
        sizes = f"{self.certificate.asked:,} rows, {len(self.classes):,} classes, {self.size.parameters:,} parameters"
        return f"<Memory by {self.construction}: {sizes}, {self.verdict_words}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the verdict, and guaranteed beside measured."""
        from byheart.memory.size_rows import size_rows

        certificate = self.certificate
        title = f"{certificate.asked:,} rows memorized: {self.construction}, {self.verdict_words}"
        facts = [("task", self.task.value), ("labels", _few(self.classes)), ("scope", certificate.count_words)]
        return card(
            title,
            [*facts, ("reason", "" if certificate.verdict.value == "proved" else certificate.reason)],
            columns=("", "guaranteed at most", "measured"),
            rows=[(row.meaning, row.guaranteed, row.measured) for row in size_rows(self)],
            tone="" if self.recorded_by else tone_of(certificate.verdict),
        )

    @property
    def verdict_words(self) -> str:
        """The verdict where the checker has just given it; of a file, that it is only recorded."""
        verdict = self.certificate.verdict.value
        return f"{verdict} (recorded, not checked now)" if self.recorded_by else verdict

    @cached_property
    def size(self) -> Size:
        """Measured from the weights, whatever a file records."""
        return measure(self.network)

    @cached_property
    def table_bytes(self) -> dict[str, int]:
        """Bytes of the tables of symbols and of labels as a file writes them: what is shipped beside the weights."""
        written = json.dumps(self.encoder.as_dict()["symbols"])
        return {"symbols": len(written), "labels": sum(len(json.dumps(_spelled(label))) + 2 for label in self.classes)}

    @property
    def task(self) -> Task:
        """The task: rows, tokens, sets or prefixes are labelled."""
        return self.encoder.task

    @property
    def target(self) -> Target:
        """Whether contexts have a class each, or a distribution."""
        return Target.CLASS if self.certificate.gap is None else Target.DISTRIBUTION

    @property
    def abstains(self) -> bool:
        """Whether it was built to refuse inputs that are not in the data."""
        return bool(self.options.get("abstain_bits"))

    def predict(self, sequences: Sequence[Any], progress: Progress = SILENT) -> list[Any]:
        """Predict the label of every sequence, exactly.

        Texts are tokenized as those of the data; where the data did not come from a file, a text is a sequence of
        characters. A memory of distributions returns the likeliest label in float64; see `probabilities`.

        Args:
            sequences: Texts, or lists of tokens.
            progress: Where progress is reported.

        Returns:
            One label per sequence, or a list of labels where the task has one per token. Rows outside the data get
            UNKNOWN if the memory abstains, otherwise some label: nothing is proved about them.

        Raises:
            DataError: If a symbol does not occur in the data and the memory does not abstain.
        """
        if not hasattr(sequences, "__len__"):
            sequences = as_list(sequences)
        if not len(sequences):
            return []
        sequences = self.tokens.cut_texts(sequences)
        with limited(self.budget):
            listed = (row for row in sequences if hasattr(row, "__len__") and getattr(row, "ndim", 1) != 0)
            tokens = sum(map(len, listed))  # what is not a list of tokens is refused below
            check_padding(len(sequences), self.encoder.length, tokens)
            if self.abstains:
                inputs, known = self.encoder.encode_known(sequences)
            else:
                inputs, known = self._encode(sequences), np.ones(len(sequences), dtype=bool)
            if isinstance(self.network, DecoderNetwork):
                found = self.network.likeliest(inputs)
            else:
                found = decided_answers(self.network, inputs, progress)
        found[~known] = -1
        if not self.task.labels_per_token:
            return [self._label(k) for k in found]
        return [
            self._row(row, len(sequence)) if taken else [UNKNOWN] * len(sequence)  # it may be longer than all rows are
            for row, sequence, taken in zip(found, sequences, known, strict=True)
        ]

    def _encode(self, sequences: Sequence[Any]) -> Inputs:
        try:
            return self.encoder.encode(sequences)
        except UnknownSymbolError as error:
            raise UnknownSymbolError(f"{error}; memorize with abstain_bits=16 to get `unknown` for such rows") from None

    def _label(self, index: int) -> Label:
        return self.classes[index] if index >= 0 else UNKNOWN

    def _row(self, found: npt.NDArray[np.int64], length: int) -> list[Label]:
        padded_left = self.task is Task.SEQ_TO_SEQ
        return [self._label(k) for k in (found[len(found) - length :] if padded_left else found[:length])]

    def probabilities(self, sequences: Sequence[Any]) -> list[dict[Any, float]]:
        """Return the distribution after each sequence.

        Args:
            sequences: Texts, or lists of tokens.

        Returns:
            Label -> probability, one dictionary per sequence.

        >>> from byheart.memory.documents import memorize_documents
        >>> memory = memorize_documents(["a cat", "a dog", "a dog", "a dog"])
        >>> {label: round(p, 2) for label, p in memory.probabilities(["a"])[0].items()}
        {'cat': 0.25, 'dog': 0.75}
        """
        from byheart.memory.generate import probabilities

        return probabilities(self, sequences)

    def logits(self, sequences: Sequence[Any]) -> list[npt.NDArray[np.float64]]:
        """Return logits over `classes` for each sequence, scaled as log-probabilities.

        The answer of an exact memory has a margin of 32 nats, so the perplexity of memorized rows is 1 up to 1e-14 for
        each class.

        Args:
            sequences: Texts, or lists of tokens.

        Returns:
            One array per sequence, with one row per token where every token or prefix has a label.

        >>> from byheart.memory.memorize import memorize
        >>> memory = memorize(["cat", "act"], ["noun", "verb"], progress=False)
        >>> memory.classes, memory.logits(["act"])[0].tolist()
        (('noun', 'verb'), [-32.0, 0.0])
        """
        from byheart.memory.generate import logits

        return logits(self, sequences)

    def generate(
        self, prompt: Any, *, temperature: float = 0.0, seed: int = 0, limit: int | None = None
    ) -> str | list[Any]:
        """Continue a prompt token by token.

        Args:
            prompt: A text, or a list of tokens.
            temperature: 0 is greedy; above 0, tokens are sampled from the memory's distributions.
            seed: Equal seeds give equal samples.
            limit: The largest number of tokens; None: until a memorized row ends.

        Returns:
            The prompt with its continuation. A text that was memorized as one continues from the first occurrence of
            the prompt. Nothing is proved about the continuation of a prompt that was not memorized.
        """
        from byheart.memory.generate import generate

        return generate(self, prompt, temperature=temperature, seed=seed, limit=limit)

    def recite(self, page: int | str | Sequence[Any] | None = None) -> Any:
        """Decode a causal memory greedily.

        Args:
            page: A page's number, a prompt, or None for the whole text.

        Returns:
            The text.
        """
        from byheart.memory.text import recite

        return recite(self, page)

    def verify(
        self,
        sequences: Sequence[Any] | Table | Dataset,
        labels: Sequence[Any] | None = None,
        *,
        max_rows: int | None = None,
        conflicts: str | None = None,
        gap: float = FRACTION,
        max_length: int | None = None,
        part: bool = False,
        progress: Progress = SILENT,
    ) -> Certificate:
        """Prove the memory again on these rows. Nothing in its file is trusted.

        Every row is predicted as `predict` does, and every answer is compared with the row's label by type and value.

        Args:
            sequences: Sequences, a table of `byheart.read`, or a data set; the last two have labels.
            labels: One label per sequence. A memory of distributions may be verified with documents, without labels.
            max_rows: Verify only the first rows, this many.
            conflicts: The policy for rows with equal tokens and different labels.
            gap: The fraction of the entropy by which a memory of distributions may exceed it.
            max_length: Keeps the first tokens of documents.
            part: Whether these are only some of the memorized rows: then the guarantee, which is about all rows, is not
                compared.
            progress: Where progress is reported.

        Returns:
            A `Certificate`: proved, refuted with a witness row, or undecided with a reason.
        """
        from byheart.memory.verify import VerifyOptions, verify_rows

        place: Callable[[int], str] = "row {}".format
        if self.target is Target.DISTRIBUTION and labels is None and not isinstance(sequences, Dataset | Table):
            from byheart.memory.documents import as_table

            sequences = as_table(sequences, replace(self.tokens, max_length=max_length))
        rows: Any = sequences
        if isinstance(sequences, Dataset | Table):
            if labels is not None:
                raise DataError("a table has its own labels; omit `labels`, or give table.sequences")
            if isinstance(sequences, Table):
                place = sequences.places or place
                rows, labels = sequences.sequences, sequences.labels
            else:
                rows, labels = sequences.sequences(), sequences.given or sequences.label_values()
        elif labels is None:
            raise DataError("labels are missing: memory.verify(sequences, labels), or memory.verify(table)")
        left_out = sequences.not_here if isinstance(sequences, Table) else {}
        options = VerifyOptions(max_rows, conflicts, left_out, gap, part)
        return verify_rows(self, as_list(rows), as_list(labels), progress, options=options, place=place)

    def save(self, path: str | Path) -> None:
        """Write the memory to one file, atomically.

        Args:
            path: The file.
        """
        from byheart.memory.memory_file import save

        save(self, Path(path))

    def to_torch(
        self,
        *,
        dtype: str | None = None,
        dataset: Dataset | None = None,
        fast: bool = False,
        progress: Progress = SILENT,
    ) -> TorchMemory:
        """Build an nn.Module with the same answers, and check it.

        Args:
            dtype: A float type; None: the memory's own.
            dataset: Rows for the check; None: the data that the memory still has, otherwise sampled inputs.
            fast: Whether to build the fast form: the same answers, several times as fast on a CPU.
            progress: Where progress is reported.

        Returns:
            A `TorchMemory`.

        Raises:
            ExportError: If the float type cannot represent the memory exactly.
        """
        from byheart.memory.export_memory import to_torch

        return to_torch(self, dtype=dtype, dataset=dataset, fast=fast, progress=progress)

    def export(self, target: str, path: str | Path, **options: Any) -> dict[str, Any]:
        """Write the memory for another runtime and check the artifact on every row.

        Args:
            target: `torch`, `onnx`, `safetensors` or `huggingface`.
            path: The file (or, for `huggingface`, the folder) to write.
            **options: `dtype`, `dataset` and `progress`; for `huggingface` also `architecture` and its shape.

        Returns:
            A summary of the written artifact.

        Raises:
            ExportError: If the memory cannot be represented exactly in the target.
        """
        if target == "huggingface":
            return self.to_huggingface(path, **options)
        from byheart.memory.export_memory import export_file

        return export_file(self, target, path, **options)

    def to_huggingface(
        self, folder: str | Path, architecture: str = "llama", *, dataset: Dataset | None = None, **options: Any
    ) -> dict[str, Any]:
        """Write the rows of a next-token memory as a stock checkpoint for AutoModelForSequenceClassification.

        Args:
            folder: The folder to write.
            architecture: A stock architecture.
            dataset: The rows; None: the data that the memory still has.
            **options: `dtype`, `flavour` and fields of the shape.

        Returns:
            A summary. It states whether the margin was proved from the folder and whether Transformers ran every row.

        Raises:
            ExportError: If the rows do not fit the architecture.
        """
        # By name: stock checkpoints are built on top of this package, which must not depend on them.
        module = importlib.import_module("byheart.checkpoints.formats.table")
        summary: dict[str, Any] = module.to_huggingface(self, folder, architecture, dataset=dataset, **options)
        return summary

    def to_onnx(
        self, path: str | Path, *, dtype: str | None = None, dataset: Dataset | None = None, progress: Progress = SILENT
    ) -> None:
        """Write an ONNX model with the same answers; checked as in `to_torch`.

        Args:
            path: The file.
            dtype: A float type; None: the memory's own.
            dataset: Rows for the check.
            progress: Where progress is reported.

        Raises:
            ExportError: If the float type cannot represent the memory exactly.
        """
        from byheart.memory.export_memory import export_file

        export_file(self, "onnx", path, dtype=dtype, dataset=dataset, progress=progress)

    def to_safetensors(
        self, path: str | Path, *, dtype: str | None = None, dataset: Dataset | None = None, progress: Progress = SILENT
    ) -> None:
        """Write the weights as safetensors with the architecture as metadata; checked as in `to_torch`.

        Args:
            path: The file.
            dtype: A float type; None: the memory's own.
            dataset: Rows for the check.
            progress: Where progress is reported.

        Raises:
            ExportError: If the float type cannot represent the memory exactly.
        """
        from byheart.memory.export_memory import export_file

        export_file(self, "safetensors", path, dtype=dtype, dataset=dataset, progress=progress)

    def summary(self) -> dict[str, Any]:
        """The numbers that `memorize --json` prints."""
        certificate = self.certificate
        return {
            "construction": self.construction,
            "task": self.task.value,
            "positions": self.encoder.positions,
            "N": certificate.asked,
            "n": self.encoder.length,
            "d": self.encoder.input_width,
            "C": len(self.classes),
            "contexts": certificate.contexts,
            "verdict": certificate.verdict.value,
            "recorded": bool(self.recorded_by),
            "reason": certificate.reason,
            "left_out": dict(certificate.left_out),
            **self.size.as_dict(),
            "symbols": len(self.encoder.symbols or ()),
            "table_bytes": dict(self.table_bytes),
            "uniform_parameters": uniform_parameters(self.network),  # as eq. (4) stores it, where it is of that form
            "guaranteed": dict(certificate.guaranteed),
            "guarantee": certificate.guarantee,
            "proofs": dict(certificate.proofs),
            "arithmetic": certificate.arithmetic,
            "theorem": str(self.claim.ref),
            "tokens": str(self.tokens),
            "options": {name: value for name, value in self.options.items()},
            "seed": self.seed,
            "notes": list(self.notes),
            "fingerprint": certificate.fingerprint,
            **self.facts,
            **({} if certificate.gap is None else certificate.gap.summary()),
            **{f"{name}_seconds": round(value, 3) for name, value in self.seconds.items()},
        }


def _few(classes: Sequence[Hashable], most: int = 6) -> str:
    """The first classes and how many there are.

    >>> _few(["a", "b"]), _few(range(9))
    ('a, b', '0, 1, 2, 3, 4, 5, … (9)')
    """
    named = ", ".join(written(label)[:40] for label in classes[:most])
    return named if len(classes) <= most else f"{named}, … ({len(classes):,})"
