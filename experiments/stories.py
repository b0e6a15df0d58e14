"""Documents as M24's experiments take them: words and punctuation, the first ten tokens of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from byheart.data.dataset.dataset import Dataset, load
from byheart.data.read.documents import WORDS, Document
from byheart.data.tokens.tokenizer import Tokenizer
from byheart.memory.documents import as_table

TEN = replace(WORDS, max_length=10)


def dataset(texts: Sequence[Document], tokenizer: Tokenizer = TEN) -> Dataset:
    """The data set of the texts' prefixes; `.distributions` are those of the next tokens."""
    table = as_table(texts, tokenizer)
    return load(*table, task=table.task, target="distribution")


def token_rows(data: Dataset) -> npt.NDArray[np.int64]:
    """A row of token numbers for each document, with -1 after its end: the laboratory's training data."""
    number = {token: k for k, token in enumerate(data.vocabulary)}
    whole = [[*row, labels[-1]] for row, labels in zip(data.sequences(), data.label_values(), strict=True)]
    longest = max(map(len, whole))
    return np.array([[number[token] for token in row] + [-1] * (longest - len(row)) for row in whole], dtype=np.int64)
