"""A decoder checkpoint as one ONNX file with a key-value cache: `write_onnx_decoder`."""

from byheart.export.onnx_decoder.write import build_onnx_decoder, write_onnx_decoder

__all__ = ["build_onnx_decoder", "write_onnx_decoder"]
