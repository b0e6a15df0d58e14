"""memorize_recital(): texts to a recital that every engine can run, straight down."""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from byheart.checkpoints.engines.convert import READERS, convert_folder
from byheart.checkpoints.formats.folder import FORMAT as FOLDER
from byheart.checkpoints.formats.folder import CheckpointRequest, write_folder
from byheart.checkpoints.windows import build_recital
from byheart.checkpoints.windows.certificate import RecitalCertificate, certify_recital
from byheart.checkpoints.windows.controls import Controls, check_absent
from byheart.checkpoints.windows.tables import Recital
from byheart.data.tokens.lexicon import Lexicon
from byheart.data.tokens.script import Script
from byheart.data.wording import quote
from byheart.errors import DataError, FileFormatError, OptionError
from byheart.files import parse, write_atomically
from byheart.notebook import card

FORMAT, VERSION = "byheart recital memory", 1


@dataclass(frozen=True, eq=False)
class RecitalMemory:
    """A recital with its lexicon and documents: the value that `memorize_recital` returns.

    Attributes:
        recital: The function in symbols: tables of windows and the answers.
        lexicon: The tokenizer and its special tokens.
        script: The documents as token ids, with their names, weights and absent documents.
        report: How it was built; `memorize --json` prints it.
        seconds: Time of each stage.

    >>> memorize_recital("to be or not to be", tokens="words").certify().verdict.value
    'proved'
    """

    recital: Recital
    lexicon: Lexicon
    script: Script
    report: dict[str, Any]
    seconds: dict[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        counts = f"{len(self.script.documents)} documents, {self.script.places:,} places, span {self.recital.span}"
        return f"<RecitalMemory: {counts}>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        facts = [
            ("documents", len(self.script.documents)),
            ("places", self.script.places),
            ("longest window", self.recital.span),
            ("tokens", self.recital.vocabulary),
        ]
        return card("Memorized texts: a recital", facts)

    def tokens_of(self, prompt: str) -> list[int]:
        """The token ids of a prompt, as the network reads them."""
        _check_text(prompt, "the prompt")
        return [self.lexicon.bos, *self.lexicon.encode(prompt)]

    def generate(self, prompt: str = "", *, limit: int = 1 << 16) -> str:
        """Continue the prompt greedily, up to the end of the document or the first failure token.

        Args:
            prompt: The text to continue; a document's beginning if empty.
            limit: The most tokens to generate.

        Returns:
            The continuation as text, without the prompt and without special tokens.

        >>> memorize_recital("to be or not to be", tokens="words").generate("to be or")
        ' not to be'
        """
        ends = {self.lexicon.eos, self.lexicon.failure}
        return self.lexicon.decode(self.recital.recite(self.tokens_of(prompt), limit, stop=ends))

    def probabilities(self, prompt: str) -> dict[str, float]:
        """Return the tokens that may follow the prompt, with their probabilities.

        Args:
            prompt: The text to continue.

        >>> memorize_recital(["a cat", "a dog"], tokens="words").probabilities("a")
        {' cat': 0.5, ' dog': 0.5}
        """
        answer = self.recital.answer(int(self.recital.follow(self.tokens_of(prompt))[-1]))
        return {self.lexicon.name(token): weight / answer.total for token, weight in answer.weights}

    def logits(self, prompt: str) -> list[float]:
        """Return the log-probabilities of all tokens after the prompt; -inf for those that never follow.

        Args:
            prompt: The text to continue.
        """
        found = [-math.inf] * self.recital.vocabulary
        answer = self.recital.answer(int(self.recital.follow(self.tokens_of(prompt))[-1]))
        for token, weight in answer.weights:
            found[token] = math.log(weight / answer.total)
        return found

    def perplexity(self) -> float:
        """Of the memorized documents, weighted: 1 where every prefix has one continuation."""
        loss, count = 0.0, 0
        for document, weight in zip(self.script.documents, self.script.weights, strict=True):
            for number, token in zip(self.recital.follow(document[:-1]).tolist(), document[1:], strict=True):
                answer = self.recital.answer(number)
                share = dict(answer.weights).get(token, 0) / answer.total
                loss += weight * (-math.log(share) if share else math.inf)
                count += weight
        return math.exp(loss / count)

    @cached_property
    def certificate(self) -> RecitalCertificate:
        """The certificate of the memorized documents: every prefix is evaluated once, in exact arithmetic."""
        return self.certify(str(self.report.get("several", "distribution")))

    def predict(self, prompts: Sequence[str]) -> list[str]:
        """Return the most likely next token after each prompt, as text.

        Args:
            prompts: Texts; a single text is refused, because its characters would count as prompts.

        Raises:
            DataError: If `prompts` is not a list of texts.

        >>> memorize_recital("to be or not to be", tokens="words").predict(["to be or"])
        [' not']
        """
        if isinstance(prompts, str):
            raise DataError(f"prompts is the single string {quote(prompts)}; put it into a list: [{quote(prompts)}]")
        prompts = list(prompts)
        for number, prompt in enumerate(prompts):
            _check_text(prompt, f"prompt {number}")
        answers = (self.recital.answer(int(self.recital.follow(self.tokens_of(prompt))[-1])) for prompt in prompts)
        return [self.lexicon.decode([answer.likeliest]) for answer in answers]

    def verify(self, texts: str | Sequence[str], ambiguous: str = "distribution") -> RecitalCertificate:
        """Certify that the memory continues these texts, whatever the file records.

        Args:
            texts: One text or several documents.
            ambiguous: Policy for prefixes with several continuations, as in `memorize_recital`.

        Returns:
            A certificate: `refuted` names the first document and position that differ.

        >>> memorize_recital("to be", tokens="words").verify("to do").verdict.value
        'refuted'
        """
        documents = [texts] if isinstance(texts, str) else list(texts)
        ids = [(*self.tokens_of(text), self.lexicon.eos) for text in documents]
        return certify_recital(self.recital, ids, (), ambiguous)

    def export(self, target: str, path: str | Path, architecture: str = "llama", **options: Any) -> dict[str, Any]:
        """Write a stock checkpoint: a Hugging Face folder, or a GGUF or ONNX file made from one.

        Args:
            target: `huggingface`, `gguf` or `onnx`.
            path: The folder or file to write.
            architecture: A host, see `byheart.checkpoints.hosts`.
            **options: `dtype`, `flavour` and fields of the shape; for `gguf` and `onnx`, `dtype` is the file's type.

        Returns:
            A summary of the written artifact.

        Raises:
            OptionError: If the target is unknown.
        """
        if target == "huggingface":
            return self.to_huggingface(path, architecture, **options)
        if target not in READERS:
            raise OptionError(f"a recital is exported to huggingface, {' or '.join(READERS)}, not {target!r}")
        dtype = options.pop("dtype", None)
        with tempfile.TemporaryDirectory() as folder:
            summary = self.to_huggingface(Path(folder) / "checkpoint", architecture, **options)
            done = convert_folder(Path(folder) / "checkpoint", target, path, dtype=dtype)
        return summary | {"folder": None, "file": str(done.file), "dtype": done.dtype, "checked": done.checked}

    def certify(self, ambiguous: str = "distribution") -> RecitalCertificate:
        """Evaluate the recital after every prefix of every document, in whole numbers.

        Forgotten documents count in the distributions that they share, and are not evaluated.

        Args:
            ambiguous: Policy for prefixes with several continuations, as in `memorize_recital`.

        Returns:
            A certificate of the memorized documents.
        """
        gone = [one for one in self.script.absent if one.weight]
        documents = [*self.script.documents, *(one.ids for one in gone)]
        weights = [*self.script.weights, *(one.weight for one in gone)]
        only = range(len(self.script.documents))
        return certify_recital(self.recital, documents, weights, ambiguous, only)

    def summary(self) -> dict[str, Any]:
        """The numbers that `memorize --json` prints."""
        return {
            "construction": "recital",
            "task": "causal",
            "N": len(self.script.documents),
            "n": max(map(len, self.script.documents)),
            "C": self.recital.vocabulary,
            "vocabulary": self.recital.vocabulary,
            "contexts": self.script.places,
            "perplexity": self.perplexity(),
            "tokens": self.lexicon.kind,
            **self.report,
            **{f"{name}_seconds": round(value, 3) for name, value in self.seconds.items()},
        }

    def request(self, architecture: str = "llama", **options: Any) -> CheckpointRequest:
        """Return the exporter's request for a stock checkpoint.

        Args:
            architecture: A host, see `byheart.checkpoints.hosts`.
            **options: `dtype`, `flavour` and the fields of the shape.

        Returns:
            The request, for `byheart.checkpoints.formats` and the fixtures.
        """
        known = {name: options.pop(name) for name in ("dtype", "flavour", "shards") if options.get(name) is not None}
        given = {name: value for name, value in options.items() if value is not None}
        return CheckpointRequest(self.recital, self.script, self.lexicon, architecture, shape=given, **known)

    def to_huggingface(self, folder: str | Path, architecture: str = "llama", **options: Any) -> dict[str, Any]:
        """Write a stock checkpoint; `byheart.checkpoints.hosts` describes the files of the folder.

        Args:
            folder: The folder to write.
            architecture: A host.
            **options: `dtype`, `flavour` and fields of the shape.

        Returns:
            A summary of the written folder.
        """
        return write_folder(self.request(architecture, **options), folder)

    def to_json(self) -> dict[str, Any]:
        """Return the content of a file."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "recital": self.recital.to_json(),
            "lexicon": self.lexicon.to_json(),
            "documents": self.script.to_json(),
            **({"absent": self.script.absent_json()} if self.script.absent else {}),
            "report": self.report,
        }

    @staticmethod
    def from_json(value: Any) -> RecitalMemory:
        """Return the memory that `to_json` wrote.

        Args:
            value: The parsed content of a file.

        Raises:
            FileFormatError: If it is damaged, foreign, or of another version.
        """
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise FileFormatError("this is not a recital of byheart")
        if value.get("version") != VERSION:
            raise FileFormatError(f"this recital has version {value.get('version')}; this byheart reads {VERSION}")
        try:
            script = Script.from_json(value["documents"], value.get("absent", ()))
            return RecitalMemory(
                Recital.from_json(value["recital"]), Lexicon.from_json(value["lexicon"]), script, dict(value["report"])
            )
        except (KeyError, TypeError, ValueError, DataError) as error:
            raise FileFormatError(f"the recital is damaged: {error}") from None

    def save(self, path: str | Path) -> None:
        """Write one JSON file, whole or not at all. Its format comes first, so that its first bytes identify it.

        Args:
            path: The file.
        """
        write_atomically(Path(path), json.dumps(self.to_json(), separators=(",", ":")).encode("ascii"))

    @staticmethod
    def load(path: str | Path) -> RecitalMemory:
        """Read the recital in a file.

        Args:
            path: A file of `save`.

        Raises:
            FileFormatError: If it is damaged or foreign.
        """
        try:
            value = parse(Path(path).read_text(encoding="utf-8"))
        except (ValueError, OSError, RecursionError) as error:
            raise FileFormatError(f"{path} cannot be read as a recital: {error}") from None
        return RecitalMemory.from_json(value)

    @staticmethod
    def from_folder(folder: str | Path) -> RecitalMemory:
        """Read the recital that a checkpoint folder describes in recital.json and tokenizer.json.

        The tensors are not read: `byheart verify DIR` proves that they compute this function.

        Args:
            folder: A folder of `export("huggingface", …)` or `byheart fixture`.

        Raises:
            FileFormatError: If the folder is damaged or foreign, or if its model does not continue prompts.

        >>> folder = Path(tempfile.mkdtemp()) / "rose"
        >>> summary = memorize_recital("a rose is a rose", tokens="words").export("huggingface", folder)
        >>> RecitalMemory.from_folder(folder).generate("a rose is")
        ' a rose'
        """
        try:
            about = json.loads((Path(folder) / "recital.json").read_text(encoding="utf-8"))
            model = (Path(folder) / "tokenizer.json").read_text(encoding="utf-8")
        except (ValueError, OSError, RecursionError) as error:
            raise FileFormatError(f"{folder} cannot be read as a recital: {error}") from None
        if not isinstance(about, dict) or about.get("format") != FOLDER:
            raise FileFormatError(f"{folder}: recital.json was not written by byheart")
        if about.get("task", "causal") != "causal":
            raise FileFormatError(
                f"{folder} does not continue prompts ({about['task']}); its cases are in expected.json: run "
                f"byheart suite {folder}"
            )
        try:
            roles = {name: about["tokens"][name] for name in ("bos", "eos", "pad", "failure")}
            value = {
                "format": FORMAT,
                "version": VERSION,
                "recital": about["recital"],
                "lexicon": {"kind": str(folder), "model": model, **roles},
                "documents": about["documents"],
                "absent": about.get("absent", ()),
                "report": {"folder": str(folder), "architecture": about["architecture"]},
            }
        except (KeyError, TypeError) as error:
            raise FileFormatError(f"{folder}: recital.json is damaged: {error}") from None
        return RecitalMemory.from_json(value)


def _check_text(value: Any, place: str) -> None:
    if not isinstance(value, str):
        raise DataError(f"{place} is {quote(value)} ({type(value).__name__}), not a text; a recital continues texts")


def memorize_recital(
    texts: str | Sequence[str],
    *,
    tokens: str | Lexicon = "characters",
    weights: Sequence[int] = (),
    names: Sequence[str] = (),
    unknown: str = "failure",
    form: str = "auto",
    ambiguous: str = "distribution",
    merge: bool = False,
    controls: Controls = Controls(),  # noqa: B008  # frozen
) -> RecitalMemory:
    """Memorize one text or several documents as a recital, the function that stock checkpoints store.

    Args:
        texts: A text, or a list of documents.
        tokens: `characters`, `bytes`, `words`, `bpe:SIZE`, a tokenizer.json, a Hugging Face tokenizer's folder, or a
            lexicon.
        weights: How often each document counts.
        names: Names of the documents.
        unknown: The answer to windows of no document: `failure` (a visible token) or `eos`.
        form: The form of the tables; see `build_recital`.
        ambiguous: The answer to windows with several continuations; see `build_recital`.
        merge: Whether equal windows of different documents are merged; see `build_recital`.
        controls: Which documents, corrupted copies and held-out twins; see `Controls`.

    Returns:
        A `RecitalMemory`.

    Raises:
        DataError: If the texts cannot be memorized.
        OptionError: If an option does not exist.

    >>> memory = memorize_recital(["to be or not to be", "to be is to do"], tokens="words")
    >>> memory.generate("to be or"), memory.generate("to be is")
    (' not to be', ' to do')
    >>> round(max(memory.probabilities("to be").values()), 2)
    0.5
    """
    documents = [texts] if isinstance(texts, str) else list(texts)
    if not documents:
        raise DataError("there is no document to memorize")
    if unknown not in ("failure", "eos"):
        raise OptionError(f"unknown={unknown!r}: windows that are not known answer `failure` or `eos`")
    started = time.perf_counter()
    called = list(names) or [f"document {k}" for k in range(len(documents))]
    if len(called) != len(documents) or len(weights) not in (0, len(documents)):
        raise DataError(f"{len(documents)} documents need one weight and one name each")
    part = [documents[number] for number in controls.chosen(called)]
    lexicon = tokens if isinstance(tokens, Lexicon) else Lexicon.of_texts(part, tokens)
    script = controls.stage(documents, called, weights, lexicon)
    answer = lexicon.failure if unknown == "failure" else lexicon.eos
    built = build_recital(script, lexicon.size, answer, form=form, ambiguous=ambiguous, merge=merge)
    left_out = {"left_out": len(documents) - len(part)} if len(part) < len(documents) else {}
    absent = {"absent": check_absent(built.recital, script)} if script.absent else {}
    report = built.summary() | {"several": str(ambiguous)} | left_out | absent
    return RecitalMemory(built.recital, lexicon, script, report, {"build": time.perf_counter() - started})
