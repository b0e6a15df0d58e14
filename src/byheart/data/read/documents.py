"""Documents from any source that byheart reads, or contexts with given distributions.

A document is a text, or a list of tokens that is taken as it is. A table has one in a column of each row, a plain text
on each line. Rows {"context": …, "next": {token: weight}} give distributions instead of the empirical ones.

    >>> guess_column({"idx": 3, "text": "Once upon a time"})
    'text'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeAlias

from byheart.data.dataset.targets import Distribution, Target
from byheart.data.missing import Present, settle_missing
from byheart.data.read.columns import form_of, open_records, refuse_labels
from byheart.data.read.options import ReadOptions
from byheart.data.read.records import LINE, TEXT, Records
from byheart.data.read.table import Table
from byheart.data.task import Task
from byheart.data.tokens.tokenizer import Tokenizer
from byheart.data.values import is_missing
from byheart.data.wording import quote
from byheart.errors import DataError, OptionError
from byheart.progress import timed

TEXT_COLUMNS = (
    "text", "story", "document", "doc", "content", "body", "sentence", "review", "premise", "tokens", "sequence",
    "input",
)  # fmt: skip
CONTEXT, NEXT = "context", "next"  # the columns of given distributions

Row = Mapping[str, Any]
Document: TypeAlias = str | tuple[Any, ...]  # a text, or its tokens
WORDS = Tokenizer("wordpunct")  # the default tokenizer of documents


def tokens_of(document: Document, tokenizer: Tokenizer = WORDS) -> list[Any]:
    """The tokens of a text; a document that comes as tokens stays as it is, apart from its length."""
    return tokenizer.cut(document) if isinstance(document, str) else tokenizer.fit_length(document)


@dataclass(frozen=True, eq=False)
class GivenDistributions:
    """Contexts and, for each, the weight of every token that may follow: probabilities, or counts."""

    contexts: Sequence[Document]
    weights: Sequence[Mapping[str, float]]


@timed("reading")
def read_documents(
    source: Any, options: ReadOptions | None = None, *, where: Mapping[str, str] | None = None, **given: Any
) -> list[Document]:
    """The documents of a file in order, by the options of `read`; `where` keeps rows with the given values."""
    found = read_source(source, options or ReadOptions.of(**given), where=where)
    if isinstance(found, GivenDistributions):
        raise DataError(
            f"{source} gives contexts and distributions, not documents; name a text column with --sequence-column"
        )
    return list(found.sequences)


def read_source(
    source: Any,
    options: ReadOptions = ReadOptions(),  # noqa: B008  # frozen
    *,
    where: Mapping[str, str] | None = None,
    unlabelled: bool = False,
) -> Present | GivenDistributions:
    """The documents, and how many were missing; or the distributions that a file gives in `context` and `next`.

    `unlabelled`: refuse a table that also has a column of labels.
    """
    if len(options.sequence_columns) > 1 or options.label_column is not None or options.pad is not None:
        raise OptionError("a document is in one column, has no label and is not padded; omit those flags")
    column = options.sequence_columns[0] if options.sequence_columns else None
    limits = replace(options.limits, max_rows=None) if where else options.limits
    records = open_records(source, limits, form_of(options), otherwise=TEXT)
    kept = list(islice(_rows(records, where), options.max_rows))
    if not kept:
        chosen = f" with {', '.join(f'{k}={v}' for k, v in where.items())}" if where else ""
        raise DataError(f"{records.origin} has no documents{chosen}")
    if column is None and all(_is_given(row) for _, row in kept):
        return GivenDistributions(
            [_document(records.place(number), row, CONTEXT) for number, row in kept],
            [_weights(records.place(number), row[NEXT]) for number, row in kept],
        )
    if records.columns == (LINE,) and column not in (None, LINE):
        raise DataError(f"{records.origin} has no columns: a row is one document; omit --sequence-column")
    if column is None:
        column = guess_column(kept[0][1])
    if unlabelled:
        refuse_labels(records, column)
    found = [() if is_missing(row.get(column)) else _document(records.place(n), row, column) for n, row in kept]
    places = [records.name(number) for number, _ in kept]
    return settle_missing(found, [0] * len(found), options.missing, places.__getitem__, records.origin)


def documents_table(found: Sequence[Document] | GivenDistributions, tokenizer: Tokenizer = WORDS) -> Table:
    """Documents as rows with targets: every prefix is labelled by the token that follows it.

    `load(*table, task=table.task, target="distribution")` makes the data set. A document of one token has nothing that
    follows; it is skipped, and a remark counts it. Given distributions are the labels of their contexts.

    >>> table = documents_table(["a cat sat", "a dog", "no"])
    >>> table.sequences, table.labels, table.remarks
    ([['a', 'cat'], ['a']], [['cat', 'sat'], ['dog']],
     ('1 document has a single token, which nothing follows: it was skipped',))
    """
    if isinstance(found, GivenDistributions):
        rows = [tokens_of(context, tokenizer) for context in found.contexts]
        labels = [Distribution.of(dict(weights)) for weights in found.weights]
        return Table(rows, labels, tokenizer, task=Task.NEXT_TOKEN, target=Target.DISTRIBUTION)
    split = [tokens_of(document, tokenizer) for document in found]
    kept = [tokens for tokens in split if len(tokens) > 1]
    short = len(split) - len(kept)
    if not kept:
        raise DataError(
            f"all {len(split)} documents have fewer than two tokens, so there is no next token to store; give longer "
            "documents, or tokenize them into characters"
        )
    which = "document has" if short == 1 else "documents have"
    remark = (
        f"{short:,} {which} a single token, which nothing follows: {'it was' if short == 1 else 'they were'} skipped"
    )
    return Table(
        [tokens[:-1] for tokens in kept],
        [tokens[1:] for tokens in kept],
        tokenizer,
        task=Task.CAUSAL,
        target=Target.DISTRIBUTION,
        remarks=(remark,) if short else (),
    )


def guess_column(row: Row) -> str:
    """The text column of a row: a well-known name, else the only column that holds text."""
    lower = {name.lower(): name for name in reversed(list(row))}
    for name in TEXT_COLUMNS:
        if name in lower and isinstance(row[lower[name]], str | list):
            return lower[name]
    strings = [name for name, value in row.items() if isinstance(value, str)]
    if len(strings) == 1:
        return strings[0]
    raise DataError(f"which column is the text? The row has {', '.join(row) or 'none'}; name it with --sequence-column")


def _rows(records: Records, where: Mapping[str, str] | None) -> Any:
    for number, cells in records.select(records.columns):
        row = dict(zip(records.columns, cells, strict=True))
        if not where or all(str(row.get(name)) == value for name, value in where.items()):
            yield number, row


def _document(place: str, row: Row, column: str) -> Document:
    value = row.get(column)
    if isinstance(value, list | tuple) and all(type(token) in (str, int) for token in value):
        return tuple(value)
    if not isinstance(value, str):
        raise DataError(f"{place} has {quote(value)} in {column!r}, not a text; name a column with --sequence-column")
    return value


def _is_given(row: Row) -> bool:
    return CONTEXT in row and isinstance(row.get(NEXT), dict)


def _weights(place: str, weights: dict[str, Any]) -> dict[str, float]:
    for token, weight in weights.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < 1e300:
            raise DataError(f"{place}: {quote(token)} has the weight {quote(weight)}; give numbers of at least 0")
    return {token: float(weight) for token, weight in weights.items()}
