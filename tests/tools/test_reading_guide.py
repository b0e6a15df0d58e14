"""The reading guide: every step is registered, its function is short, and the page shows the function as it is."""

import re

import pytest

from byheart.paper import Entry, Ref
from tools import reading_guide
from tools.pages import collect


@pytest.mark.parametrize("step", reading_guide.STEPS, ids=lambda step: step.label)
def test_functions_can_be_read_alone(step):
    entry = reading_guide.entry_of(step, collect())
    source = reading_guide.source_of(step.code)
    assert source.startswith("def ") and '"""' not in source and len(source.splitlines()) <= 40
    pages = reading_guide.render(collect())
    assert [f"```py\n{source}\n```" in page for page in pages.values()].count(True) == 1
    assert entry.test.startswith("tests/")


def test_pages_are_short_and_in_order():
    pages = reading_guide.render(collect())
    assert all(len(page.split()) <= 1500 for page in pages.values())
    numbers = [int(number) for page in pages.values() for number in re.findall(r"(?m)^## (\d+)\.", page)]
    assert numbers == list(range(1, len(reading_guide.STEPS) + 1))


def test_a_step_that_is_not_registered_is_an_error():
    other = Entry(Ref("KS25", "Lemma C.2"), "says something", "byheart.other", "project", "tests/x.py")
    with pytest.raises(LookupError, match=r"not registered for Lemma C.2"):
        reading_guide.render([other])


def test_the_order_is_that_of_the_proof():
    labels = [step.label for step in reading_guide.STEPS]
    assert labels.index("Lemma B.1") < labels.index("Lemma B.2") < labels.index("eq. (52)") < labels.index("Lemma C.1")
    assert labels[-1] == "eq. (61)" and len(set(labels)) == len(labels)
