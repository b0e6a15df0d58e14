"""Quantized weights in the formats that engines load, decoded before anything is proved.

A format is one file with a function under `@scheme("<quant_method>")`. It reads quantization_config strictly and
returns how each matrix is decoded. The proof is about engines that decode weights, in any of the three types and in
any order of operations, and multiply by the result. So every decoded weight and every scale must be representable in
float32, bfloat16 and float16; a tensor for which that fails is refused by name. Engines that quantize activations, or
multiply by codes and scale the sums, are outside the error model.
"""

from __future__ import annotations

from byheart.checkpoints.proof.quantized import awq, bitsandbytes, compressed, finegrained, gptq, mxfp4
from byheart.checkpoints.proof.quantized._base import DECODING, SCHEMES, DecodedFile, QuantizationSettings, decoded

__all__ = [
    "DECODING",
    "SCHEMES",
    "DecodedFile",
    "QuantizationSettings",
    "awq",
    "bitsandbytes",
    "compressed",
    "decoded",
    "finegrained",
    "gptq",
    "mxfp4",
]
