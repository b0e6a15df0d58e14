"""The tokenizer inside GGUF.

llama.cpp's byte-level BPE needs tokens, merges, kinds, and which pre-tokenizer splits alike. Two kinds of
tokenizer.json fit: byte-level BPE as it is, and one token per character. The latter becomes a BPE whose merges join the
bytes of each character, left to right; UTF-8 marks where a character begins, so no merge crosses a border.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from byheart.data.tokens.pieces import QWEN2
from byheart.errors import ExportError, FileFormatError, MissingExtraError

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5  # llama.cpp's kinds of tokens

# How Llama 3 splits text into pieces before the merges; every reader of GGUF supports it under the name llama-bpe.
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class Vocabulary:
    """The tokenizer as GGUF stores it."""

    tokens: tuple[str, ...]
    kinds: tuple[int, ...]
    merges: tuple[str, ...]
    pre: str  # llama.cpp's name for the way text is split before the merges
    special: Mapping[str, int]  # "bos", "eos", "unk", "pad" -> id
    adds_bos: bool


def byte_letters() -> dict[int, str]:
    """The printable letter that byte-level BPE writes for each byte (GPT-2's table).

    >>> byte_letters()[ord("A")], byte_letters()[ord(" ")]
    ('A', 'Ġ')
    """
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    letters = {b: chr(b) for b in plain}
    for extra, b in enumerate(sorted(set(range(256)) - set(plain))):
        letters[b] = chr(256 + extra)
    return letters


def read_vocabulary(folder: Path, config: Mapping[str, Any], texts: Sequence[str] = ()) -> Vocabulary:
    """The vocabulary of a checkpoint folder. `texts` decide whether `llama-bpe` splits them alike."""
    path = folder / "tokenizer.json"
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
        model, added = described["model"], described.get("added_tokens") or []
        vocab = dict(model["vocab"]) if isinstance(model["vocab"], dict) else {}
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror}; GGUF needs a tokenizer inside") from error
    except (ValueError, KeyError, TypeError) as error:
        raise FileFormatError(f"{path} is not a tokenizer: {error}") from error
    special = {entry["id"]: entry["content"] for entry in added}
    control = {entry["id"] for entry in added if entry.get("special")}
    vocab |= {content: number for number, content in special.items()}
    size = int(config["vocab_size"])
    if len(set(vocab.values())) != len(vocab) or max(vocab.values()) >= size:
        raise FileFormatError(f"{path} numbers its tokens wrongly for a vocabulary of {size}")
    if model["type"] == "BPE" and _is_byte_level(described):
        merges = tuple(m if isinstance(m, str) else " ".join(m) for m in model["merges"])
        letters, pre = vocab, _pre_tokenizer(path, vocab, merges, texts)
    elif all(len(token) == 1 for token, number in vocab.items() if number not in special):
        letters, merges = _characters(vocab, special)
        pre = "llama-bpe"
    else:
        raise ExportError(
            f"{path} is a {model['type']} tokenizer; GGUF holds byte-level BPE or one token per character. "
            "Memorize the text with one of these"
        )
    names = {number: token for token, number in letters.items()}
    tokens = tuple(names.get(i, f"[PAD{i}]") for i in range(size))
    kinds = tuple(
        CONTROL if i in control else USER_DEFINED if i in special else NORMAL if i in names else UNUSED
        for i in range(size)
    )
    known = {"bos": config.get("bos_token_id"), "eos": config.get("eos_token_id"), "pad": config.get("pad_token_id")}
    known["unk"] = vocab.get(str(model.get("unk_token")))
    ids = {name: (number[0] if isinstance(number, list) else number) for name, number in known.items()}
    # llama.cpp refuses an empty list of merges: this one joins the bytes 0 and 1, which no text has side by side.
    return Vocabulary(tokens, kinds, merges or ("Ā ā",), pre, {n: i for n, i in ids.items() if i is not None},
                      _adds(described, special.get(ids["bos"])))  # fmt: skip


def _is_byte_level(described: Mapping[str, Any]) -> bool:
    return "ByteLevel" in json.dumps(described.get("pre_tokenizer"))


def _adds(described: Mapping[str, Any], bos: str | None) -> bool:
    """Whether the tokenizer itself puts the beginning-of-sequence token in front."""
    template = (described.get("post_processor") or {}).get("single") or []
    return bool(template) and template[0].get("SpecialToken", {}).get("id") == bos


def _characters(vocab: Mapping[str, int], special: Mapping[int, str]) -> tuple[dict[str, int], tuple[str, ...]]:
    """Characters as byte-level tokens, and the merges that put them together."""
    table = byte_letters()
    tokens: dict[str, int] = {}
    merges: dict[str, None] = {}
    for token, number in vocab.items():
        if number in special:
            tokens[token] = number
            continue
        letters = [table[b] for b in token.encode("utf-8")]
        tokens["".join(letters)] = number
        for k in range(1, len(letters)):
            merges["".join(letters[:k]) + " " + letters[k]] = None
    return tokens, tuple(merges)


def _pre_tokenizer(path: Path, vocab: Mapping[str, int], merges: Sequence[str], texts: Sequence[str]) -> str:
    """`llama-bpe` where it makes the same tokens of the texts as the tokenizer itself, else `gpt-2` or `qwen2`."""
    try:
        from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    except ImportError:
        raise MissingExtraError("a tokenizer inside GGUF", "data") from None
    own = Tokenizer.from_file(str(path))
    pairs = [(first, second) for first, _, second in (m.partition(" ") for m in merges)]

    def other(ignore_merges: bool, *steps: Any) -> Any:
        copy = Tokenizer(models.BPE(dict(vocab), pairs, ignore_merges=ignore_merges))
        copy.pre_tokenizer = pre_tokenizers.Sequence(list(steps))
        return copy

    level = pre_tokenizers.ByteLevel
    candidates = {
        "llama-bpe": other(True, pre_tokenizers.Split(Regex(LLAMA_3), "isolated"),
                           level(add_prefix_space=False, use_regex=False)),
        "gpt-2": other(False, level(add_prefix_space=False, use_regex=True)),
        "qwen2": other(False, pre_tokenizers.Split(Regex(QWEN2), "isolated"),
                       level(add_prefix_space=False, use_regex=False)),
    }  # fmt: skip
    for name, candidate in candidates.items():
        if texts and all(own.encode(t, add_special_tokens=False).ids == candidate.encode(t).ids for t in texts):
            return name
    if texts:
        raise ExportError(f"{path} splits the memorized text unlike llama.cpp (llama-bpe, gpt-2, qwen2)")
    return "gpt-2"


def add_vocabulary(writer: Any, vocabulary: Vocabulary) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(vocabulary.pre)
    writer.add_token_list(list(vocabulary.tokens))
    writer.add_token_types(list(vocabulary.kinds))
    writer.add_token_merges(list(vocabulary.merges))
    writer.add_add_bos_token(vocabulary.adds_bos)
    writer.add_add_eos_token(False)
    for name, number in vocabulary.special.items():
        getattr(writer, f"add_{name}_token_id")(number)
