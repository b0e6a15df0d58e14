"""When a run ends, and what is kept of it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from byheart.errors import OptionError
from byheart.lab.config import DecoderModel, Training, Uniform, as_plain, model_of
from byheart.lab.engines.training import Goal, Outcome, train
from byheart.lab.engines.weights import initial_uniform
from byheart.lab.problem import ProblemSpec, Sequences
from byheart.lab.study.experiment import TrialRecord, machine, versions
from tests.lab.small import signs_problem, stories, words_problem

TRAINING = Training(epochs=600, rate=0.03, beta2=0.99, clip=0.1, shape="cosine", seed=1)


class Scripted:
    """An engine that plays a given curve."""

    def __init__(self, losses):
        self.losses, self.step = np.asarray(losses, dtype=float), 0

    def epochs(self, count):
        part = self.losses[self.step : self.step + count]
        self.step += count
        return np.stack([part, np.zeros(len(part))], axis=1)


@pytest.fixture
def play(monkeypatch):
    def run(losses, goal):
        monkeypatch.setattr("byheart.lab.engines.training.make_engine", lambda *_: Scripted(losses))
        return train(signs_problem(), Uniform(1), Training(epochs=len(losses), rate=0.1), goal)

    return run


def test_stops_at_the_first_epoch_below_the_goal(play):
    outcome = play(np.linspace(1, 0, 1000), Goal(loss=0.5))
    assert (outcome.state, outcome.epochs) == ("memorized", 501)
    assert outcome.loss < 0.5 and outcome.curve[-1][0] == 500


def test_a_full_run_goes_on_and_still_counts(play):
    outcome = play(np.linspace(1, 0, 1000), Goal(loss=0.5, full=True))
    assert (outcome.state, outcome.epochs) == ("memorized", 1000)
    assert len(outcome.curve) <= 201 and outcome.curve[-1][0] == 999


def test_gives_up_when_nothing_improves(play):
    outcome = play(np.full(1000, 0.7), Goal(patience=0.3))
    assert outcome.state == "hopeless" and outcome.epochs < 400


def test_slow_progress_is_not_hopeless(play):
    assert play(np.linspace(1, 0.5, 1000), Goal(patience=0.3)).state == "exhausted"


def test_notices_divergence(play):
    outcome = play([0.9] * 50 + [np.nan] * 50, Goal())
    assert (outcome.state, outcome.epochs, outcome.loss) == ("diverged", 51, 0.9)
    assert play([np.inf] * 40, Goal(full=True)).loss == np.inf


def test_prunes_what_is_worse_than_the_median_of_earlier_trials(play):
    assert play(np.full(100, 0.5), Goal(bars=((50, 0.4),), patience=1.0)).state == "pruned"
    assert play(np.full(100, 0.3), Goal(bars=((50, 0.4),), patience=1.0)).state == "exhausted"


def test_memorizes_and_repeats_itself():
    first, second = (train(signs_problem(N=10), Uniform(3), TRAINING, Goal()) for _ in range(2))
    assert first.memorized and first.accuracy == 1.0
    assert first.curve == second.curve


def test_accuracy_alone_may_be_the_goal():
    outcome = train(words_problem(N=12), Uniform(4), TRAINING, Goal(loss=0.0, accuracy=True))
    assert outcome.memorized and outcome.accuracy == 1.0 and outcome.loss > 0


def test_a_record_survives_json():
    curve = ((0, 1.0, 0.5), (1, float("nan"), 0.5))
    record = TrialRecord(
        "p0-s1-t0", ProblemSpec("random", 5, 3, 4), "f" * 64, Uniform(1), 99, TRAINING, "auto",
        Outcome("diverged", float("inf"), 0.5, 2, curve, 0.1), versions(), machine(),
    )  # fmt: skip
    text = json.dumps(record.as_plain(), allow_nan=False)
    again = TrialRecord.from_plain(json.loads(text))
    assert repr(again) == repr(record)
    assert {"byheart", "python", "numpy"} <= set(record.versions)


def test_models_survive_json():
    for model in (Uniform(3, q=4), DecoderModel(8)):
        assert model_of(json.loads(json.dumps(as_plain(model)))) == model
    with pytest.raises(OptionError, match="unknown model 'lstm'"):
        model_of({"kind": "lstm"})


@pytest.mark.parametrize("shape", ["constant", "linear", "cosine"])
def test_rates_rise_then_fall(shape):
    plan = Training(epochs=50, rate=0.1, warmup=0.2, shape=shape)
    rates = [plan.rate_at(epoch) for epoch in range(50)]
    assert rates[:10] == sorted(rates[:10]) and rates[9] == 0.1
    assert all(0 <= rate <= 0.1 for rate in rates)
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert (rates[-1] == 0.1) == (shape == "constant")


def test_entropy_is_what_no_model_undercuts():
    problem = stories()
    # after 0 1: twice 2, once 5; after 0 1 2: 3 or 4; everything else is certain; 11 predictions
    expected = -(2 * np.log(2 / 3) + np.log(1 / 3) + 2 * np.log(1 / 2)) / 11
    assert problem.entropy == pytest.approx(expected)
    outcome = train(problem, DecoderModel(16, d=8), Training(epochs=150, rate=0.03, shape="constant"), Goal(full=True))
    assert problem.entropy <= outcome.loss < 1.25 * problem.entropy
    assert len(problem.contexts) == 6


def test_documents_are_memorized_when_the_loss_is_near_their_entropy():
    problem, goal = stories(), Goal(loss=0.01, full=True)
    plans = [Training(epochs=epochs, rate=0.03, shape="constant", seed=2) for epochs in (800, 20)]
    near, far = (train(problem, DecoderModel(16, d=8), plan, goal) for plan in plans)
    assert near.memorized and problem.entropy < near.loss < 1.01 * problem.entropy
    assert not far.memorized and far.loss > 1.01 * problem.entropy


def test_a_run_that_misses_its_goal_starts_again() -> None:
    """The second start reaches what the first misses; the curve is that of one run, the seconds those of both."""
    draw = np.random.default_rng(0)
    points, labels = draw.standard_normal((40, 2)), draw.integers(0, 2, 40)
    problem = Sequences("x", points, np.arange(40).reshape(40, 1), labels, classes=2, read=0)
    plan = Training(epochs=60, rate=0.05, identity=True, starts=1)
    alone = [train(problem, Uniform(2), replace(plan, seed=seed), Goal(loss=0.0)).loss for seed in range(8)]
    first = next(seed for seed in range(7) if alone[seed] > 1.1 * alone[seed + 1])
    goal = Goal(loss=(alone[first] + alone[first + 1]) / 2)
    found = train(problem, Uniform(2), replace(plan, seed=first, starts=3), goal)
    assert found.memorized and found.starts == 2
    assert found.curve == train(problem, Uniform(2), replace(plan, seed=first + 1), goal).curve


@pytest.mark.parametrize(("engine", "m"), [("kernel", 2), pytest.param("kernel", 3, marks=pytest.mark.slow)])
def test_a_grown_network_starts_where_the_smaller_one_ended(engine: str, m: int) -> None:
    problem, goal = words_problem(), Goal(full=True)
    plan = Training(epochs=200, rate=0.03, shape="cosine", identity=True, seed=3)
    small, large = Uniform(1, m=m), Uniform(4, m=m)
    before = train(problem, small, plan, goal, engine)
    after = train(problem, large, replace(plan, before=(1,)), goal, engine)
    assert before.curve[0][1] > 1.2 * before.curve[-1][1]
    assert after.curve[0][1] == pytest.approx(before.curve[-1][1], rel=1e-4)
    assert after.loss < before.loss and after.epochs == 200
    assert after.curve[0][1] < train(problem, large, plan, goal, engine).curve[0][1]


def test_a_network_grows_from_the_better_end_of_the_smaller_one() -> None:
    """Steps that only do harm are not passed on: the larger network starts where the smaller one started."""
    problem, plan = words_problem(), Training(epochs=1, rate=1e-9, identity=True, seed=3)
    wild = replace(plan, epochs=40, rate=30.0)
    drawn = train(problem, Uniform(1), plan, Goal(full=True)).curve[0][1]
    harmed = train(problem, Uniform(1), wild, Goal(full=True))
    assert not harmed.curve[-1][1] <= drawn
    assert train(problem, Uniform(2), replace(wild, before=(1,)), Goal(full=True)).curve[0][1] == pytest.approx(drawn)


def test_only_engines_that_hand_out_weights_grow() -> None:
    with pytest.raises(OptionError, match="does not grow"):
        train(words_problem(), Uniform(2), replace(TRAINING, before=(1,)), Goal(), "stacked")
    with pytest.raises(OptionError, match="grow from smaller ones"):
        train(stories(), DecoderModel(4, d=4), replace(TRAINING, before=(1,)), Goal())


@pytest.mark.parametrize("engine", ["kernel", "stacked", "readable"])
def test_slower_stacks_are_the_same_in_every_engine(engine: str) -> None:
    problem = Sequences("x", np.eye(5), np.arange(10).reshape(5, 2) % 5, np.arange(5) % 2, classes=2, read=0)
    plan = Training(epochs=8, rate=0.05, identity=True, slowdown=0.5, token_slowdown=1.0, clip=0.3)
    losses = [loss for _, loss, _ in train(problem, Uniform(4), plan, Goal(full=True), engine).curve]
    plain = [loss for _, loss, _ in train(problem, Uniform(4), plan, Goal(full=True), "readable").curve]
    assert losses == pytest.approx(plain, rel=1e-4)
    quick = train(problem, Uniform(4), replace(plan, slowdown=0.0), Goal(full=True), engine).curve
    assert [loss for _, loss, _ in quick] != pytest.approx(plain, rel=1e-4)


def test_a_stage_that_ends_worse_than_it_began_is_trained_again_at_half_the_rate(monkeypatch):
    """The second stage rises at the first rate and falls at half of it; the curve that is kept is the one that fell."""
    rates: list[float] = []

    class Stage(Scripted):
        def learned(self):
            return initial_uniform(Uniform(2), signs_problem(), 0)

    def make(name, problem, model, plan, start):
        rates.append(plan.rate)
        return Stage(np.linspace(0.5, 0.4, 8) if len(rates) != 2 else np.linspace(0.4, 0.9, 8))

    monkeypatch.setattr("byheart.lab.engines.training.make_engine", make)
    plan = Training(epochs=8, rate=0.1, before=(1,), retries=2)
    outcome = train(signs_problem(), Uniform(2), plan, Goal(full=True))
    assert rates == [0.1, 0.1, 0.05]
    assert outcome.curve[-1][1] == 0.4
