"""memorize_recital(): texts to a recital that every engine can run, straight down.

>>> memory = memorize_recital(["to be or not to be", "to be is to do"], tokens="words")
>>> memory.generate("to be or"), memory.generate("to be is")
(' not to be', ' to do')
>>> [round(p, 2) for p in memory.probabilities("to be").values()]
[0.5, 0.5]
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from byheart.build.recital import build_recital
from byheart.certify.recital import RecitalCertificate, certify_recital
from byheart.data.tokens.lexicon import Lexicon
from byheart.data.tokens.script import Script
from byheart.errors import DataError, FileFormatError, OptionError
from byheart.export.huggingface.folder import Request, write_folder
from byheart.files import write_atomically
from byheart.ir.recital import Recital

FORMAT, VERSION = "byheart recital memory", 1


@dataclass(frozen=True, eq=False)
class RecitalMemory:
    """A recital with its lexicon and documents; `report` says how it was built."""

    recital: Recital
    lexicon: Lexicon
    script: Script
    report: dict[str, Any]
    seconds: dict[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        counts = f"{len(self.script.documents)} documents, {self.script.places:,} places, span {self.recital.span}"
        return f"<RecitalMemory: {counts}>"

    def tokens_of(self, prompt: str) -> list[int]:
        return [self.lexicon.bos, *self.lexicon.encode(prompt)]

    def generate(self, prompt: str = "", *, limit: int = 1 << 16) -> str:
        """What follows the prompt, greedily, up to the end of the document."""
        return self.lexicon.decode(self.recital.recite(self.tokens_of(prompt), limit, stop=self.lexicon.eos))

    def probabilities(self, prompt: str) -> dict[str, float]:
        """The tokens that may follow the prompt, with their probabilities."""
        answer = self.recital.answer(int(self.recital.follow(self.tokens_of(prompt))[-1]))
        return {self.lexicon.name(token): weight / answer.total for token, weight in answer.weights}

    def logits(self, prompt: str) -> list[float]:
        """Log-probabilities of all tokens after the prompt; -inf for those that never follow."""
        found = [-math.inf] * self.recital.vocabulary
        answer = self.recital.answer(int(self.recital.follow(self.tokens_of(prompt))[-1]))
        for token, weight in answer.weights:
            found[token] = math.log(weight / answer.total)
        return found

    def perplexity(self) -> float:
        """Of the memorized documents, weighted: 1 where every prefix goes on in one way."""
        loss, count = 0.0, 0
        for document, weight in zip(self.script.documents, self.script.weights, strict=True):
            for number, token in zip(self.recital.follow(document[:-1]).tolist(), document[1:], strict=True):
                answer = self.recital.answer(number)
                share = dict(answer.weights).get(token, 0) / answer.total
                loss += weight * (-math.log(share) if share else math.inf)
                count += weight
        return math.exp(loss / count)

    def certify(self, ambiguous: str = "distribution") -> RecitalCertificate:
        """Asks the recital after every prefix of every document, in whole numbers."""
        return certify_recital(self.recital, self.script.documents, self.script.weights, ambiguous)

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

    def request(self, architecture: str = "llama", **options: Any) -> Request:
        """What the exporter is asked for; options are dtype, flavour and the fields of the shape."""
        known = {name: options.pop(name) for name in ("dtype", "flavour") if options.get(name) is not None}
        return Request(self.recital, self.script, self.lexicon, architecture, shape=options, **known)

    def to_huggingface(self, folder: str | Path, architecture: str = "llama", **options: Any) -> dict[str, Any]:
        """Writes a stock checkpoint; see `byheart.export.huggingface` for what the folder holds."""
        return write_folder(self.request(architecture, **options), folder)

    def to_json(self) -> dict[str, Any]:
        rows = zip(self.script.names, self.script.documents, self.script.weights, strict=True)
        return {
            "format": FORMAT,
            "version": VERSION,
            "recital": self.recital.to_json(),
            "lexicon": self.lexicon.to_json(),
            "documents": [{"name": name, "ids": list(ids), "weight": weight} for name, ids, weight in rows],
            "report": self.report,
        }

    @staticmethod
    def from_json(value: Any) -> RecitalMemory:
        """The memory of `to_json`; a FileFormatError for anything else."""
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise FileFormatError("this is not a recital of byheart")
        if value.get("version") != VERSION:
            raise FileFormatError(f"this recital has version {value.get('version')}; this byheart reads {VERSION}")
        try:
            script = script_of(value["documents"])
            return RecitalMemory(
                Recital.from_json(value["recital"]), Lexicon.from_json(value["lexicon"]), script, dict(value["report"])
            )
        except (KeyError, TypeError, DataError) as error:
            raise FileFormatError(f"the recital is damaged: {error}") from None

    def save(self, path: str | Path) -> None:
        """One JSON file, written whole or not at all."""
        write_atomically(Path(path), json.dumps(self.to_json(), separators=(",", ":")).encode("ascii"))

    @staticmethod
    def load(path: str | Path) -> RecitalMemory:
        try:
            value = json.loads(Path(path).read_text(encoding="utf-8"))
        except (ValueError, OSError, RecursionError) as error:
            raise FileFormatError(f"{path} cannot be read as a recital: {error}") from None
        return RecitalMemory.from_json(value)


def script_of(documents: Any) -> Script:
    """The script of [{"name", "ids", "weight"}]."""
    ids = [d["ids"] for d in documents]
    if any(type(i) is not int for document in ids for i in document):
        raise DataError("token ids are whole numbers")
    return Script(
        tuple(tuple(document) for document in ids),
        tuple(d["weight"] for d in documents),
        tuple(str(d["name"]) for d in documents),
    )


def memorize_recital(
    texts: str | Sequence[str],
    *,
    tokens: str | Lexicon = "characters",
    weights: Sequence[int] = (),
    names: Sequence[str] = (),
    unknown: str = "failure",
    form: str = "windows",
    ambiguous: str = "distribution",
    merge: bool = False,
) -> RecitalMemory:
    """A recital of one text or of several documents.

    `tokens` is `characters`, `bytes`, `words`, `bpe:SIZE`, a tokenizer.json, the folder of a Hugging Face tokenizer or
    a lexicon; `weights` say how often each document counts; `unknown` is what windows answer that are in no document:
    `failure`, a visible token, or `eos`. `form`, `ambiguous` and `merge` are explained at `build_recital`.
    """
    documents = [texts] if isinstance(texts, str) else list(texts)
    if not documents:
        raise DataError("there is no document to memorize")
    if unknown not in ("failure", "eos"):
        raise OptionError(f"unknown={unknown!r}: windows that are not known answer `failure` or `eos`")
    started = time.perf_counter()
    lexicon = tokens if isinstance(tokens, Lexicon) else Lexicon.of_texts(documents, tokens)
    script = Script(tuple(lexicon.document(text) for text in documents), tuple(weights), tuple(names))
    answer = lexicon.failure if unknown == "failure" else lexicon.eos
    built = build_recital(script, lexicon.size, answer, form=form, ambiguous=ambiguous, merge=merge)
    return RecitalMemory(built.recital, lexicon, script, built.summary(), {"build": time.perf_counter() - started})
