"""A native memory of windows: every window of bits has its label, exactly and in float32."""

from __future__ import annotations

import numpy as np
import pytest

from byheart.build.native.windows import build_windows
from byheart.exact.number import Values
from byheart.ir.evaluate import answers
from byheart.ir.floats import answers_in_floats
from byheart.ir.network import Inputs


@pytest.mark.parametrize(("rows", "bits", "classes"), [(3, 3, 3), (200, 24, 7), (300, 40, 1)])
def test_every_window_has_its_label(rows, bits, classes):
    rng = np.random.default_rng(rows)
    windows = np.unique(rng.integers(0, 2, (rows, bits)), axis=0)
    labels = rng.integers(0, classes, len(windows))
    network = build_windows(windows, labels, classes, seed=1)
    inputs = Inputs(Values(windows.astype(object)), np.arange(len(windows))[:, None])
    assert answers(network, inputs).tolist() == labels.tolist()
    assert answers_in_floats(network, inputs, "float32").tolist() == labels.tolist()
    again = build_windows(windows, labels, classes, seed=1)
    assert again == network and (rows < 200 or build_windows(windows, labels, classes, seed=2) != network)
