"""Documents: texts, or contexts with given distributions, as rows whose targets are next-token distributions.

    >>> memory = memorize_documents(["a cat sat", "a dog sat", "a dog ran"])
    >>> memory.certificate.verdict.value, memory.certificate.contexts
    ('proved', 3)
    >>> memory.generate("a cat")
    'a cat sat'

From here on a document is a row like others: `memorize` builds, proves and saves it by the one pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from byheart.data.read.documents import WORDS, Document, GivenDistributions, documents_table, read_source, tokens_of
from byheart.data.read.options import ReadOptions, Selection
from byheart.data.read.table import Table
from byheart.data.tokens.tokenizer import AUTO, Tokenizer, choose
from byheart.errors import DataError, OptionError
from byheart.memory.memory import Memory
from byheart.progress import Progress

Documents = Sequence[Document] | GivenDistributions


def memorize_documents(
    documents: Documents | Mapping[Any, Mapping[Any, float]],
    *,
    tokenizer: Tokenizer = WORDS,
    max_length: int | None = None,
    construction: str = "madden24",
    seed: int = 0,
    progress: bool | Progress = False,
    **options: Any,
) -> Memory:
    """Memorize the next-token distributions of all prefixes of documents, with a proof of the gap.

    Args:
        documents: Texts, or context -> token -> probability.
        tokenizer: How texts are tokenized.
        max_length: Keeps the first tokens of every document; None: all. Given distributions are used as they are.
        construction: A construction for distributions.
        seed: Equal seeds give equal weights.
        progress: Whether to show progress.
        **options: Options of the construction: `objective="size"` searches for few parameters, `gap` is the allowed
            fraction of the entropy.

    Returns:
        A `Memory` whose `probabilities` are those of the documents up to the proved gap.

    Raises:
        DataError: If the documents have no context.
        OptionError: If an option does not exist.

    >>> given = {("a",): {"b": 0.25, "c": 0.75}, ("a", "b"): {"a": 1.0}}
    >>> memorize_documents(given, activation="sigmoid").certificate.verdict.value
    'proved'
    """
    from byheart.memory.memorize import memorize

    table = as_table(documents, replace(tokenizer, max_length=max_length))
    return memorize(table, construction=construction, seed=seed, progress=progress, **options)


def as_table(documents: Documents | Mapping[Any, Mapping[Any, float]], tokenizer: Tokenizer = WORDS) -> Table:
    """The documents as rows; tokens and documents that are skipped are counted.

    >>> table = as_table(["a cat sat down", "no"], Tokenizer("words", max_length=3))
    >>> table.sequences, table.labels, table.shortened, table.left_out
    ([['a', 'cat']], [['cat', 'sat']], 1, {'a single token, which nothing follows': 1})
    """
    if isinstance(documents, Mapping):
        documents = GivenDistributions(list(documents), list(documents.values()))
    if isinstance(documents, GivenDistributions):
        return documents_table(documents, replace(tokenizer, max_length=None))
    if isinstance(documents, str) or not all(isinstance(one, str | list | tuple) for one in documents):
        raise DataError("documents are texts, or lists of tokens; give a list of them")
    if tokenizer.max_length is not None and tokenizer.max_length < 2:
        raise OptionError(f"max_length={tokenizer.max_length}: a document needs two tokens, one that follows another")
    longest = tokenizer.max_length
    whole = [tuple(tokens_of(one, replace(tokenizer, max_length=None))) for one in map(_document, documents)]
    table = documents_table(whole, tokenizer)
    short = len(whole) - len(table)
    numbers = [number for number, tokens in enumerate(whole, start=1) if len(tokens) > 1]
    return replace(
        table,
        places=lambda row: f"document {numbers[row]:,}",
        shortened=sum(longest is not None and len(tokens) > longest for tokens in whole),
        left_out={"a single token, which nothing follows": short} if short else {},
    )


def _document(one: Any) -> Document:
    return tuple(one) if isinstance(one, list) else one


def read_documents_table(
    path: str, options: ReadOptions, *, tokenizer: Tokenizer | None = None, unlabelled: bool = False
) -> Table:
    """The documents of a file as rows; the same options as for any table, and words unless `tokens` is given.

    `unlabelled`: refuse a table that also has a column of labels.
    """
    found = read_source(path, options, unlabelled=unlabelled)
    documents = found if isinstance(found, GivenDistributions) else list(found.sequences)
    if tokenizer is None:
        cells = documents.contexts if isinstance(documents, GivenDistributions) else documents
        tokens = WORDS if options.tokens == AUTO else options.tokens
        tokenizer = choose(tokens, cells, max_length=options.max_length, type=options.token_type)
    selection = Selection(
        options.sequence_columns,
        max_rows=options.max_rows,
        missing=options.missing,
        header=options.header,
        encoding=options.encoding,
    )
    table = replace(as_table(documents, tokenizer), selection=selection)
    return table if isinstance(found, GivenDistributions) else replace(table, missing=found)
