"""Rounding to the types of checkpoints equals PyTorch's, and the bytes are PyTorch's own."""

import numpy as np
import pytest
import torch

from byheart.checkpoints.dtypes import DTYPES, rounded, tensor_bytes

# ties to even in both directions, subnormals, the largest finite float16, zeros of both signs
VALUES = np.array([1.0, 1.00390625, 1.01171875, 2.0**-24, 2.0**-25 * 3, 65504.0, -65519.0, 0.0, -0.0, 1 / 3])


@pytest.mark.parametrize("dtype", DTYPES)
def test_rounding_and_bytes_are_those_of_torch(dtype):
    expected = torch.tensor(VALUES, dtype=torch.float32).to(getattr(torch, dtype))
    values = VALUES.astype(np.float32).astype(np.float64)
    assert rounded(values, dtype).tolist() == expected.double().tolist()
    assert tensor_bytes(values, dtype) == expected.view(torch.uint8).numpy().tobytes()
