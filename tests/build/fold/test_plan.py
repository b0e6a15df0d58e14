"""Plans: which methods may store which labels, and that costs fall with effort and grow with ids."""

import pytest

from byheart.build.fold.plan import (
    NARROWEST,
    WIDEST,
    Effort,
    Labels,
    Objective,
    beam_for,
    middle_places,
    plans,
    rate,
    sized,
    sorted_to_middle,
)

HALVES = Labels((0.5, 0.5), None)


def kinds(labels):
    return {(plan.kind, plan.head) for plan in plans(1000, 40, labels, Objective.PARAMETERS, Effort.QUICK)}


def test_methods_fit_the_labels():
    assert kinds(HALVES) == {("traps", "logits"), ("walk", "logits"), ("walk", "value")}
    assert kinds(Labels((0.5, 0.5), "value")) == {("traps", "value"), ("walk", "value")}
    assert kinds(Labels((1.0, 0.0), None)) == {("walk", "logits"), ("walk", "value")}, "a trap for every class"
    assert kinds(Labels((0.5, 0.5), None, abstain_bits=8)) == {("walk", "value")}, "only a value has unused cells"


def test_the_cheapest_plan_is_first():
    for objective in (Objective.PARAMETERS, Objective.BITS):
        prices = [plan.price(objective) for plan in plans(5000, 50, HALVES, objective, Effort.NORMAL)]
        assert prices == sorted(prices)


def test_more_effort_and_fewer_ids_cost_less():
    def least(count, effort):
        return plans(count, 50, HALVES, Objective.PARAMETERS, effort)[0].parameters

    assert least(2000, Effort.HIGH) < least(2000, Effort.QUICK) < least(8000, Effort.QUICK)
    assert least(8000, Effort.NORMAL) < 4 * least(2000, Effort.NORMAL), "parameters grow like the root"


def test_the_chosen_number_of_folds_is_the_best_of_its_neighbours():
    best = next(p for p in plans(3000, 50, HALVES, Objective.PARAMETERS, Effort.NORMAL) if p.kind == "traps")
    for folds in (best.folds - 4, best.folds + 4):
        other = sized("traps", best.head, best.cost, best.cell, 3000, 50, HALVES, folds, Effort.NORMAL)
        assert other.parameters >= best.parameters


def test_frequent_labels_get_the_middle_cells():
    assert middle_places((0.1, 0.6, 0.2, 0.06, 0.04)) == [3, 2, 1, 0, 4]
    assert sorted_to_middle((0.1, 0.6, 0.2, 0.06, 0.04)) == [0.06, 0.2, 0.6, 0.1, 0.04]


@pytest.mark.parametrize("effort", list(Effort))
def test_beams_stay_between_their_limits(effort):
    assert beam_for(effort, 1e15) == NARROWEST[effort] and beam_for(effort, 0) == WIDEST[effort]


def test_wider_beams_store_more_bits():
    for kind in ("traps", "walk"):
        assert rate(kind, 40, 2) < rate(kind, 400, 2)
    assert rate("traps", 40, 16) < rate("traps", 40, 2) and rate("walk", 40, 16) == rate("walk", 40, 2)
