"""scikit-learn estimators: a memory as a classifier, and as a transformer that gives context ids.

A memorizer reproduces its training rows exactly and does not generalise. With `abstain_bits` rows that were never seen
are recognised (except with probability 2^-abstain_bits): `predict` gives them a value that is none of the classes, and
`predict_proba` the class frequencies.

    >>> from byheart.sklearn import MemoryClassifier
    >>> model = MemoryClassifier(construction="ks25", abstain_bits=0).fit([[0.5, 1], [2, 3], [2, 4]], ["a", "b", "a"])
    >>> model.predict([[2, 3], [2, 4]]).tolist(), model.memory_.certificate.verdict.value
    (['b', 'a'], 'proved')
"""

from __future__ import annotations

import datetime
import math
import re
import warnings
from typing import Any

import numpy as np

from byheart.build import recipe
from byheart.data.missing import POLICIES as MISSING
from byheart.data.values import UNKNOWN, is_missing, key, plain
from byheart.errors import DataError, MissingExtraError, OptionError
from byheart.export.request import unknown_mark
from byheart.memory import Memory, memorize

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
except ImportError as error:
    raise MissingExtraError("byheart.sklearn", "sklearn") from error

# Beginnings of dtypes of frames whose cells are texts, or become texts, in lower case.
_TEXT_COLUMNS = ("object", "str", "category", "categorical", "enum", "date", "time", "duration")


