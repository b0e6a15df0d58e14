"""Jobs: ids sorted with their labels, invalid input refused, digits that groups of ids need."""

import pytest

from byheart.build.fold.job import choice, group_digits, make_job
from byheart.build.fold.plan import Effort, Objective
from byheart.errors import BuildError, OptionError
from byheart.progress import SILENT


def job(ids, labels, classes=2, head=None):
    return make_job(ids, labels, classes, head, 0, Objective.PARAMETERS, Effort.QUICK, 0, SILENT)


@pytest.mark.parametrize("far", [40, 1 << 80])
def test_labels_follow_their_ids(far):
    found = job([far, 3, 9], [1, 0, 1])
    assert found.ids == [3, 9, far] and found.labels.tolist() == [0, 1, 1]
    assert found.about.shares == pytest.approx((1 / 3, 2 / 3))


@pytest.mark.parametrize(
    ("ids", "labels", "head", "error", "message"),
    [
        ([], [], None, BuildError, "at least one"),
        ([1, 2], [0], None, BuildError, "got 2, 1"),
        ([5, 5], [0, 1], None, BuildError, "distinct"),
        ([-1, 5], [0, 1], None, BuildError, "not negative"),
        ([1, 2], [0, 2], None, BuildError, r"\[0, 2\)"),
        ([1, 2], [-1, 1], None, BuildError, r"\[-1, 1\]"),
        ([1, 2], [0, 1], "sign", OptionError, "value, logits"),
    ],
)
def test_invalid_input_is_refused(ids, labels, head, error, message):
    with pytest.raises(error, match=message):
        job(ids, labels, head=head)


def test_an_unknown_choice_names_the_known_ones():
    assert choice(Effort, "high", "effort") is Effort.HIGH
    with pytest.raises(OptionError, match="effort='more' is not one of quick, normal, high"):
        choice(Effort, "more", "effort")


def test_digits_cover_nearly_all_groups():
    """Groups of two ids span four gaps at most; common zeros of the ids are not digits."""
    ids = [64 * k for k in range(1000)]
    assert group_digits(ids, 2) == (3, 6)
    assert group_digits([k + (k > 996) * (1 << 40) for k in range(1000)], 2)[0] < 10
