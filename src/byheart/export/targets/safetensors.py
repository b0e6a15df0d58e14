"""safetensors: every weight as a named tensor, the architecture and the tables as metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.errors import MissingExtraError
from byheart.export.numpy_runtime import run_arrays
from byheart.export.request import Request
from byheart.export.targets._base import target
from byheart.export.targets.torch import config_of, state_of


@target("safetensors")
def write_safetensors(request: Request, path: Path) -> dict[str, Any]:
    """Tensors named as in the PyTorch module, checked with a NumPy reader of what the file will hold."""
    try:
        from safetensors.numpy import load, save
    except ImportError:
        raise MissingExtraError("export to safetensors", "safetensors") from None
    fit, asked = request.prove(), request.questions()
    config = config_of(request.network, request.encoder, request.dtype, fit.types)
    state = {name: np.ascontiguousarray(array) for name, array in state_of(request.network, request.dtype).items()}
    tensors = load(save(state))

    def run(tokens: npt.NDArray[np.generic], present: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        return run_arrays(config, tensors, tokens, present)

    about = request.metadata(fit, request.recheck(run, asked, "safetensors"))
    about["byheart.architecture"] = json.dumps(config)
    request.write(path, lambda part: part.write_bytes(save(state, metadata=about)))
    return {"file": str(path), "metadata": about}
