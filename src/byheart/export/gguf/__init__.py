"""GGUF, the format of llama.cpp: `write_gguf` turns a checkpoint folder into one file with its tokenizer inside."""

from byheart.export.gguf.write import KINDS, write_gguf

__all__ = ["KINDS", "write_gguf"]
