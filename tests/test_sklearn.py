"""The estimators among scikit-learn's own checks, pipelines, frames and texts."""

from __future__ import annotations

import datetime
import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="needs byheart[sklearn]")

from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import byheart
from byheart.errors import ConflictError, DataError, OptionError
from byheart.sklearn import MemoryClassifier, MemoryTransformer

# scikit-learn's checks that a memorizer cannot pass, each with the reason. Accuracy is otherwise only ever required on
# the training rows.
ONE_LABEL = {"check_classifiers_one_label": "an unknown row is none of the classes, also where there is but one"}
EXPECTED_FAILURES = {"MemoryClassifier": ONE_LABEL, "MemoryTransformer": {}}

ROWS = np.array([[0.5, 1.0], [2.0, 3.0], [2.0, 4.0], [0.5, 3.0]])
CLASSES = np.array(["red", "blue", "red", "green"])


@pytest.mark.slow  # .ci/run runs it all the same
@pytest.mark.parametrize("estimator", [MemoryClassifier(), MemoryTransformer()], ids=lambda e: type(e).__name__)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks(estimator):
    expected = EXPECTED_FAILURES[type(estimator).__name__]
    results = check_estimator(estimator, expected_failed_checks=expected, on_skip=None, on_fail="raise")
    assert len(results) > 40
    skipped = {result["check_name"] for result in results if result["status"] == "skipped"}
    assert skipped <= {"check_array_api_input"}


@pytest.fixture(scope="module")
def model():
    return MemoryClassifier().fit(ROWS, CLASSES)


def test_it_knows_its_rows(model):
    assert model.predict(ROWS).tolist() == CLASSES.tolist() and model.score(ROWS, CLASSES) == 1.0
    assert model.memory_.certificate.verdict == "proved"
    assert model.known(ROWS).all()
    assert (model.predict_proba(ROWS).max(axis=1) == 1).all()


def test_off_the_data_it_says_so(model):
    rng = np.random.default_rng(0)
    strange = rng.normal(size=(400, 2))
    known = model.known(strange)
    assert known.mean() < 0.05, "all but about one in 256 are refused"
    assert (model.predict_proba(strange)[~known] == model.class_prior_).all()
    assert set(model.predict(strange)[~known]) == {"<unknown>"}, "none of the classes"
    assert set(model.set_params(outlier_label="most_frequent").predict(strange)[~known]) == {"red"}
    assert set(model.set_params(outlier_label="grey").predict(strange)[~known]) == {"grey"}
    model.set_params(outlier_label=None)


@pytest.mark.parametrize(("classes", "mark"), [([1, 2], -(2**63)), ([True, False], None), (["x", "y"], "<unknown>")])
def test_what_is_unknown_is_none_of_the_classes(classes, mark):
    fitted = MemoryClassifier(construction="native", abstain_bits=16)
    found = fitted.fit([["a"], ["b"]], classes).predict([["a"], ["zz"]]).tolist()
    assert found == [classes[0], mark]


def test_numbers_are_taken_exactly():
    rows = np.array([[2**60], [2**60 + 1], [-(2**60)]])
    model = MemoryClassifier().fit(rows, [0, 1, 2])
    assert model.predict(rows).tolist() == [0, 1, 2]


def test_conflicts():
    rows, classes = [[1.0]] * 3 + [[2.0]], ["a", "b", "b", "a"]
    with pytest.warns(UserWarning, match="1 of 4 rows .*conflicts='majority'"):
        assert MemoryClassifier().fit(rows, classes).predict([[1.0]]).tolist() == ["b"]
    with pytest.warns(UserWarning, match="2 of 4 rows"):
        assert MemoryClassifier(conflicts="first").fit(rows, classes).predict([[1.0]]).tolist() == ["a"]
    with pytest.warns(UserWarning, match="3 of 4 rows"):
        assert not MemoryClassifier(conflicts="drop").fit(rows, classes).known([[1.0]]).any()
    with pytest.raises(ConflictError, match="conflicts=") as refused:
        MemoryClassifier(conflicts="error").fit(rows, classes)
    assert "--" not in str(refused.value)
    with pytest.raises(OptionError, match="majority"):
        MemoryClassifier(conflicts="last").fit(rows, classes)


