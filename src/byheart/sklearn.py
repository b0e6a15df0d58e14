"""scikit-learn estimators: a memory as a classifier, and as a transformer that gives context ids.

A memorizer reproduces its training rows exactly and does not generalise: off the data, `predict` gives whatever class
the network happens to answer, or the most frequent class where it answers none. With `abstain_bits` rows that were
never seen are recognised (except with probability 2^-abstain_bits), and `predict_proba` says so: a known row is
certain, an unknown one gets the class frequencies.

    >>> from byheart.sklearn import MemoryClassifier
    >>> model = MemoryClassifier(construction="ks25", abstain_bits=0).fit([[0.5, 1], [2, 3], [2, 4]], ["a", "b", "a"])
    >>> model.predict([[2, 3], [2, 4]]).tolist(), model.memory_.certificate.verdict.value
    (['b', 'a'], 'proved')
"""

from __future__ import annotations

from typing import Any

import numpy as np

from byheart.compile import Memory, memorize
from byheart.data.unknown import UNKNOWN
from byheart.errors import MissingExtraError

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
except ImportError as error:
    raise MissingExtraError("byheart.sklearn", "sklearn") from error

_TEXT_COLUMNS = ("object", "str", "category", "categorical", "enum")  # beginnings of dtypes of frames, in lower case


class MemoryClassifier(ClassifierMixin, BaseEstimator):
    """Knows its training rows by heart.

    Parameters: `construction`, `seed` and `options` as for `byheart.memorize`; `abstain_bits`: how surely unseen rows
    are refused (0 where a construction has no such option); `conflicts`: what to do with equal rows of different
    classes: `majority`, `first`, `drop` or `error`. Rows are fixed-length: every column is a token (numbers are taken
    exactly, texts as symbols) and its place matters.

    Attributes: `memory_` (the certified memory), `classes_`, `class_prior_`, `n_features_in_`, `feature_names_in_`.
    """

    def __init__(
        self,
        construction: str = "compact",
        *,
        abstain_bits: int = 8,
        conflicts: str = "majority",
        seed: int = 0,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.construction = construction
        self.abstain_bits = abstain_bits
        self.conflicts = conflicts
        self.seed = seed
        self.options = options

    def fit(self, X: Any, y: Any) -> MemoryClassifier:
        """Memorizes the rows of X with the classes y."""
        X = _validated(self, X, reset=True)
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        if len(y) != len(X):
            raise ValueError(f"X has {len(X)} rows, but y has {len(y)} classes")
        self.classes_, indices = np.unique(y, return_inverse=True)
        self.class_prior_ = np.bincount(indices, minlength=len(self.classes_)) / len(indices)
        self.memory_ = _memorize(self, X, indices.tolist(), self.conflicts)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The class of every row; the most frequent class where the memory has no answer."""
        found = self._found(X)
        return self.classes_[np.where(found < 0, int(np.argmax(self.class_prior_)), found)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Certainty for rows that the memory accepts, the class frequencies for the others.  # (rows, classes)"""
        found = self._found(X)
        certain = np.eye(len(self.classes_))
        return np.where((found < 0)[:, None], self.class_prior_[None, :], certain[found])

    def known(self, X: Any) -> np.ndarray:
        """Which rows the memory accepts as seen."""
        return self._found(X) >= 0

    def _found(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return _ask(self.memory_, _validated(self, X, reset=False))


class MemoryTransformer(TransformerMixin, BaseEstimator):
    """Rows to their context ids: row k of the training data's distinct rows becomes k, anything else -1.

    The look-up is a memory whose labels are the row numbers: a perfect, certified hash of the training rows.
    """

    def __init__(
        self,
        construction: str = "compact",
        *,
        abstain_bits: int = 16,
        seed: int = 0,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.construction = construction
        self.abstain_bits = abstain_bits
        self.seed = seed
        self.options = options

    def fit(self, X: Any, y: Any = None) -> MemoryTransformer:
        """Memorizes the number of every distinct row of X."""
        X = _validated(self, X, reset=True)
        numbers: dict[tuple[Any, ...], int] = {}
        ids = [numbers.setdefault(tuple(row), len(numbers)) for row in X.tolist()]
        self.memory_ = _memorize(self, X, ids, "error")
        return self

    def transform(self, X: Any) -> np.ndarray:
        """The context id of every row, as one column.  # (rows, 1)"""
        check_is_fitted(self)
        return _ask(self.memory_, _validated(self, X, reset=False))[:, None]

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The one output column."""
        return np.array(["context_id"], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # ids are whole numbers, whatever the columns are
        return tags


def _memorize(estimator: Any, X: np.ndarray, labels: list[int], conflicts: str) -> Memory:
    options = dict(estimator.options or {})
    if estimator.abstain_bits:
        options["abstain_bits"] = estimator.abstain_bits
    return memorize(
        _tokens(X),
        labels,
        construction=estimator.construction,
        positions=True,
        conflicts=conflicts,
        seed=estimator.seed,
        progress=False,
        **options,
    )


def _ask(memory: Memory, X: np.ndarray) -> np.ndarray:
    """The label of every row, -1 where the memory has none; a text that was never seen is no answer either."""
    found = np.full(len(X), -1, dtype=np.int64)
    rows = np.arange(len(X))
    if memory.encoder.symbols is not None and not memory.abstains:
        symbols = set(memory.encoder.symbols)
        rows = rows[[symbols.issuperset(map(_symbol, row)) for row in X]]
    if len(rows):
        found[rows] = [-1 if answer is UNKNOWN else answer for answer in memory.predict(_tokens(X[rows]))]
    return found


def _validated(estimator: Any, X: Any, reset: bool) -> np.ndarray:
    """X as a two-dimensional array of finite numbers or of texts."""
    if _holds_texts(X):
        array = validate_data(estimator, X, reset=reset, dtype=None, ensure_all_finite="allow-nan")
        return np.asarray(array, dtype=object)
    return np.asarray(validate_data(estimator, X, reset=reset, dtype="numeric"))


def _holds_texts(X: Any) -> bool:
    """Whether some column of a frame, or some cell of an array or list, is a text."""
    kinds = getattr(X, "dtypes", None)
    if kinds is not None:
        return any(str(kind).lower().startswith(_TEXT_COLUMNS) for kind in kinds)
    if isinstance(X, np.ndarray):
        return X.dtype.kind in "US" or (X.dtype == object and any(isinstance(cell, str) for cell in X.flat))
    rows = X if isinstance(X, list | tuple) else []
    return any(isinstance(cell, str) for row in rows if isinstance(row, list | tuple) for cell in row)


def _tokens(X: np.ndarray) -> Any:
    """Rows of tokens: symbols where there are texts, else vectors of one exact number."""
    if X.dtype == object:
        return [[_symbol(value) for value in row] for row in X]
    if X.dtype == bool:
        X = X.astype(np.int64)
    return X[:, :, None]


def _symbol(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)
