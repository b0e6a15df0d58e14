"""The plan is a pure function of what is finished, whoever asks; searches end at the least size."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byheart.lab.engines.training import Outcome
from byheart.lab.presets import PRESETS, SCALES, experiment_of
from byheart.lab.results import minima
from byheart.lab.study.experiment import Experiment, TrialRecord
from byheart.lab.study.planner import Planner, Result, bars, next_size, propose
from tests.lab.small import search


@given(st.sets(st.integers(1, 60), min_size=1, max_size=20), st.integers(0, 61), st.integers(1, 70))
def test_bracketing_finds_the_least_size(sizes, threshold, first):
    experiment = search(sizes=tuple(sorted(sizes)), first=first)
    known: dict[int, bool] = {}
    while (size := next_size(experiment, known.get)) is not None:
        assert size not in known
        known[size] = size >= threshold
    expected = min((s for s in sizes if s >= threshold), default=None)
    assert min((s for s, memorized in known.items() if memorized), default=None) == expected
    assert len(known) <= 2 * len(sizes).bit_length() + 1


def record_of(experiment: Experiment, trial, memorized: bool) -> TrialRecord:
    spec = experiment.problems[trial.problem]
    loss = 0.005 if memorized else 0.5
    curve = tuple((k, loss, 1.0) for k in range(0, 300, 30))
    outcome = Outcome("memorized" if memorized else "exhausted", loss, 1.0, 300, curve, 1.0)
    model = experiment.model_of(trial.size)
    return TrialRecord(trial.key, spec, "f", model, 10 * trial.size, trial.training, "auto", outcome, {}, "")


def simulate(experiment: Experiment, order: random.Random) -> dict[str, TrialRecord]:
    """Finishes needed trials in any order; problem p is memorized from p + 3 blocks on, by every second trial."""
    planner, finished = Planner(experiment), {}
    while needed := planner.needed(finished):
        trial = order.choice(needed)
        memorized = trial.size >= trial.problem + 3 and trial.number % 2 == 1
        finished[trial.key] = record_of(experiment, trial, memorized)
    return finished


def test_the_order_of_finishing_changes_nothing():
    experiment = search()
    runs = [simulate(experiment, random.Random(seed)) for seed in range(3)]
    assert runs[0] == runs[1] == runs[2]
    assert [m.size for m in minima(experiment, runs[0])] == [3, 4]
    assert [m.largest_failed for m in minima(experiment, runs[0])] == [2, 3]


def test_a_search_that_never_succeeds_ends():
    experiment = search(sizes=(1, 2))
    finished = simulate(experiment, random.Random(0))
    assert [m.size for m in minima(experiment, finished)] == [None, None]
    assert {r.model.size for r in finished.values()} == {2}  # what the largest cannot, no smaller one can


def test_proposals_depend_on_earlier_batches_only():
    experiment = search()
    earlier = [Result(0.01, 0.1, 0.3, ((0, 1.0, 0.5),)), Result(0.02, 0.0, 0.1, ((0, 1.0, 0.5),))]
    assert propose(experiment, (0, 3), earlier, 2) == propose(experiment, (0, 3), earlier, 2)
    assert propose(experiment, (0, 3), earlier, 2) != propose(experiment, (0, 4), earlier, 2)
    seeds = {t.seed for done in (earlier[:0], earlier) for t in propose(experiment, (0, 3), done, 2)}
    assert len(seeds) == 4
    for training in propose(experiment, (0, 3), earlier * 4, 2):
        assert 5e-3 <= training.rate <= 5e-2 and 0 <= training.warmup <= 0.2


def test_bars_are_medians_of_enough_trials():
    experiment = search(epochs=100)
    results = [Result(0.01, 0.0, v, ((0, 1.0, 0.5), (50, v, 0.5))) for v in (0.1, 0.2, 0.9)]
    assert bars(experiment, results[:2]) == ()
    assert bars(experiment, results) == ((25, 1.0), (50, 0.2), (75, 0.2))
    assert bars(replace(experiment, full=True), results) == ()


def test_every_preset_is_planned_at_every_scale():
    names = set()
    for name in PRESETS:
        for scale in SCALES:
            experiment = experiment_of(name, scale)
            assert Experiment.from_plain(experiment.as_plain()) == experiment
            assert Planner(experiment).needed({})
            names.add(experiment.name)
    assert len(names) == len(PRESETS) * len(SCALES)
    paper = experiment_of("ks25-fig3", "paper")
    assert [spec.N for spec in paper.problems] == list(range(600, 1701, 100)) and paper.trials == 10
    assert [spec.n for spec in experiment_of("ks25-length", "paper").problems] == [10, 100, 1000]
    three = experiment_of("ks25-softmax")
    assert {three.model_of(2, place).attention for place in range(len(three.problems))} == set(three.variants)
    assert Experiment.from_plain(three.as_plain()) == three
    assert experiment_of("madden24-fig1", "paper").sizes == (4, 8, 16, 32, 64, 128, 256, 512)


def test_growing_networks_share_their_draws_and_name_the_smaller_sizes():
    experiment = search(sizes=(1, 4, 8), kind="curves", space=replace(search().space, grow=True))
    small, large = (propose(experiment, (0, size), (), 2) for size in (1, 8))
    assert [plan.before for plan in small + large] == [(), (), (1, 4), (1, 4)]
    assert [replace(plan, before=()) for plan in large] == small
    assert small[0].seed != small[1].seed


def test_all_sizes_of_a_growing_trial_are_one_network_in_later_batches_too():
    """Otherwise a search for the least size would train every stage again for every size."""
    experiment = search(sizes=(1, 4, 8), trials=4, space=replace(search().space, grow=True))
    later = []
    for size in (4, 8):
        planner = Planner(experiment)
        first = {t.key: record_of(experiment, t, memorized=size == 8) for t in planner._batch(0, size, 0, {})}
        later.append(planner._batch(0, size, 2, first))
    small, large = ([replace(trial.training, before=()) for trial in batch] for batch in later)
    assert small == large
    assert {trial.goal.patience for batch in later for trial in batch} == {1.0}  # a stage begins by losing ground


def test_variants_of_a_problem_have_equal_draws():
    experiment = experiment_of("ks25-precision", "paper")
    same = [place for place, spec in enumerate(experiment.problems) if spec.N == 1300]
    plans = [propose(experiment, (place, 4), (), 2) for place in same]
    assert [plan[0].precision for plan in plans] == ["float64", "float32", "bfloat16"]
    assert len({(plan.rate, plan.warmup, plan.seed) for pair in plans for plan in pair}) == 2


def test_a_grid_of_hours_begins_with_what_is_cheap():
    experiment = experiment_of("madden24-fig1", "paper")
    wanted = Planner(experiment).needed({})
    assert (experiment.place(wanted[0].problem), wanted[0].size) == (100, 4)
    assert (experiment.place(wanted[-1].problem), wanted[-1].size) == (1000, 512)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", sorted(PRESETS))
def test_memorized_is_a_loss_below_the_threshold_and_nothing_else(name, scale):
    """The papers' criterion: a run whose every answer is right but whose loss is above it has not memorized."""
    experiment = experiment_of(name, scale)
    assert not experiment.accuracy and experiment.loss == 0.01


def test_a_grid_until_the_threshold_gives_no_run_up():
    """A run that stalls for long may still come below one percent; and one that does ends there."""
    experiment = experiment_of("madden24-threshold", "paper")
    goal = Planner(experiment).needed({})[0].goal
    assert goal.patience == 1.0 and not goal.full and not goal.bars
    assert replace(experiment, preset="", full=True) == replace(experiment_of("madden24-fig1", "paper"), preset="")
