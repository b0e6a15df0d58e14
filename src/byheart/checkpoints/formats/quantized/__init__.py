"""Quantized checkpoints in the formats that engines load; one file per format, registered where it is written.

A folder is quantized after it is written: codes and scales replace the matrices of its layers, and config.json gets a
quantization_config. The result is read back by the decoder of the proof, which imports nothing from here, and compared
with the original by ==.
"""

from __future__ import annotations

from byheart.checkpoints.formats.quantized import awq, fp8, gptq, int8, mxfp4, nf4
from byheart.checkpoints.formats.quantized._base import Format, format_of, formats
from byheart.checkpoints.formats.quantized.rewrite import Quantized, quantize_folder, shape_for

__all__ = [
    "Format",
    "Quantized",
    "awq",
    "format_of",
    "formats",
    "fp8",
    "gptq",
    "int8",
    "mxfp4",
    "nf4",
    "quantize_folder",
    "shape_for",
]