@pytest.mark.parametrize("bits", [0, 8])
def test_texts_are_symbols(bits):
    rows = [["left", "up"], ["left", "down"], ["right", "up"]]
    model = MemoryClassifier(construction="compact", abstain_bits=bits).fit(rows, [1, 2, 3])
    assert model.predict(rows).tolist() == [1, 2, 3]
    assert model.known([["left", "nowhere"]]).tolist() == [False]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames(library):
    frames = pytest.importorskip(library)
    frame = frames.DataFrame({"side": ["left", "left", "right"], "size": [1.5, 2.5, 1.5]})
    model = MemoryClassifier().fit(frame, ["a", "b", "c"])
    assert model.feature_names_in_.tolist() == ["side", "size"]
    assert model.predict(frame).tolist() == ["a", "b", "c"]
    numbers = frames.DataFrame({"x": [1.5, 2.5], "y": [1, 2]})
    assert MemoryClassifier().fit(numbers, [True, False]).predict(numbers).tolist() == [True, False]


@pytest.mark.parametrize(
    ("rows", "classes"),
    [
        ([[1], ["1"]], ["a", "b"]),
        ([[1], [1.0]], ["a", "b"]),
        ([[1], [True]], ["a", "b"]),
        ([[0.0], [-0.0]], ["a", "b"]),
        (np.array([[0.0], [-0.0]]), ["a", "b"]),
        ([[1], [2], [3]], [1, "1", True]),
        ([[1], [2]], [1, 1.0]),
        ([[1], [2]], [0.0, -0.0]),
        ([["x", 1.5], ["y", float("nan")]], ["a", "b"]),
    ],
)
def test_values_that_an_array_would_merge_are_refused(rows, classes):
    with pytest.raises(DataError, match=r"mixes|how a number is written|is missing"):
        MemoryClassifier().fit(rows, classes)


def test_numbers_beside_texts_stay_numbers():
    model = MemoryClassifier().fit([["x", 1, 0.5], ["x", 2, -0.0]], ["a", "b"])
    assert model.predict([["x", 1, 0.5], ["x", 2, -0.0]]).tolist() == ["a", "b"]
    for strange in ([["x", "1", 0.5]], [["x", 1.0, 0.5]], [["x", 2, 0.0]]):
        assert model.known(strange).tolist() == [False]


def test_pipelines_and_cross_validation():
    rows = np.repeat(ROWS, 5, axis=0)
    classes = np.repeat(CLASSES, 5)
    chain = make_pipeline(StandardScaler(), MemoryClassifier())
    assert cross_val_score(chain, rows, classes, cv=5).tolist() == [1.0] * 5, "every fold has seen every row"
    chain = make_pipeline(OrdinalEncoder(), MemoryTransformer())
    assert chain.fit_transform([["x", "y"], ["y", "x"], ["x", "y"]]).ravel().tolist() == [0, 1, 0]


def test_cloning_and_pickling(model):
    other = clone(MemoryClassifier(construction="ks25", abstain_bits=0, seed=3, options={"form": "residual"}))
    assert other.get_params() == {
        "construction": "ks25",
        "abstain_bits": 0,
        "conflicts": "majority",
        "missing": "error",
        "outlier_label": None,
        "seed": 3,
        "options": {"form": "residual"},
    }
    assert other.fit(ROWS, CLASSES).predict(ROWS).tolist() == CLASSES.tolist()
    again = pickle.loads(pickle.dumps(model))
    assert again.predict(ROWS).tolist() == CLASSES.tolist()


def test_the_memory_can_be_saved(model, tmp_path):
    model.memory_.save(tmp_path / "m")
    indices = byheart.load(tmp_path / "m").predict([[[float(x)] for x in row] for row in ROWS])
    assert model.classes_[indices].tolist() == CLASSES.tolist()


def test_context_ids():
    transformer = MemoryTransformer()
    assert transformer.fit_transform(ROWS[[0, 1, 0, 2]]).ravel().tolist() == [0, 1, 0, 2]
    assert transformer.transform([[7.0, 7.0]]).tolist() == [[-1]]
    pandas = pytest.importorskip("pandas")
    named = MemoryTransformer().set_output(transform="pandas").fit_transform(pandas.DataFrame(ROWS, columns=["a", "b"]))
    assert list(named.columns) == ["context_id"]


