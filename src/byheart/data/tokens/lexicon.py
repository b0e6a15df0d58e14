"""A lexicon: the tokens of a language model with their numbers, as the tokenizer.json that every engine reads.

It has four special tokens (BOS, EOS, padding and an ordinary, visible *failure* token that is never part of a text)
and keeps every text whole: a tokenizer that does not give a text back is refused.

    >>> lexicon = Lexicon.of_texts(["to be"], "characters")
    >>> lexicon.encode("bet"), lexicon.decode([6, 7])
    ([5, 6, 8], 'eo')
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from byheart.data.tokens import pieces
from byheart.data.wording import quote
from byheart.errors import DataError, FileFormatError, MissingExtraError, OptionError

_BOS = ("<s>", "<|begin|>", "<|byheart-begin|>")
_EOS = ("</s>", "<|end|>", "<|byheart-end|>")
_PAD = ("<pad>", "<|pad|>", "<|byheart-pad|>")
_FAILURE = ("\N{REPLACEMENT CHARACTER}", "\N{DOUBLE QUESTION MARK}", "\N{BALLOT BOX WITH X}", "\N{NO ENTRY}")
_ALREADY = {
    "bos": ("<s>", "<bos>", "<|begin_of_text|>", "[BOS]", "<|startoftext|>", "<|endoftext|>"),
    "eos": ("</s>", "<eos>", "<|end_of_text|>", "[EOS]", "<|endoftext|>", "<|im_end|>"),
    "pad": ("<pad>", "[PAD]", "<|pad|>", "<|finetune_right_pad_id|>"),
}
_EVERY_CHARACTER = "[\\s\\S]"
_WORDS = " ?[^\\s]+|\\s"  # a word includes one space before it; every other blank is a token


@dataclass(frozen=True)
class Lexicon:
    """The tokens of a language model with their numbers.

    Attributes:
        kind: How texts are tokenized, as `--tokens` names it.
        model: The text of the whole tokenizer.json.
        bos: The number of the token that begins every text.
        eos: The number of the token that ends it.
        pad: The number of the token that fills batches.
        failure: The number of the token that answers unknown windows.
    """

    kind: str
    model: str
    bos: int
    eos: int
    pad: int
    failure: int

    @staticmethod
    def of_texts(texts: Sequence[str], tokens: str = "characters") -> Lexicon:
        """The lexicon for these texts: `characters`, `bytes`, `words`, `bpe:SIZE` (trained here), or a user's own.

        The user's own is a tokenizer.json, or a folder with a Hugging Face tokenizer.
        """
        kind, _, size = tokens.partition(":")
        if kind in ("characters", "auto"):
            bare = _characters(texts)
            kind = "characters"
        elif kind == "bytes":
            bare = _byte_level({c: i for i, c in enumerate(_alphabet().values())})
        elif kind == "words":
            bare = _word_level(sorted({w for text in texts for w in _split(_WORDS, text)}), _WORDS)
        elif kind in pieces.TRAINED:
            if not size.isdigit() or not 2 <= int(size) <= pieces.LARGEST:
                raise OptionError(f"tokens {tokens!r}: write {kind}:SIZE, for example bpe:400")
            bare = json.loads(pieces.train(kind, int(size), list(texts), common=True))
        else:
            return _given(tokens, texts)
        return _finished(kind, bare, texts)

    @cached_property
    def _tokenizer(self) -> Any:
        tokenizer = _library().Tokenizer.from_str(self.model)
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    @property
    def size(self) -> int:
        """One more than the largest number of a token."""
        return int(max(self._tokenizer.get_vocab().values())) + 1

    def name(self, number: int) -> str:
        return str(self._tokenizer.id_to_token(number))

    def encode(self, text: str) -> list[int]:
        """The numbers of a text's tokens, without BOS and EOS."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, numbers: Sequence[int]) -> str:
        """The text of tokens without special ones."""
        return str(self._tokenizer.decode(list(numbers), skip_special_tokens=True))

    def document(self, text: str) -> tuple[int, ...]:
        """BOS, the text's tokens, EOS; a DataError if the tokenizer does not give the text back."""
        numbers = self.encode(text)
        if not numbers:
            raise DataError("a document is empty; omit it")
        if self.decode(numbers) != text:
            where, found = _first_difference(text, self.decode(numbers))
            raise DataError(
                f"the tokenizer does not give the text back: at character {where} it has {found} instead of "
                f"{quote(text[where : where + 12])}; characters, bytes, words and bpe keep every text whole"
            )
        marks = {self.bos, self.eos, self.pad, self.failure} & set(numbers)
        if marks:
            raise DataError(f"the text contains the special token {quote(self.name(min(marks)))}; write it differently")
        return (self.bos, *numbers, self.eos)

    def with_pad(self, name: str) -> Lexicon:
        """Return the same lexicon with another name for the padding token; its number stays.

        Args:
            name: The new name, for example one that an architecture's own tokenizer class expects to find.

        Returns:
            The renamed lexicon, or this one where a token of that name exists already.

        Example:
            >>> Lexicon.of_texts(["to be"]).with_pad("<|endoftext|>").name(3)
            '<|endoftext|>'
        """
        if self._tokenizer.token_to_id(name) is not None:
            return self
        whole, old = json.loads(self.model), self.name(self.pad)
        vocabulary = whole["model"]["vocab"]
        if isinstance(vocabulary, dict):
            whole["model"]["vocab"] = {name if token == old else token: k for token, k in vocabulary.items()}
        for entry in whole["added_tokens"]:
            if entry["content"] == old:
                entry["content"] = name
        return replace(self, model=str(_library().Tokenizer.from_str(json.dumps(whole)).to_str(pretty=False)))

    def with_special(self, choices: Sequence[str]) -> tuple[Lexicon, int]:
        """Return the lexicon with one more special token, and its number.

        Args:
            choices: Names; the first that is not a token yet is taken.

        Example:
            >>> lexicon, mask = Lexicon.of_texts(["to be"]).with_special(["<mask>"])
            >>> lexicon.name(mask), lexicon.size - 1 == mask
            ('<mask>', True)
        """
        known, whole, number = self._tokenizer.get_vocab(), json.loads(self.model), self.size
        name = next((n for n in choices if n not in known), None)
        if name is None:
            raise DataError(f"the tokenizer has all of {', '.join(map(quote, choices))} already")
        if isinstance(whole["model"]["vocab"], dict):
            whole["model"]["vocab"][name] = number
        whole["added_tokens"].append(_added(number, name, special=True))
        return replace(self, model=str(_library().Tokenizer.from_str(json.dumps(whole)).to_str(pretty=False))), number

    def ended(self, begun: bool) -> Lexicon:
        """Return the lexicon of an encoder: EOS follows every text, and BOS precedes it if `begun`.

        The second text of a pair has the token type 1.

        Example:
            >>> lexicon = Lexicon.of_texts(["to be"]).ended(begun=False)
            >>> [lexicon.name(t) for t in lexicon._tokenizer.encode("be").ids]
            ['b', 'e', '</s>']
        """
        whole, names = json.loads(self.model), {n: self.name(n) for n in (self.bos, self.eos)}
        bos, eos = ({"SpecialToken": {"id": name, "type_id": 0}} for name in names.values())
        first, second = ({"Sequence": {"id": x, "type_id": k}} for k, x in enumerate("AB"))
        single = [*([bos] if begun else []), first, eos]
        whole["post_processor"] = {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, second, {"SpecialToken": {"id": names[self.eos], "type_id": 1}}],
            "special_tokens": {name: {"id": name, "ids": [n], "tokens": [name]} for n, name in names.items()},
        }
        return replace(self, model=str(_library().Tokenizer.from_str(json.dumps(whole)).to_str(pretty=False)))

    def rounded(self, multiple: int, texts: Sequence[str] = ()) -> Lexicon:
        """Return the same lexicon with unused special tokens at its end, so that its size is a multiple of a number.

        Tensor parallelism splits the embedding into equal parts, and converters pad vocabularies to multiples of 8.

        Args:
            multiple: What the size becomes a multiple of.
            texts: Texts that must not contain the names of the new tokens.

        Returns:
            The larger lexicon, or this one where the size fits already.

        Example:
            >>> Lexicon.of_texts(["to be"]).rounded(8).size
            16
        """
        missing = -self.size % multiple
        if not missing:
            return self
        whole, start = json.loads(self.model), self.size
        stem = _unused(("<unused", "<|unused", "<|byheart-unused"), texts)
        names = {f"{stem}{k}{'|>' if '|' in stem else '>'}": start + k for k in range(missing)}
        if isinstance(whole["model"]["vocab"], dict):
            whole["model"]["vocab"] |= names
        whole["added_tokens"] += [_added(number, name, special=True) for name, number in names.items()]
        return replace(self, model=str(_library().Tokenizer.from_str(json.dumps(whole)).to_str(pretty=False)))

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("kind", "model", "bos", "eos", "pad", "failure")}

    @staticmethod
    def from_json(value: Any) -> Lexicon:
        """The lexicon of `to_json`; a FileFormatError for anything else."""
        names = ("kind", "model", "bos", "eos", "pad", "failure")
        if not isinstance(value, dict) or set(value) != set(names):
            raise FileFormatError("the lexicon in the file is damaged: its fields are not the expected ones")
        if not all(isinstance(value[n], str) for n in names[:2]) or not all(type(value[n]) is int for n in names[2:]):
            raise FileFormatError("the lexicon in the file is damaged: a field has the wrong type")
        pieces.check_stored(value["model"])
        return Lexicon(**value)


