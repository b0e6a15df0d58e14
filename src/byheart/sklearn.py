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

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from byheart.compiler import memorize
from byheart.data.unknown import UNKNOWN
from byheart.errors import ConflictError, MissingExtraError, OptionError

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
except ImportError as error:
    raise MissingExtraError("byheart.sklearn", "sklearn") from error

Conflicts = Literal["error", "first", "majority"]


class MemoryClassifier(ClassifierMixin, BaseEstimator):
    """Knows its training rows by heart.

    Parameters: `construction`, `seed` and `options` as for `byheart.memorize`; `abstain_bits`: how surely unseen rows
    are refused; `conflicts`: what to do with equal rows of different classes. Rows are fixed-length: every column is a
    token (numbers are taken exactly, texts as symbols) and its place matters.

    Attributes: `memory_` (the certified memory), `classes_`, `class_prior_`, `n_features_in_`, `feature_names_in_`.
    """

    def __init__(
        self,
        construction: str = "compact",
        *,
        abstain_bits: int = 8,
        conflicts: Conflicts = "majority",
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
        X = self._validated(X, reset=True)
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        if len(y) != len(X):
            raise ValueError(f"X has {len(X)} rows, but y has {len(y)} classes")
        self.classes_, indices = np.unique(y, return_inverse=True)
        self.class_prior_ = np.bincount(indices, minlength=len(self.classes_)) / len(indices)
        rows, targets = _settle(_tokens(X), indices.tolist(), self.conflicts)
        options = dict(self.options or {})
        if self.abstain_bits:
            options["abstain_bits"] = self.abstain_bits
        self.memory_ = memorize(
            rows, targets, construction=self.construction, positions=True, seed=self.seed, progress=False, **options
        )
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
        X = self._validated(X, reset=False)
        answers = self.memory_.predict(_tokens(X)) if len(X) else []
        return np.array([-1 if a is UNKNOWN else a for a in answers], dtype=np.int64)

    def _validated(self, X: Any, reset: bool) -> np.ndarray:
        return validated(self, X, reset)


class MemoryTransformer(TransformerMixin, BaseEstimator):
    """Rows to their context ids: row k of the training data (its first occurrence) becomes k, anything else -1.

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
        X = validated(self, X, reset=True)
        rows = list(dict.fromkeys(map(tuple, _tokens(X))))
        options = dict(self.options or {})
        if self.abstain_bits:
            options["abstain_bits"] = self.abstain_bits
        self.memory_ = memorize(
            [list(row) for row in rows],
            list(range(len(rows))),
            construction=self.construction,
            positions=True,
            seed=self.seed,
            progress=False,
            **options,
        )
        return self

    def transform(self, X: Any) -> np.ndarray:
        """The context id of every row, as one column.  # (rows, 1)"""
        check_is_fitted(self)
        X = validated(self, X, reset=False)
        answers = self.memory_.predict(_tokens(X)) if len(X) else []
        return np.array([[-1 if a is UNKNOWN else a] for a in answers], dtype=np.int64).reshape(-1, 1)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The one output column."""
        return np.array(["context_id"], dtype=object)


def validated(estimator: Any, X: Any, reset: bool) -> np.ndarray:
    """X as a two-dimensional array of finite numbers or of texts."""
    if _holds_texts(X):
        array = validate_data(estimator, X, reset=reset, dtype=None, ensure_all_finite="allow-nan")
        return np.asarray(array, dtype=object)
    return np.asarray(validate_data(estimator, X, reset=reset, dtype="numeric"))


def _holds_texts(X: Any) -> bool:
    """Whether some column of a frame, or some cell of an array or list, is a text."""
    kinds = getattr(X, "dtypes", None)
    if kinds is not None:
        return any(str(kind).startswith(("object", "str", "category")) for kind in kinds)
    if isinstance(X, np.ndarray):
        return X.dtype.kind in "US" or (X.dtype == object and any(isinstance(cell, str) for cell in X.flat))
    rows = X if isinstance(X, list | tuple) else []
    return any(isinstance(cell, str) for row in rows if isinstance(row, list | tuple) for cell in row)


def _tokens(X: np.ndarray) -> list[list[Any]]:
    """Rows as token lists: numbers as exact reals, everything as text where a column holds texts."""
    if X.dtype == object and any(isinstance(value, str) for value in X.flat):
        return [[value if isinstance(value, str) else repr(value) for value in row] for row in X]
    return [[float(value) for value in row] for row in X]


def _settle(rows: list[list[Any]], targets: Sequence[int], policy: str) -> tuple[list[list[Any]], list[int]]:
    """Distinct rows with one class each, by the conflicts policy."""
    votes: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for row, target in zip(rows, targets, strict=True):
        votes[tuple(row)].append(target)
    if policy == "error":
        for row, classes in votes.items():
            if len(set(classes)) > 1:
                raise ConflictError(
                    f"equal rows {row!r} have {len(set(classes))} classes; set conflicts='majority' or 'first'"
                )
    elif policy not in ("first", "majority"):
        raise OptionError(f"conflicts={policy!r} is not one of error, first, majority")
    pick = (
        (lambda classes: classes[0]) if policy == "first" else (lambda classes: Counter(classes).most_common(1)[0][0])
    )
    return [list(row) for row in votes], [pick(classes) for classes in votes.values()]
