"""Sub-word tokenizers of the library `tokenizers`: trained offline on the data, or read from a user's tokenizer.json.

A model is kept as its JSON text. Reading one runs no code from it; the library is needed only where a text is
tokenized.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from byheart.data.read.sources import text as read_text
from byheart.data.wording import cut as shorten
from byheart.data.wording import one_line
from byheart.errors import ByheartError, DataError, FileFormatError, MissingExtraError, OptionError

TRAINED = ("bpe", "wordpiece", "unigram")
KINDS = (*TRAINED, "file")
LARGEST = 1_000_000  # pieces
LONGEST_MODEL = 1 << 26  # characters
_UNKNOWN = "<unk>"
_APART = "\0"  # separates words where unigram is trained; no piece contains it
_UNIGRAM_TEXT = 200_000  # characters that unigram is trained on: it keeps all of them in one lattice


def train(kind: str, size: int, texts: list[str], common: bool = False) -> str:
    """A model of at most about `size` pieces for these texts, the same one every time.

    `bpe` works on bytes and keeps every text whole; `wordpiece` and `unigram` drop or merge spaces. `common`: Qwen2's
    tokenizer in Transformers, which puts its own splitter before it, makes the same pieces of these texts.
    """
    if not texts:
        raise DataError(f"--tokens {kind}:{size} needs texts to be trained on, but the rows hold lists of tokens")
    library = _library()
    make = {"bpe": _common_bpe if common else _bpe, "wordpiece": _wordpiece, "unigram": _unigram}[kind]
    with _rust_errors(DataError, f"{kind}:{size} cannot be trained on these texts"):
        model = make(library, size, texts)
        return str(library.Tokenizer.from_str(json.dumps(model)).to_str())


def from_file(path: str) -> str:
    """The model in a user's tokenizer.json."""
    text = read_text(path)
    with _rust_errors(DataError, f"{path} is not a tokenizer.json"):
        return str(_library().Tokenizer.from_str(text).to_str())


def cut(model: str, text: str) -> list[Any]:
    """The pieces of a text, without the special tokens that a user's tokenizer may add around them."""
    with _rust_errors(DataError, f"the tokenizer cannot tokenize {shorten(text)!r}"):
        return list(_loaded(model).encode(text, add_special_tokens=False).tokens)


def join(model: str, tokens: list[str]) -> str:
    tokenizer = _loaded(model)
    ids = [tokenizer.token_to_id(token) for token in tokens]
    if any(number is None for number in ids):
        raise DataError(f"{shorten(tokens[ids.index(None)])!r} is not a piece of this memory's tokenizer")
    return str(tokenizer.decode(ids, skip_special_tokens=False))


def vocabulary_size(model: str) -> int:
    """How many pieces a stored model has, without the library."""
    vocabulary = json.loads(model)["model"].get("vocab") or ()
    return len(vocabulary)


def check_stored(model: str) -> None:
    """The text of a model from an untrusted file: a JSON object of bounded size with a vocabulary."""
    if len(model) > LONGEST_MODEL:
        raise FileFormatError(f"tokens.model has {len(model)} characters, more than any tokenizer ({LONGEST_MODEL})")
    try:
        stored = json.loads(model)
        whole = isinstance(stored["model"]["vocab"], dict | list)
    except (ValueError, TypeError, KeyError, RecursionError):
        whole = False
    if not whole:
        raise FileFormatError("tokens.model is not a tokenizer; the file is damaged or not a byheart file")


def _library() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise MissingExtraError("tokenizing texts into trained pieces", "data") from None
    return tokenizers


@lru_cache(maxsize=4)
def _loaded(model: str) -> Any:
    with _rust_errors(FileFormatError, "tokens.model is not a tokenizer that this version of tokenizers reads"):
        tokenizer = _library().Tokenizer.from_str(model)
        tokenizer.no_padding()
        tokenizer.no_truncation()
    return tokenizer