def _characters(texts: Sequence[str]) -> dict[str, Any]:
    """Letters of ASCII as a byte-level vocabulary without merges, which more engines read; others as words."""
    letters = sorted({c for text in texts for c in text})
    if all(ord(c) < 128 for c in letters):
        return _byte_level({_alphabet()[ord(c)]: i for i, c in enumerate(letters)})
    return _word_level(letters, _EVERY_CHARACTER)


def _alphabet() -> dict[int, str]:
    """The character of each byte in byte-level vocabularies: itself where that can be printed."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {b: chr(b) for b in shown} | {b: chr(256 + i) for i, b in enumerate(hidden)}


def _byte_level(vocabulary: dict[str, int]) -> dict[str, Any]:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model: dict[str, Any] = {
        "type": "BPE",
        "vocab": vocabulary,
        "merges": [],
        "unk_token": None,
        "byte_fallback": False,
    }
    return {"pre_tokenizer": byte_level, "decoder": dict(byte_level), "model": model}


def _word_level(words: Sequence[str], pattern: str) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    model = {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(words)}, "unk_token": ""}
    return {"pre_tokenizer": split, "decoder": {"type": "Fuse"}, "model": model}


def _split(pattern: str, text: str) -> list[str]:
    library = _library()
    cutter = library.pre_tokenizers.Split(library.Regex(pattern), "isolated")
    return [piece for piece, _ in cutter.pre_tokenize_str(text)]


def _finished(kind: str, bare: dict[str, Any], texts: Sequence[str]) -> Lexicon:
    """A bare model with the four special tokens before everything else (after it, where it was trained)."""
    names = {role: _unused(choices, texts) for role, choices in _roles()}
    vocabulary = bare["model"]["vocab"]
    if isinstance(vocabulary, dict):
        front = 0 if bare["model"].get("merges") else len(names)
        moved = {token: number + front for token, number in vocabulary.items()}
        start = 0 if front else max(moved.values(), default=-1) + 1
        specials = {name: start + k for k, name in enumerate(names.values())}
        bare["model"]["vocab"] = dict(sorted((moved | specials).items(), key=lambda item: item[1]))
    else:
        specials = {name: len(vocabulary) + k for k, name in enumerate(names.values())}
    if "unk_token" in bare["model"] and isinstance(bare["model"]["vocab"], dict):
        bare["model"]["unk_token"] = names["failure"]
    numbers = {role: specials[name] for role, name in names.items()}
    return _assembled(kind, bare, names, numbers, [])


def _roles() -> list[tuple[str, tuple[str, ...]]]:
    return [("failure", _FAILURE), ("bos", _BOS), ("eos", _EOS), ("pad", _PAD)]


def _unused(choices: Sequence[str], texts: Sequence[str]) -> str:
    for name in choices:
        if not any(name in text for text in texts):
            return name
    raise DataError(f"the texts contain all of {', '.join(map(quote, choices))}, so no special token is left")


def _assembled(
    kind: str, bare: dict[str, Any], names: dict[str, str], numbers: dict[str, int], added: list[dict[str, Any]]
) -> Lexicon:
    """The whole tokenizer.json: BOS before every text, the special tokens declared."""
    known = {entry["content"] for entry in added}
    for role, name in names.items():
        if name not in known:
            known.add(name)
            added.append(_added(numbers[role], name, special=role != "failure"))
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(added, key=lambda entry: entry["id"]),
        "normalizer": bare.get("normalizer"),
        "pre_tokenizer": bare.get("pre_tokenizer"),
        "post_processor": _template(names["bos"], numbers["bos"]),
        "decoder": bare.get("decoder"),
        "model": bare["model"],
    }
    try:
        model = str(_library().Tokenizer.from_str(json.dumps(whole)).to_str(pretty=False))
    except Exception as error:  # the library raises bare exceptions
        raise DataError(f"no tokenizer can be built from these tokens: {error}") from None
    return Lexicon(kind, model, numbers["bos"], numbers["eos"], numbers["pad"], numbers["failure"])


def _added(number: int, name: str, *, special: bool) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special}
    return {"id": number, "content": name, **flags}


def _template(bos: str, number: int) -> dict[str, Any]:
    first = {"SpecialToken": {"id": bos, "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [first, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [first, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {bos: {"id": bos, "ids": [number], "tokens": [bos]}},
    }


def _given(source: str, texts: Sequence[str]) -> Lexicon:
    """A user's tokenizer.json, or the folder that holds one; special tokens that it lacks are added at its end."""
    path = Path(source)
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        known = "characters, bytes, words, bpe:SIZE, a tokenizer.json, or a folder with a Hugging Face tokenizer"
        raise OptionError(f"tokens {source!r}: no such file; known are {known}")
    bare = json.loads(pieces.from_file(str(file)))
    stated = _stated(path) if path.is_dir() else {}
    library = _library()
    vocabulary = library.Tokenizer.from_str(json.dumps(bare)).get_vocab(with_added_tokens=True)
    names: dict[str, str] = {}
    numbers: dict[str, int] = {}
    following = max(vocabulary.values()) + 1
    # Tokens that an earlier lexicon added keep their roles: two fixtures then share one vocabulary.
    ordinary = [entry["content"] for entry in bare.get("added_tokens") or [] if not entry.get("special")]
    for role, choices in _roles():
        present = [stated[role]] if stated.get(role) in vocabulary else []
        if role == "failure":
            present = [c for c in choices if c in ordinary and not any(c in text for text in texts)]
        present += [name for name in (*_ALREADY.get(role, ()), *choices) if role != "failure" and name in vocabulary]
        if role == "pad" and "<|endoftext|>" in vocabulary and "<|endoftext|>" not in names.values():
            present.append("<|endoftext|>")
        names[role] = present[0] if present else _unused([c for c in choices if c not in vocabulary], texts)
        if names[role] in vocabulary:
            numbers[role] = vocabulary[names[role]]
        else:
            numbers[role], following = following, following + 1
    return _assembled("file", bare, names, numbers, list(bare.get("added_tokens") or []))


def _stated(folder: Path) -> dict[str, str]:
    """The special tokens that tokenizer_config.json names."""
    try:
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    found = {}
    for role in ("bos", "eos", "pad"):
        value = config.get(f"{role}_token") if isinstance(config, dict) else None
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str):
            found[role] = value
    return found


def _first_difference(text: str, other: str) -> tuple[int, str]:
    same = next((i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other)))
    return same, quote(other[same : same + 12]) if same < len(other) else "nothing"


def _library() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise MissingExtraError("a lexicon", "huggingface") from None
    return tokenizers
