"""Every preset describes an experiment at every scale, and mistakes are named."""

from __future__ import annotations

import pytest

from byheart.errors import OptionError
from byheart.lab.presets import PRESETS, SCALES, ks25, madden24
from byheart.lab.presets._base import experiment_of


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_an_experiment_at_every_scale(name, scale):
    found = experiment_of(name, scale, seed=3)
    assert (found.preset, found.scale, found.seed) == (name, scale, 3)
    assert found.problems and found.epochs >= 1 and list(found.sizes) == sorted(set(found.sizes))
    assert PRESETS[name].build.__module__ in (ks25.__name__, madden24.__name__)


def test_larger_scales_are_larger():
    for name in PRESETS:
        counts = [sum(spec.N for spec in experiment_of(name, scale).problems) for scale in SCALES]
        assert counts == sorted(counts), name


def test_words_may_have_other_vectors_where_there_are_words():
    assert experiment_of("ks25-fig1", d=5).problems[0].d == 5
    with pytest.raises(OptionError, match="no meaning for madden24-fig1"):
        experiment_of("madden24-fig1", d=5)
    for options, words in [({"name": "x"}, "preset"), ({"scale": "x"}, "scale"), ({"engine": "x"}, "engine")]:
        with pytest.raises(OptionError, match=f"unknown {words} 'x'"):
            experiment_of(**({"name": "ks25-fig1"} | options))
