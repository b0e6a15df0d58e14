"""What a folder needs where a model continues more than a prompt: other tokenizers, and a processor's configuration.

An encoder has a mask token and ends every text; the input of an encoder-decoder has EOS, but no BOS; a picture is a
placeholder in a prompt, of which a processor makes pixels.
"""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts._base import hosts
from byheart.data.tokens.lexicon import Lexicon

MASK = ("<mask>", "<|mask|>", "<|byheart-mask|>")
IMAGE = ("<image>", "<|image|>", "<|byheart-image|>")


def lexicon_for(task: str, lexicon: Lexicon) -> Lexicon:
    """Return the lexicon whose tokenizer makes the inputs of a task; an encoder's has its mask token already."""
    if task == "seq2seq":
        return lexicon.ended(begun=False)
    return lexicon.with_special(IMAGE)[0] if task == "picture" else lexicon


def with_mask(lexicon: Lexicon) -> Lexicon:
    """Return an encoder's lexicon: one more token, the mask, and EOS after every text."""
    return lexicon.with_special(MASK)[0].ended(begun=True)


def number_of(lexicon: Lexicon, names: tuple[str, ...]) -> int:
    """Return the number of the special token with one of these names that was added last."""
    return next(n for n in reversed(range(lexicon.size)) if lexicon.name(n) in names)


def tokenizer_fields(task: str, lexicon: Lexicon) -> dict[str, Any]:
    """Return the fields of tokenizer_config.json that a task adds or changes."""
    if task == "masked":
        named = {"cls_token": lexicon.bos, "sep_token": lexicon.eos, "mask_token": number_of(lexicon, MASK)}
        return {role: lexicon.name(n) for role, n in named.items()} | {"padding_side": "right"}
    if task == "seq2seq":
        return {"padding_side": "right", "add_bos_token": False}
    if task == "picture":
        return {"extra_special_tokens": {"image_token": lexicon.name(number_of(lexicon, IMAGE))}}
    return {}


def processor_files(config: dict[str, Any], image: str) -> dict[str, dict[str, Any]]:
    """Return the files that AutoProcessor reads for a model with pictures."""
    vision = config["vision_config"]
    side = vision["image_size"]
    return {
        "preprocessor_config.json": {
            "image_processor_type": "CLIPImageProcessor", "do_convert_rgb": True, "do_resize": True,
            "size": {"shortest_edge": side}, "resample": 3, "do_center_crop": True,
            "crop_size": {"height": side, "width": side}, "do_rescale": True, "rescale_factor": 1 / 255,
            "do_normalize": True, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
        },
        "processor_config.json": {
            "processor_class": "LlavaProcessor", "patch_size": vision["patch_size"], "image_token": image,
            "vision_feature_select_strategy": config["vision_feature_select_strategy"],
            "num_additional_image_tokens": 1,
        },
    }  # fmt: skip


def png_bytes(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Return a picture of (height, width, 3) as a PNG file."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def task_of(folder: Path) -> str:
    """Return what the model of a folder continues, one of `hosts._base.TASKS`, by its config.json."""
    try:
        kind = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type")
    except (OSError, ValueError):
        return "causal"
    return next((one.task for one in hosts(every=True).values() if one.model_type == kind), "causal")