@contextmanager
def _rust_errors(kind: Callable[[str], Exception], what: str) -> Iterator[None]:
    """The library raises bare Exceptions, and panics that are not even Exceptions."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, MemoryError, ByheartError):
        raise
    except BaseException as error:
        raise kind(f"{what}: {one_line(error)}") from None


# Qwen2's splitter, which Transformers puts before every tokenizer of that architecture, whatever tokenizer.json has.
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _bpe(library: Any, size: int, texts: list[str]) -> Any:
    return _bpe_behind(library, size, texts, library.pre_tokenizers.ByteLevel(add_prefix_space=False))


def _common_bpe(library: Any, size: int, texts: list[str]) -> Any:
    """Pieces that cross no boundary of GPT-2's splitter nor of Qwen2's. Both then make the same tokens, except
    sometimes of white space; where they do not, Qwen2's own splitter is taken: other architectures follow
    tokenizer.json."""
    cutters = library.pre_tokenizers
    split, plain = cutters.Split(library.Regex(QWEN2), "isolated"), cutters.ByteLevel(add_prefix_space=False)
    qwen2 = cutters.Sequence([split, cutters.ByteLevel(add_prefix_space=False, use_regex=False)])
    model = _bpe_behind(library, size, texts, cutters.Sequence([split, plain]))
    one, two = (library.Tokenizer.from_str(json.dumps(model)) for _ in range(2))
    one.pre_tokenizer, two.pre_tokenizer = plain, qwen2
    if all(one.encode(text).ids == two.encode(text).ids for text in texts):
        return json.loads(one.to_str())
    return _bpe_behind(library, size, texts, qwen2)


def _bpe_behind(library: Any, size: int, texts: list[str], cutter: Any) -> Any:
    alphabet = sorted(library.pre_tokenizers.ByteLevel.alphabet())
    if size < len(alphabet):
        raise OptionError(f"bpe:{size} is too small: the {len(alphabet)} bytes alone are pieces")
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = cutter, library.decoders.ByteLevel()
    # All bytes belong to the alphabet: a model without them would silently drop characters that it has never seen.
    trainer = library.trainers.BpeTrainer(vocab_size=size, show_progress=False, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(texts, trainer)
    return json.loads(tokenizer.to_str())


def _wordpiece(library: Any, size: int, texts: list[str]) -> Any:
    # The library's own limit of 100 characters per word would make all longer words the same unknown token.
    tokenizer = library.Tokenizer(library.models.WordPiece(unk_token=_UNKNOWN, max_input_chars_per_word=1 << 20))
    tokenizer.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = library.decoders.WordPiece(cleanup=False)
    # Numbers of pieces decide ties. The library gives them out in the order of a randomised table, unless the pieces
    # are declared as special tokens before; afterwards they are special no more.
    inner = {c for text in texts for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text) for c in word[1:]}
    declared = [_UNKNOWN, *sorted(f"##{c}" for c in inner)]
    trainer = library.trainers.WordPieceTrainer(vocab_size=size, show_progress=False, special_tokens=declared)
    tokenizer.train_from_iterator(texts, trainer)
    model = json.loads(tokenizer.to_str())
    model["added_tokens"] = []
    model["model"]["vocab"] = {piece: number for number, piece in enumerate(sorted(model["model"]["vocab"]))}
    return model


def _unigram(library: Any, size: int, texts: list[str]) -> Any:
    tokenizer = library.Tokenizer(library.models.Unigram())
    tokenizer.decoder = library.decoders.Metaspace()
    trainer = library.trainers.UnigramTrainer(
        vocab_size=size, show_progress=False, special_tokens=[_UNKNOWN], unk_token=_UNKNOWN
    )
    cutter = library.pre_tokenizers.Metaspace()
    # The library adds up in the order of a randomised table of sentences: give it one, in which words are separated.
    words = (word for text in texts for word, _ in cutter.pre_tokenize_str(text.replace(_APART, " ")))
    tokenizer.train_from_iterator([_APART.join(_first_characters(words, _UNIGRAM_TEXT))], trainer)
    model = json.loads(tokenizer.to_str())
    found = {piece: score for piece, score in model["model"]["vocab"] if piece not in (_APART, _UNKNOWN)}
    ordered = sorted((-score, piece) for piece, score in _without_ladder(found).items())
    model["model"]["vocab"] = [[_UNKNOWN, 0.0], *([piece, -score] for score, piece in ordered)]
    model["added_tokens"] = []
    model["pre_tokenizer"] = json.loads(cutter.__getstate__())
    return model


def _without_ladder(scores: dict[str, float]) -> dict[str, float]:
    """Characters that training dropped come back with the least score plus 0.0001, 0.0002, … in random order.

    They are made equal here.
    """
    least, singles = min(scores.values(), default=0.0), sum(len(piece) == 1 for piece in scores)

    def on_a_step(piece: str, score: float) -> bool:
        steps = (score - least) / 0.0001
        return len(piece) == 1 and steps < singles + 1 and abs(steps - round(steps)) < 1e-3

    return {piece: least if on_a_step(piece, score) else score for piece, score in scores.items()}


def _first_characters(words: Iterable[str], count: int) -> Iterator[str]:
    for word in words:
        count -= len(word)
        if count < 0:
            return
        yield word
