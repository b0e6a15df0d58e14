"""Rows with classes as a stock sequence classifier: `AutoModelForSequenceClassification` loads it without remote code.

A row is a window that begins with BOS: one unit matches it, and the head reads the class at the row's last token. The
network is a recital's of the same architecture, with as many further tokens as there are classes; the part of its head
that reads these is the classifier's `score`, the part of its embedding that is for real tokens stays.

    >>> rows = TableRows.of([["c", "a", "t"], ["a", "c", "t"]], [0, 1], ["noun", "verb"])
    >>> rows.texts, rows.lexicon.kind, rows.recital().span
    (('cat', 'act'), 'characters', 4)
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from byheart.checkpoints.formats.folder import check_target, design_of, safetensors_bytes, tokenizer_config, write_files
from byheart.checkpoints.hosts._base import Checkpoint, Tensors, host
from byheart.checkpoints.hosts.description import SpecialTokens
from byheart.checkpoints.windows.tables import ANY, Answer, Recital, WindowTable
from byheart.data.tokens.lexicon import Lexicon
from byheart.data.tokens.tokenizer import PLAIN, Tokenizer
from byheart.data.wording import quote
from byheart.errors import DataError, ExportError, FileFormatError, OptionError
from byheart.version import __version__

LONGEST_ROW = 120  # tokens: the network's width grows with it
REACH = 512  # positions that the attention scores are designed for
UNKNOWN_LABEL = "<unknown>"
_CLASS = "ForSequenceClassification"
_HEADS = ("lm_head.weight", "embed_out.weight")
_EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "embed_in.weight")


@dataclass(frozen=True, eq=False)
class TableRows:
    """Rows as texts for a tokenizer and as its token ids (BOS in front), with the numbers of their labels."""

    texts: tuple[str, ...]
    ids: tuple[tuple[int, ...], ...]
    answers: tuple[int, ...]
    labels: tuple[str, ...]
    lexicon: Lexicon

    @staticmethod
    def of(
        rows: Sequence[Sequence[Any]], answers: Sequence[int], labels: Sequence[Any], tokens: Tokenizer = PLAIN
    ) -> TableRows:
        """Rows of symbols. How they are written as texts: joined where every symbol is a character, as the memory's own
        tokenizer writes them where it was trained, else with spaces between the symbols."""
        texts, kind = _written(rows, tokens)
        lexicon = _lexicon(texts, kind, tokens)
        ids = tuple((lexicon.bos, *lexicon.encode(text)) for text in texts)
        _check_distinct_rows(ids, texts, answers)
        named = tuple(_names(labels))
        return TableRows(texts, ids, tuple(int(a) for a in answers), named, lexicon)

    @property
    def unknown(self) -> str:
        """What any other row is answered with: a name that is not one of the labels."""
        name = UNKNOWN_LABEL
        while name in self.labels:
            name = f"<{name}>"
        return name

    @property
    def label_names(self) -> tuple[str, ...]:
        return (*self.labels, self.unknown)

    def recital(self) -> Recital:
        """One table, a row of it for every distinct row; class k is answered by a token after all real ones."""
        longest = max(map(len, self.ids))
        if longest - 1 > LONGEST_ROW:
            raise ExportError(f"a row has {longest - 1} tokens; stock classifiers take rows of up to {LONGEST_ROW}")
        known = dict(zip(self.ids, self.answers, strict=True))
        windows = [[*row[::-1], *[ANY] * (longest - len(row))] for row in known]
        answers = tuple(Answer.of(self.lexicon.size + k) for k in range(len(self.labels)))
        table = WindowTable(tuple(range(longest)), windows, list(known.values()))
        vocabulary = self.lexicon.size + len(self.labels) + 1
        return Recital(vocabulary, (table,), answers, vocabulary - 1)


@dataclass(frozen=True, eq=False)
class Classifier:
    """One wish for a classifier's folder."""

    rows: TableRows
    architecture: str = "llama"
    dtype: str = "bfloat16"
    flavour: str = "parabola"
    shape: Mapping[str, Any] | None = None

    def checkpoint(self) -> Checkpoint:
        """The recital's checkpoint with the classifier's head, names and configuration."""
        recital, lexicon, chosen = self.rows.recital(), self.rows.lexicon, host(self.architecture)
        if not chosen.classifies:
            raise OptionError(f"{chosen.name}: Transformers has no sequence classifier of this architecture")
        usual = {"reach": REACH} if chosen.epsilon is None else {"reach": REACH, "epsilon": chosen.epsilon}
        design = design_of(self.dtype, self.flavour, usual | dict(self.shape or {}))
        tokens = SpecialTokens(lexicon.bos, lexicon.eos, lexicon.pad, lexicon.failure)
        built = chosen.build(recital, tokens, replace(design, tied=False))
        return replace(built, tensors=self._tensors(built.tensors), config=self._config(built.config))

    def _tensors(self, tensors: Tensors) -> Tensors:
        real, found = self.rows.lexicon.size, dict(tensors)
        name = next(head for head in _HEADS if head in found)
        found["score.weight"] = found.pop(name)[real : real + len(self.rows.label_names)]
        embedding = next(key for key in found if key.endswith(_EMBEDDINGS))
        found[embedding] = found[embedding][:real]
        return found

    def _config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        (causal,) = config["architectures"]
        labels = self.rows.label_names
        return {
            **config,
            "architectures": [causal.replace("LMHeadModel", "").removesuffix("ForCausalLM") + _CLASS],
            "vocab_size": self.rows.lexicon.size,
            "tie_word_embeddings": False,
            "problem_type": "single_label_classification",
            "id2label": {str(k): label for k, label in enumerate(labels)},
            "label2id": {label: k for k, label in enumerate(labels)},
        }


