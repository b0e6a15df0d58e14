"""Decoders with recurrent layers, read from their folder: Bamba as llama.cpp's `granitehybrid`.

A layer without key-value heads is recurrent. Half of every head rotates: the pairs of these dimensions become
neighbours, as in `llama`, and the others stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from byheart.checkpoints.proof.storage import Array
from byheart.checkpoints.proof.tensors import TensorFile, open_folder
from byheart.errors import ExportError, FileFormatError

HYBRIDS = ("bamba", "qwen3_next")
EXPANSION = 2  # llama.cpp asserts it


@dataclass(frozen=True, eq=False)
class Bamba:
    """A folder of Bamba: its config and its tensors."""

    config: Mapping[str, Any]
    file: TensorFile
    name = "granitehybrid"

    def describe(self, writer: Any) -> None:
        """Write the settings."""
        c, attending = self.config, self.config["attn_layer_indices"]
        writer.add_context_length(c["max_position_embeddings"])
        writer.add_embedding_length(c["hidden_size"])
        writer.add_block_count(c["num_hidden_layers"])
        writer.add_feed_forward_length(c["intermediate_size"])
        writer.add_head_count(c["num_attention_heads"])
        layers = range(c["num_hidden_layers"])
        writer.add_head_count_kv([c["num_key_value_heads"] if i in attending else 0 for i in layers])
        writer.add_vocab_size(c["vocab_size"])
        writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
        writer.add_rope_dimension_count(self._turned)
        writer.add_rope_freq_base(c["rope_parameters"]["rope_theta"])
        writer.add_rope_scaling_finetuned(True)  # the switch for rotations
        writer.add_ssm_conv_kernel(c["mamba_d_conv"])
        writer.add_ssm_inner_size(c["mamba_expand"] * c["hidden_size"])
        writer.add_ssm_state_size(c["mamba_d_state"])
        writer.add_ssm_time_step_rank(c["mamba_n_heads"])
        writer.add_ssm_group_count(c["mamba_n_groups"])

    @property
    def _turned(self) -> int:
        """Rotated dimensions of each head."""
        share = float(self.config["rope_parameters"].get("partial_rotary_factor", 1.0))
        return int(share * (self.config["hidden_size"] // self.config["num_attention_heads"]))

    def tensors(self) -> Iterator[tuple[str, Array]]:
        """Name and values of every tensor."""
        read = self.file.read
        yield "token_embd.weight", read("model.embed_tokens.weight")
        for i in range(self.config["num_hidden_layers"]):
            p = f"model.layers.{i}."
            yield f"blk.{i}.attn_norm.weight", read(p + "input_layernorm.weight")
            parts = self._attention(p) if i in self.config["attn_layer_indices"] else self._mamba(p + "mamba.")
            yield from ((f"blk.{i}.{name}", values) for name, values in parts)
            yield f"blk.{i}.ffn_norm.weight", read(p + "pre_ff_layernorm.weight")
            for part in ("gate", "up", "down"):
                yield f"blk.{i}.ffn_{part}.weight", read(f"{p}feed_forward.{part}_proj.weight")
        yield "output_norm.weight", read("model.final_layernorm.weight")
        if not self.config["tie_word_embeddings"]:
            yield "output.weight", read("lm_head.weight")

    def _attention(self, prefix: str) -> Iterator[tuple[str, Array]]:
        for part, name in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "output")):
            values = self.file.read(f"{prefix}self_attn.{part}_proj.weight")
            yield f"attn_{name}.weight", self._paired(values) if part in "qk" else values

    def _paired(self, rows: Array) -> Array:
        size = self.config["hidden_size"] // self.config["num_attention_heads"]
        order = np.r_[np.arange(self._turned).reshape(2, -1).T.reshape(-1), np.arange(self._turned, size)]
        return rows.reshape(-1, size, rows.shape[1])[:, order].reshape(rows.shape)

    def _mamba(self, prefix: str) -> Iterator[tuple[str, Array]]:
        read, groups = self.file.read, self.config["mamba_n_groups"]
        yield "ssm_in.weight", read(prefix + "in_proj.weight")
        yield "ssm_conv1d.weight", read(prefix + "conv1d.weight")[:, 0]
        yield "ssm_conv1d.bias", read(prefix + "conv1d.bias")
        yield "ssm_dt.bias", read(prefix + "dt_bias")
        yield "ssm_a", -np.exp(read(prefix + "A_log").astype(np.float64))[:, None]
        yield "ssm_d", read(prefix + "D")[:, None]
        yield "ssm_norm.weight", read(prefix + "norm.weight").reshape(groups, -1)
        yield "ssm_out.weight", read(prefix + "out_proj.weight")


def read_hybrid(folder: Path, config: Mapping[str, Any]) -> Bamba:
    """Return what is written of a folder with recurrent layers.

    Raises:
        ExportError: llama.cpp does not compute it; the message gives the reason.
        FileFormatError: The folder has no tensors.
    """
    if config["model_type"] == "qwen3_next":
        sizes = config["linear_key_head_dim"], config["linear_value_head_dim"]
        raise ExportError(
            f"llama.cpp's qwen3next has one size for keys and values of linear attention; this model has {sizes}"
        )
    if config["mamba_expand"] != EXPANSION or not config["mamba_conv_bias"] or config["mamba_proj_bias"]:
        raise ExportError(f"llama.cpp's granitehybrid has mixers {EXPANSION} times as wide as the stream; no biases")
    file = open_folder(folder)
    if file is None:
        raise FileFormatError(f"{folder} has no tensors")
    return Bamba(config, file)
