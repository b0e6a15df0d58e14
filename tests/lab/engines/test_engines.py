"""The fast engines against the readable models: the same loss curve for the same seed."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from byheart.errors import OptionError
from byheart.lab.config import DecoderModel, Training, Uniform
from byheart.lab.engines.training import make_engine
from byheart.lab.engines.weights import grown
from byheart.lab.problem import ProblemSpec, labelled_contexts
from tests.lab.small import signs_problem, stories, words_problem

torch = pytest.importorskip("torch", reason="needs byheart[lab]")

PLAIN = Training(epochs=40, rate=0.01, warmup=0.1, shape="cosine", decay=0.01, seed=3)
CLIPPED = Training(epochs=40, rate=0.02, warmup=0.25, shape="linear", beta2=0.99, clip=0.1, seed=4)
PROBLEMS = {
    "vectors": words_problem(),
    "one-hot": words_problem(vectors=False),
    "squared error": signs_problem(),
    "more than one tile": words_problem(N=300),
}


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def curve(engine, problem, model, training):
    return make_engine(engine, problem, model, training).epochs(training.epochs)


@pytest.mark.parametrize("training", [PLAIN, CLIPPED], ids=["plain", "clipped"])
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize("engine", ["kernel", "stacked"])
def test_same_curve_as_the_readable_model(engine, problem, training):
    found = curve(engine, problem, Uniform(blocks=3), training)
    expected = curve("readable", problem, Uniform(blocks=3), training)
    assert found[:, 0] == pytest.approx(expected[:, 0], rel=2e-4)
    assert found[:, 1] == pytest.approx(expected[:, 1], abs=0.04)  # a tie may fall either way


@pytest.mark.parametrize("engine", ["stacked", "kernel"])
def test_other_widths(engine):
    model = Uniform(blocks=2, m=3, q=5, s=2)
    problem = PROBLEMS["vectors"]
    expected = curve("readable", problem, model, PLAIN)
    assert curve(engine, problem, model, PLAIN)[:, 0] == pytest.approx(expected[:, 0], rel=1e-4)


@pytest.mark.parametrize("m", [2, 3])
def test_streams_that_are_not_kept_give_the_same_curve(m, monkeypatch):
    """Where the tapes of all tiles do not fit in memory, a tile runs forwards again on the way back."""
    from byheart.lab.engines import kernel

    problem, model = PROBLEMS["more than one tile"], Uniform(blocks=3, m=m)
    kept = curve("kernel", problem, model, PLAIN)
    monkeypatch.setattr(kernel, "TAPE", 0)
    engine = make_engine("kernel", problem, model, PLAIN)
    assert [len(tape) for tape in engine.tapes] == [1, 1] and len(engine.streams[0][1]) > 1
    assert (engine.epochs(PLAIN.epochs) == kept).all()


@pytest.mark.parametrize("name", ["wide", "attending"])
def test_engines_of_earlier_versions_are_the_kernel(name):
    found, expected = (curve(engine, PROBLEMS["vectors"], Uniform(2), PLAIN) for engine in (name, "kernel"))
    assert (found == expected).all()


@pytest.mark.parametrize("attention", ["uniform", "softmax", "hardmax"])
@pytest.mark.parametrize("every", [False, True], ids=["one label", "a label for every token"])
def test_attention_and_labels_of_every_token_are_those_of_the_readable_model(attention, every):
    problem = labelled_contexts(ProblemSpec("contexts", 12, 4, 3)) if every else signs_problem()
    model = Uniform(2, 4, 6, 4, attention=attention)
    expected = curve("readable", problem, model, PLAIN)
    for engine in ("stacked", "kernel"):
        found = curve(engine, problem, model, PLAIN)
        assert found[:, 0] == pytest.approx(expected[:, 0], rel=1e-3)


def test_networks_with_attention_grow_without_changing_what_they_compute():
    problem, plan = labelled_contexts(ProblemSpec("contexts", 12, 4, 3)), replace(PLAIN, identity=True)
    small, large = (Uniform(blocks, 4, 6, 4, attention="softmax") for blocks in (1, 3))
    engine = make_engine("auto", problem, small, plan)
    engine.epochs(20)
    start = grown(engine.learned(), large, problem, seed=1)
    assert make_engine("auto", problem, large, plan, start).epochs(1)[0] == pytest.approx(engine.epochs(1)[0])


def test_weights_that_vanish_beside_all_words_are_taken_within_the_row():
    """The best key of all words is not in the row: what is looked up there is exp(-1000), which is zero."""
    from byheart.lab.engines.kernel import scores_of, weigh

    Q, K = np.array([[1.0]]), np.array([[1000.0], [0.0], [1.0]])
    scores, exponentials = np.zeros((1, 3)), np.zeros((1, 3))
    soft, used = np.zeros(2), np.zeros(2)
    scores_of(Q, K, scores, exponentials)
    weigh(False, 0, np.array([1, 2]), scores, exponentials, soft, used)
    assert used == pytest.approx([1 / (1 + np.e), np.e / (1 + np.e)])
    weigh(True, 0, np.array([1, 2]), scores, exponentials, soft, used)
    assert used.tolist() == [0.0, 1.0]


@pytest.mark.slow
def test_precisions():
    """float64 starts where float32 starts; bfloat16 evaluates rounded weights and steps from whole ones."""
    problem = PROBLEMS["vectors"]
    plans = {name: replace(PLAIN, precision=name) for name in ("float64", "float32", "bfloat16")}
    curves = {name: curve("kernel", problem, Uniform(3), plan)[:, 0] for name, plan in plans.items()}
    assert curves["float64"] == pytest.approx(curves["float32"], rel=1e-3)
    assert curves["bfloat16"] == pytest.approx(curves["float32"], rel=0.2)
    assert curves["bfloat16"] != pytest.approx(curves["float32"], rel=1e-4)
    engine = make_engine("kernel", problem, Uniform(3), plans["bfloat16"])
    engine.epochs(3)
    assert (engine.weights.vector == torch.tensor(engine.master).bfloat16().float().numpy()).all()
    assert (engine.weights.vector != engine.master).any()
    learned = engine.learned()  # what a larger network starts from is not rounded
    assert (np.concatenate([w.ravel() for w in learned.values()]) == engine.master).all()
    with pytest.raises(OptionError, match="computes in float32, not bfloat16"):
        make_engine("stacked", problem, Uniform(3, 4, 16, 4), plans["bfloat16"])


def test_decoder_on_distinct_contexts_is_the_decoder_on_documents():
    model = DecoderModel(neurons=6, d=8)
    found = curve("decoder", stories(), model, PLAIN)
    expected = curve("readable", stories(), model, PLAIN)
    assert found[:, 0] == pytest.approx(expected[:, 0], rel=1e-4)
    assert found[:, 1] == pytest.approx(expected[:, 1], abs=0.1)  # of 11 predictions one may be a tie


def test_descending_a_sum_is_descending_the_mean_with_a_smaller_epsilon():
    """Adam of 11 times the loss, written out, takes the same steps as `summed` at a large epsilon."""
    from byheart.lab.engines.readable import ReadableEngine

    plan = Training(epochs=20, rate=0.01, epsilon=1e-2, summed=True)
    found = ReadableEngine(stories(), DecoderModel(4, d=4), plan).epochs(20)[:, 0]
    other = ReadableEngine(stories(), DecoderModel(4, d=4), replace(plan, summed=False))
    mean = other.measure

    def total(network):
        loss, accuracy = mean(network)
        return loss * stories().asked, accuracy

    other.measure = total
    assert other.epochs(20)[:, 0] / 11 == pytest.approx(found, rel=1e-4)
    plainly = ReadableEngine(stories(), DecoderModel(4, d=4), replace(plan, summed=False)).epochs(20)[:, 0]
    assert plainly != pytest.approx(found, rel=1e-3)


def test_engines_that_do_not_fit_are_refused():
    with pytest.raises(OptionError, match="unknown engine 'turbo'"):
        make_engine("turbo", PROBLEMS["vectors"], Uniform(1), PLAIN)
    with pytest.raises(OptionError, match="does not train a decoder model on sequences"):
        make_engine("decoder", PROBLEMS["vectors"], DecoderModel(4), PLAIN)


def test_parameters_are_those_of_the_readable_model():
    from byheart.lab.engines.readable import DecoderTransformer, UniformTransformer

    for problem in PROBLEMS.values():
        model = Uniform(blocks=3)
        assert sum(p.numel() for p in UniformTransformer(model, problem).parameters()) == model.parameters(problem)
    decoder = DecoderModel(neurons=6, d=8)
    assert sum(p.numel() for p in DecoderTransformer(decoder, stories()).parameters()) == decoder.parameters(stories())


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_kernel_in_float64_agrees_to_the_last_digits(problem):
    from byheart.lab.engines.kernel import KernelEngine
    from byheart.lab.engines.readable import ReadableEngine

    found = KernelEngine(problem, Uniform(blocks=4), CLIPPED, np.float64).epochs(100)
    expected = ReadableEngine(problem, Uniform(blocks=4), CLIPPED, torch.float64).epochs(100)
    assert found[:, 0] == pytest.approx(expected[:, 0], rel=1e-9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # PyTorch's own, inside torch.compile
def test_compiled_engine_agrees():
    problem = PROBLEMS["vectors"]
    found = curve("compiled", problem, Uniform(blocks=2), PLAIN)
    assert found[:, 0] == pytest.approx(curve("readable", problem, Uniform(blocks=2), PLAIN)[:, 0], rel=2e-4)


def test_a_certain_and_wrong_answer_has_a_large_loss_and_not_an_infinite_one():
    """exp(-2000) is zero in every float; the loss of such an answer is 2000 all the same."""
    from byheart.lab.engines.kernel import LANES, score

    stream, slope = np.zeros((1, 2, LANES), np.float32), np.zeros((1, 2, LANES), np.float32)
    stream[0, :, 0] = 1000.0
    E_out, slope_out = np.array([[1, 1], [0, 0]], np.float32), np.zeros((2, 2), np.float32)
    loss, accuracy = score(stream, E_out, np.array([1]), False, slope, slope_out)
    assert (loss, accuracy) == (2000.0, 0.0)
    assert np.isfinite(slope).all() and np.isfinite(slope_out).all()


REPEAT = """
from byheart.lab.config import Training, Uniform
from byheart.lab.engines.kernel import KernelEngine
from tests.lab.small import words_problem
print(KernelEngine(words_problem(N=300), Uniform(6), Training(epochs=400, rate=0.02)).epochs(400).tobytes().hex())
"""


@pytest.mark.slow
def test_compiled_or_loaded_from_the_cache_the_losses_are_the_same_to_the_last_bit(tmp_path):
    root = Path(__file__).parents[3]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    words = [sys.executable, "-c", REPEAT]
    compiled, loaded = (
        subprocess.run(words, env=environment, check=True, capture_output=True).stdout for _ in range(2)
    )
    assert len(compiled) > 10_000 and compiled == loaded