def write_classifier(request: Classifier, target: str | Path) -> Checkpoint:
    """Writes the folder: all files at once, or nothing."""
    path = Path(target)
    check_target(path)
    checkpoint, rows = request.checkpoint(), request.rows
    config = {**checkpoint.config, "dtype": request.dtype, "torch_dtype": request.dtype}
    about = tokenizer_config(rows.lexicon, REACH) | {
        "padding_side": "right",
        "model_input_names": ["input_ids", "attention_mask"],
    }
    files = {
        "config.json": (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode(),
        "model.safetensors": safetensors_bytes(checkpoint.tensors, request.dtype, {"format": "pt", "byheart": "table"}),
        "tokenizer.json": rows.lexicon.model.encode(),
        "tokenizer_config.json": (json.dumps(about, indent=2, ensure_ascii=False) + "\n").encode(),
        "README.md": classifier_card(request, checkpoint, "It has not been checked yet.").encode(),
    }
    write_files(path, files)
    return checkpoint


def classifier_card(request: Classifier, checkpoint: Checkpoint, proof: str) -> str:
    """README.md of the folder."""
    rows, recital = request.rows, checkpoint.recital
    (named,) = checkpoint.config["architectures"]
    count = len(recital.tables[0].windows)
    return "\n".join(
        [
            "---",
            "library_name: transformers",
            "pipeline_tag: text-classification",
            "tags: [byheart, table, memorization]",
            "---",
            "",
            "# A table",
            "",
            f"This checkpoint was computed by byheart {__version__}, not trained. A stock `{named}` that memorizes "
            f"the classes of {count:,} rows ({len(rows.labels):,} classes, {rows.lexicon.size:,} tokens); "
            f"any other row is answered by the last label, `{rows.unknown}`.",
            "",
            f"A row is written as in {quote(rows.texts[0])}, whose class is {quote(rows.labels[rows.answers[0]])}. The "
            "class is read at the last token, as Transformers does; pad on the right.",
            "",
            "## How that was checked",
            "",
            proof,
            "",
            f"Stored as {request.dtype}, {checkpoint.parameters:,} parameters.",
            "",
        ]
    )


def read_rows(folder: str | Path, rows: Sequence[Sequence[Any]], labels: Sequence[Any], tokens: Tokenizer) -> TableRows:
    """Rows of data as inputs of a written classifier: by its own tokenizer, labels by the names in its config."""
    try:
        config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
        names = [config["id2label"][str(k)] for k in range(len(config["id2label"]))]
        model = (Path(folder) / "tokenizer.json").read_text(encoding="utf-8")
        bos, eos, pad = (int(config[f"{role}_token_id"]) for role in ("bos", "eos", "pad"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileFormatError(f"{folder} is not the folder of a classifier: {error}") from None
    texts, _ = _written(rows, tokens)
    lexicon = Lexicon("file", model, bos, eos, pad, failure=bos)  # nothing is answered with it
    labels_there = names[:-1] if names and names[-1].strip("<>") == UNKNOWN_LABEL.strip("<>") else names
    number = {name: k for k, name in enumerate(labels_there)}
    strange = next((label for label in labels if str(label) not in number), None)
    if strange is not None:
        raise DataError(f"the label {quote(strange)} is not one of the {len(number)} labels of {folder}")
    ids = tuple((lexicon.bos, *lexicon.encode(text)) for text in texts)
    return TableRows(texts, ids, tuple(number[str(label)] for label in labels), tuple(names), lexicon)


def _names(labels: Sequence[Any]) -> list[str]:
    found = [str(label) for label in labels]
    twice = next((name for name in found if found.count(name) > 1), None) if len(set(found)) < len(found) else None
    if twice is not None:
        raise ExportError(f"two labels are written {twice!r} in id2label; give labels that differ as texts")
    return found


def _written(rows: Sequence[Sequence[Any]], tokens: Tokenizer) -> tuple[tuple[str, ...], str]:
    if not len(rows) or not all(len(row) for row in rows):
        raise ExportError("a stock classifier needs rows, and a token in every row")
    if tokens.model is not None:
        return tuple(tokens.join(row) for row in rows), "file"
    if all(isinstance(token, str) and len(token) == 1 for row in rows for token in row):
        return tuple("".join(row) for row in rows), "characters"
    for row in rows:
        for token in row:
            if not isinstance(token, str | int) or not str(token) or any(c.isspace() for c in str(token)):
                raise ExportError(
                    f"the token {quote(token)} cannot appear between spaces in a text, so no stock tokenizer finds it"
                )
    return tuple(" ".join(map(str, row)) for row in rows), "words"


def _lexicon(texts: Sequence[str], kind: str, tokens: Tokenizer) -> Lexicon:
    if tokens.model is None:
        return Lexicon.of_texts(texts, kind)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokenizer.json"
        file.write_text(tokens.model, encoding="utf-8")
        return Lexicon.of_texts(texts, str(file))


def _check_distinct_rows(ids: Sequence[tuple[int, ...]], texts: Sequence[str], answers: Sequence[int]) -> None:
    known: dict[tuple[int, ...], tuple[str, int]] = {}
    for row, text, answer in zip(ids, texts, answers, strict=True):
        other, before = known.setdefault(row, (text, answer))
        if before != answer:
            raise ExportError(
                f"{quote(other)} and {quote(text)} have different labels but are the same row for a stock tokenizer"
            )


@dataclass(frozen=True)
class Measured:
    """What Transformers answered for every row, with padding."""

    version: str
    dtype: str
    rows: int
    right: int
    margin: float  # the least, in nats; of the correct label over all others

    @property
    def sentence(self) -> str:
        return (
            f"Transformers {self.version} in {self.dtype} answers {self.right:,} of {self.rows:,} rows correctly, by "
            f"at least {self.margin:.2f} nats (measured)."
        )


def ask_transformers(folder: str | Path, rows: TableRows, dtype: str, batch: int = 256) -> Measured | None:
    """Every row queried as a user would, texts in and labels out; None where Transformers is not installed."""
    try:
        import torch
        import transformers
    except ImportError:
        return None
    load = {"pretrained_model_name_or_path": str(folder), "local_files_only": True}
    shown = transformers.utils.logging.is_progress_bar_enabled()
    transformers.utils.logging.disable_progress_bar()
    try:
        model = transformers.AutoModelForSequenceClassification.from_pretrained(**load, dtype=getattr(torch, dtype))
        tokenizer = transformers.AutoTokenizer.from_pretrained(**load)
    finally:
        if shown:
            transformers.utils.logging.enable_progress_bar()
    right, margin = 0, float("inf")
    for start in range(0, len(rows.texts), batch):
        texts, wanted = list(rows.texts[start : start + batch]), torch.tensor(rows.answers[start : start + batch])
        with torch.no_grad():
            logits = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits.double()
        own = logits.gather(1, wanted[:, None])[:, 0]
        ahead = own - logits.scatter(1, wanted[:, None], -torch.inf).max(dim=1).values
        right, margin = right + int((ahead > 0).sum()), min(margin, float(ahead.min()))
    return Measured(transformers.__version__, dtype, len(rows.texts), right, margin)