@pytest.mark.parametrize("kind", ["category", "object"])
def test_a_column_of_numbers_that_is_not_declared_as_one(kind):
    """Such a frame is an array of objects and was memorized as vectors, which could then not be queried."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [3.0, 1.0], "b": pandas.Series([1, 1], dtype=kind)})
    model = MemoryClassifier().fit(frame, ["x", "y"])
    assert model.predict(frame).tolist() == ["x", "y"]


def test_missing_cells_are_refused_dropped_or_values():
    pandas = pytest.importorskip("pandas")
    rows, classes = np.array([[1.0, np.nan], [2.0, 3.0], [5.0, 6.0]]), [0, 1, 0]
    with pytest.raises(ValueError, match="missing='drop' or missing='label'"):
        MemoryClassifier().fit(rows, classes)
    with pytest.raises(OptionError, match="error, drop, label"):
        MemoryClassifier(missing="ignore").fit(rows, classes)
    assert MemoryClassifier(missing="drop").fit(rows, classes).known(rows).tolist() == [False, True, True]
    model = MemoryClassifier(missing="label").fit(rows, classes)
    assert model.predict(rows).tolist() == classes
    assert model.known([[2.0, np.nan], [np.nan, np.nan]]).tolist() == [False, False]
    texts = pandas.DataFrame({"a": ["x", None], "b": ["q", "r"]})
    with pytest.raises(DataError, match="missing='drop'") as refused:
        MemoryClassifier().fit(texts, [0, 1])
    assert "--" not in str(refused.value)
    assert MemoryClassifier(missing="label").fit(texts, [0, 1]).predict(texts).tolist() == [0, 1]


def test_rounded_queries_are_a_warning():
    rows = np.array([[0.1], [0.2], [0.5]])
    model = MemoryClassifier().fit(rows, [0, 1, 2])
    with pytest.warns(UserWarning, match="2 of 3 rows are unknown; X is float32, the training rows are float64"):
        assert model.known(rows.astype(np.float32)).tolist() == [False, False, True]
    assert model.known(np.array([[0.5]], dtype=np.float32)).all(), "no warning where nothing was rounded"


def test_long_whole_numbers_beside_decimals_keep_every_digit():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [2**53 + 1, 5, 7], "b": [0.5, 0.25, 1.5]})
    model = MemoryClassifier().fit(frame, ["x", "y", "z"])
    assert model.predict(frame).tolist() == ["x", "y", "z"]
    near = pandas.DataFrame({"a": [2**53, 2**53 + 2], "b": [0.5, 0.5]})
    assert not model.known(near).any()
    model = MemoryClassifier().fit([[2**53 + 1, 0.5], [5, 0.25]], ["x", "y"])
    assert model.known([[2.0**53, 0.5], [2**53 + 1, 0.5], [5.0, 0.25]]).tolist() == [False, True, True]


def test_decimals_go_to_pytorch_and_onnx(tmp_path):
    """Decimals have no short binary form: their numbers become names, as in a deployed table."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("torch")
    rows = ROWS + 0.1
    memory = MemoryClassifier().fit(rows, CLASSES).memory_
    with pytest.warns(UserWarning, match="as construction native"):
        memory.to_onnx(tmp_path / "rows.onnx")
    assert (tmp_path / "rows.onnx").stat().st_size
    with pytest.warns(UserWarning, match="as construction native"):
        module = memory.to_torch()
    names = sorted(set(CLASSES.tolist()))
    assert [names[k] for k in module.answers(rows.tolist())] == CLASSES.tolist()
    assert module.answers([[0.6, 4.1], [9.0, 9.0]])[1] == module.labels[-1]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_dates_are_texts_cell_by_cell(library):
    frames = pytest.importorskip(library)
    moments = [datetime.datetime(2024, 1, 31), datetime.datetime(2024, 2, 1, 6), datetime.datetime(2024, 2, 1)]
    took = [moments[1] - one for one in moments]
    for columns in ({"at": moments}, {"at": moments, "size": [1, 2, 3]}, {"took": took}):
        frame = frames.DataFrame(columns)
        model = MemoryClassifier().fit(frame, ["a", "b", "c"])
        assert model.predict(frame).tolist() == ["a", "b", "c"]
        assert model.predict(frame[:1]).tolist() == ["a"], "a midnight among midnights is the same time"
    other = frames.DataFrame({"at": [moments[0] + datetime.timedelta(microseconds=1)]})
    model = MemoryClassifier().fit(frames.DataFrame({"at": moments}), ["a", "b", "c"])
    assert model.known(other).tolist() == [False]


def test_a_construction_that_recognises_no_unknown_row_names_the_parameter():
    with pytest.raises(OptionError, match="ks25 does not recognise unknown rows; choose abstain_bits=0 for it"):
        MemoryClassifier("ks25").fit([[1], [2]], ["a", "b"])