class MemoryClassifier(ClassifierMixin, BaseEstimator):
    """Store the training rows exactly.

    Rows have a fixed length: every column is a token (numbers are read exactly, texts as symbols) and its place
    matters.

    Args:
        construction: As for `byheart.memorize`.
        abstain_bits: One unknown row in 2^`abstain_bits` is accepted; 0 where a construction has no such option.
        conflicts: What happens to equal rows of different classes: `majority`, `first`, `drop` or `error`. A warning
            counts the dropped rows.
        missing: What happens to missing cells: `error`, `drop` the rows, or `label`, a separate value.
        outlier_label: What `predict` returns for unknown rows, as in RadiusNeighborsClassifier: None for a value that
            is not one of the classes ("<unknown>", NaN, the least whole number, None for truth values),
            `"most_frequent"`, or a value that you choose.
        seed: As for `byheart.memorize`.
        options: Further options of the construction.

    Attributes:
        memory_: The certified memory.
        classes_: The classes.
        class_prior_: Their frequencies.
        n_features_in_: The number of columns.
        feature_names_in_: The names of the columns, where X has them.
    """

    def __init__(
        self,
        construction: str = "compact",
        *,
        abstain_bits: int = 16,
        conflicts: str = "majority",
        missing: str = "error",
        outlier_label: Any = None,
        seed: int = 0,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.construction = construction
        self.abstain_bits = abstain_bits
        self.conflicts = conflicts
        self.missing = missing
        self.outlier_label = outlier_label
        self.seed = seed
        self.options = options

    def fit(self, X: Any, y: Any) -> MemoryClassifier:
        """Memorize the rows of X with the classes y.

        Args:
            X: The rows, (rows, columns); numbers, or an array or frame of objects.
            y: One class per row.

        Returns:
            The estimator itself.

        Raises:
            ValueError: If rows contradict each other, or a cell is missing and `missing` does not allow it.
        """
        if self.missing not in MISSING:
            raise OptionError(f"missing={self.missing!r} is not one of {', '.join(MISSING)}")
        try:
            X = _validated(self, X, reset=True)
        except ValueError as error:
            if "contains NaN" not in str(error):
                raise
            raise ValueError(f"{error} Or choose missing='drop' or missing='label'.") from None
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        _check_one_type(y, "y")
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        if len(y) != len(X):
            raise ValueError(f"X has {len(X)} rows, but y has {len(y)} classes")
        self.classes_, indices = np.unique(y, return_inverse=True)
        self.class_prior_ = np.bincount(indices, minlength=len(self.classes_)) / len(indices)
        try:
            self.memory_ = _memorize(self, X, indices.tolist(), self.conflicts)
        except DataError as error:
            # The messages of `memorize` name the flags of the command line.
            raise type(error)(_as_parameters(str(error)), *error.args[1:]) from None
        dropped = int(self.memory_.conflicts.get("rows_left_out", 0))
        if dropped:
            words = f"{dropped:,} of {len(X):,} rows equal another row of another class and are not memorized"
            warnings.warn(f"{words} (conflicts={self.conflicts!r}; 'error' refuses them)", stacklevel=2)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The class of every row; `outlier_label` where the memory has no answer."""
        found = self._found(X)
        if isinstance(self.outlier_label, str) and self.outlier_label == "most_frequent":
            found = np.where(found < 0, int(np.argmax(self.class_prior_)), found)
        if (found >= 0).all():
            return np.asarray(self.classes_[found])
        mark = _no_class(self.classes_) if self.outlier_label is None else self.outlier_label
        answers = np.array([*self.classes_.tolist(), mark], dtype=_holding(self.classes_, mark))
        return np.asarray(answers[found])

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return certainty for rows that the memory accepts, the class frequencies for the others.

        Args:
            X: The rows.

        Returns:
            Probabilities, (rows, classes).
        """
        found = self._found(X)
        certain = np.eye(len(self.classes_))
        return np.where((found < 0)[:, None], self.class_prior_[None, :], certain[found])

    def known(self, X: Any) -> np.ndarray:
        """Return which rows the memory accepts as seen.

        Args:
            X: The rows.
        """
        return self._found(X) >= 0

    def _found(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        array = _validated(self, X, reset=False)
        found = _ask(self.memory_, array)
        _warn_rounded(self, array, found)
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing != "error"
        return tags


class MemoryTransformer(TransformerMixin, BaseEstimator):
    """Rows to their context ids: row k of the training data's distinct rows becomes k, anything else -1.

    The lookup is a memory whose labels are the row numbers: a perfect, certified hash of the training rows.

    Args:
        construction: A name from `byheart.constructions()`.
        abstain_bits: Fingerprint bits: an unknown row gets an id with probability 2^-bits.
        seed: Seed of every random choice.
        options: Further options of the construction.
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
        """Memorize the number of every distinct row of X.

        Args:
            X: The rows, (rows, columns).
            y: Ignored.

        Returns:
            The transformer itself.
        """
        X = _validated(self, X, reset=True)
        numbers: dict[Any, int] = {}
        named = key if X.dtype == object else tuple
        ids = [numbers.setdefault(named(tuple(row)), len(numbers)) for row in X.tolist()]
        self.memory_ = _memorize(self, X, ids, "error")
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return the context id of every row, -1 for unknown rows.

        Args:
            X: The rows.

        Returns:
            One column, (rows, 1).
        """
        check_is_fitted(self)
        array = _validated(self, X, reset=False)
        found = _ask(self.memory_, array)
        _warn_rounded(self, array, found)
        return found[:, None]

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the name of the one output column.

        Args:
            input_features: Ignored.
        """
        return np.array(["context_id"], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # ids are whole numbers, whatever the columns are
        return tags


def _no_class(classes: np.ndarray) -> Any:
    """A value of the classes' type that is not among them.

    >>> _no_class(np.array(["a", "<unknown>"])), _no_class(np.array([3, 1])), _no_class(np.array([True]))
    ('<<unknown>>', -9223372036854775808, None)
    """
    if classes.dtype.kind == "f":
        return math.nan
    if classes.dtype.kind in "iu":
        least = int(np.iinfo(np.int64).min)
        while least in classes:
            least += 1
        return least
    return unknown_mark(classes.tolist()) if all(isinstance(name, str) for name in classes.tolist()) else None


def _holding(classes: np.ndarray, mark: Any) -> Any:
    """A type of array that holds the classes and the mark as they are."""
    if isinstance(mark, str) and classes.dtype.kind == "U":
        return f"U{max(len(mark), classes.dtype.itemsize // 4)}"
    if classes.dtype.kind == "f" and isinstance(mark, float):
        return classes.dtype
    return np.int64 if classes.dtype.kind in "iu" and type(mark) is int else object


def _memorize(estimator: Any, X: np.ndarray, labels: list[int], conflicts: str) -> Memory:
    options = dict(estimator.options or {})
    can_abstain = any(option.name == "abstain_bits" for option in recipe(estimator.construction).options)
    if estimator.abstain_bits and not can_abstain:
        raise OptionError(f"{estimator.construction} does not recognise unknown rows; choose abstain_bits=0 for it")
    if can_abstain:
        options["abstain_bits"] = estimator.abstain_bits or options.get("abstain_bits", 0)
    return memorize(
        _tokens(X),
        labels,
        construction=estimator.construction,
        positions=True,
        conflicts=conflicts,
        missing=getattr(estimator, "missing", "error"),
        seed=estimator.seed,
        progress=False,
        **options,
    )


def _as_parameters(message: str) -> str:
    """A message with the parameters of the estimator in place of flags.

    >>> _as_parameters("choose --missing drop to skip these rows, or --missing label")
    "choose missing='drop' to skip these rows, or missing='label'"
    """
    message = message.replace("--conflicts first, majority or drop (in Python: conflicts=)", "conflicts=")
    return re.sub(r"--(missing|conflicts) ([a-z]+)", r"\1='\2'", message)


def _warn_rounded(estimator: Any, X: np.ndarray, found: np.ndarray) -> None:
    """Warn about unknown rows of another float type than the training rows: a rounded number is another number."""
    fitted = estimator.fitted_dtype_
    if X.dtype.kind == "f" and fitted.startswith("float") and X.dtype.name != fitted and (found < 0).any():
        words = f"{int((found < 0).sum()):,} of {len(X):,} rows are unknown; X is {X.dtype.name}, the training rows"
        warnings.warn(f"{words} are {fitted}, and a rounded number is another number", stacklevel=3)


def _ask(memory: Memory, X: np.ndarray) -> np.ndarray:
    """The label of every row; -1 where the memory has none, or where the row holds a text that was never seen."""
    found = np.full(len(X), -1, dtype=np.int64)
    rows = np.arange(len(X))
    if X.dtype == object or X.dtype.kind == "f":
        rows = _answerable(memory, X)
        if not len(rows):
            return found
        if len(rows) < len(X):
            found[rows] = _ask(memory, X[rows])
            return found
    symbols = memory.encoder.symbols
    tokens = _tokens(X.astype(object) if symbols is not None else X)
    if symbols is not None and not memory.abstains:
        known = set(map(key, symbols))
        rows = rows[[known.issuperset(map(key, row)) for row in tokens]]
    if len(rows):
        queried: Any = tokens[rows] if isinstance(tokens, np.ndarray) else [tokens[row] for row in rows]
        found[rows] = [-1 if answer is UNKNOWN else answer for answer in memory.predict(queried)]
    return found


def _answerable(memory: Memory, X: np.ndarray) -> np.ndarray:
    """The rows without missing cells; all rows where a missing cell is a value of the memory."""
    symbols = memory.encoder.symbols
    if symbols is not None and any(symbol is None for symbol in symbols):
        return np.arange(len(X))
    if X.dtype != object:
        return np.flatnonzero(~np.isnan(X).any(axis=1))
    return np.array([k for k, row in enumerate(X) if not any(map(is_missing, row))], dtype=np.int64)


def _validated(estimator: Any, X: Any, reset: bool) -> np.ndarray:
    """X as an array of rows; remembers the type of the training rows."""
    if reset:
        estimator.exact_ = _loses_digits(X)
    array = _checked(estimator, X, reset)
    if reset:
        estimator.fitted_dtype_ = array.dtype.name
    return array


def _loses_digits(X: Any) -> bool:
    """Whether one array of floats would round whole numbers: some are beyond 2^53 and occur beside decimals."""
    columns = [_numbers(column) for column in _columns_of(X)]
    if not columns or any(column is None for column in columns):
        return False
    whole = [all(type(value) is int for value in column) for column in columns if column is not None]
    large = any(type(value) is int and abs(value) > 1 << 53 for column in columns if column for value in column)
    return large and not all(whole)


def _columns_of(X: Any) -> list[Any]:
    """The columns of a frame, of rows in lists or of an array of objects; empty for an array of one type."""
    if hasattr(X, "columns") and hasattr(X, "__getitem__") and hasattr(X, "dtypes"):
        return [X[name] for name in X.columns]
    if isinstance(X, np.ndarray):
        return list(X.T) if X.dtype == object and X.ndim == 2 else []
    if isinstance(X, list | tuple) and X and all(isinstance(row, list | tuple) for row in X):
        return list(zip(*X, strict=True)) if len(set(map(len, X))) == 1 else []
    return []


def _numbers(column: Any) -> list[int | float] | None:
    """The cells of a column as whole numbers and floats; None where there is anything else."""
    values = [plain(value) for value in (column.tolist() if hasattr(column, "tolist") else column)]
    return values if all(type(value) in (int, float) for value in values) else None


def _exact_rows(X: Any) -> np.ndarray | None:
    """Rows of numbers as they are, whole-valued floats as whole numbers; None where X has other cells."""
    columns = _columns_of(X) or (list(X.T) if isinstance(X, np.ndarray) and X.ndim == 2 else [])
    found = [_numbers(column) for column in columns]
    if not found or any(column is None for column in found):
        return None
    array = np.empty((len(found[0] or ()), len(found)), dtype=object)
    for place, column in enumerate(found):
        array[:, place] = [int(v) if type(v) is float and v.is_integer() else v for v in column or ()]
    return array


def _checked(estimator: Any, X: Any, reset: bool) -> np.ndarray:
    """X as a two-dimensional array of finite numbers, or of texts and the values beside them."""
    exact = _exact_rows(X) if estimator.exact_ else None
    finite: Any = True if getattr(estimator, "missing", "error") == "error" else "allow-nan"
    if exact is not None:
        validate_data(estimator, X, reset=reset, dtype="numeric", ensure_all_finite=finite)
        return exact
    if isinstance(X, list | tuple) and all(isinstance(row, list | tuple) for row in X) and len(set(map(len, X))) == 1:
        X = _from_lists(X)  # NumPy would make texts of the numbers beside texts, and 1 of True
    if isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 2:
        for number, column in enumerate(X.T):
            _check_one_type(column, f"column {number} of X")
    if _holds_texts(X):
        X = _without_times(X)
        array = validate_data(estimator, X, reset=reset, dtype=None, ensure_all_finite="allow-nan")
        return _with_dates(array)
    return np.asarray(validate_data(estimator, X, reset=reset, dtype="numeric", ensure_all_finite=finite))


def _without_times(X: Any) -> Any:
    """A frame of pandas with its columns of times as objects: NumPy has no common type for times and numbers."""
    if not (hasattr(X, "astype") and hasattr(X, "columns")):
        return X
    kinds = zip(X.columns, X.dtypes, strict=True)
    times = {name: object for name, kind in kinds if str(kind).lower().startswith(("date", "time"))}
    return X.astype(times) if times else X


def _with_dates(array: np.ndarray) -> np.ndarray:
    """An array of objects with dates, times and durations as texts, cell by cell: a query has the texts of the fit."""
    if array.dtype.kind in "mM":
        texts = array.astype(f"{array.dtype.kind}8[ns]").astype(str).astype(object)
        texts[np.isnat(array)] = None
        return np.asarray(texts)
    found = np.array(array, dtype=object)
    for place, cell in np.ndenumerate(found):
        if isinstance(cell, datetime.date | datetime.time | datetime.timedelta) and not is_missing(cell):
            found[place] = str(cell)
    return found


def _from_lists(rows: Any) -> Any:
    """The rows as an array of the very values that they hold."""
    array = np.empty((len(rows), len(rows[0])), dtype=object)
    for place, row in enumerate(rows):
        for column, value in enumerate(row):
            array[place, column] = value
    return array


def _check_one_type(values: Any, name: str) -> None:
    """Refuse values that an array would merge: 1, 1.0, True and "1" in one column, and 0.0 with -0.0 as classes."""
    if not hasattr(values, "__iter__") or (isinstance(values, np.ndarray) and values.dtype.kind not in "Of"):
        return
    entries = [plain(value) for value in (values.tolist() if isinstance(values, np.ndarray) else values)]
    kinds = {type(value) for value in entries if type(value) in (bool, int, float, str) and not is_missing(value)}
    if kinds == {int, float} and not {v for v in entries if type(v) is int} & {v for v in entries if type(v) is float}:
        kinds = {float}  # numbers, and none is written in two ways
    zeros = {math.copysign(1, value) for value in entries if type(value) is float and value == 0}
    if len(kinds) > 1 or (name == "y" and len(zeros) > 1):
        found = ", ".join(sorted(kind.__name__ for kind in kinds)) if len(kinds) > 1 else "0.0 and -0.0"
        raise DataError(f"{name} mixes {found}, which arrays take for one another; write them as one type")


def _holds_texts(X: Any) -> bool:
    """Whether some column of a frame, or some cell of an array or list, is a text or a date."""
    kinds = getattr(X, "dtypes", None)
    if kinds is not None:
        return any(str(kind).lower().startswith(_TEXT_COLUMNS) for kind in kinds)
    if isinstance(X, np.ndarray):
        timed = (str, datetime.date, datetime.time, datetime.timedelta)
        return X.dtype.kind in "USmM" or (X.dtype == object and any(isinstance(cell, timed) for cell in X.flat))
    rows = X if isinstance(X, list | tuple) else []
    return any(isinstance(cell, str) for row in rows if isinstance(row, list | tuple) for cell in row)


def _tokens(X: np.ndarray) -> Any:
    """Rows of tokens: symbols where there are texts, else vectors of one exact number."""
    if X.dtype == object:
        return [[None if is_missing(value) else plain(value) for value in row] for row in X]
    if X.dtype.kind == "f" and np.isnan(X).any():
        # A missing cell has no number: the cells become symbols.
        return [[None if math.isnan(value) else value for value in row] for row in X.tolist()]
    if X.dtype == bool:
        X = X.astype(np.int64)
    return X[:, :, None]
