"""The file of a decoder: three lines of text, then the weights as raw little-endian float64.

    byheart decoder 1                      format and version
    <sha256 of all that follows, in hex>
    {"vocabulary": [...], "tensors": [...], ...}     one line of JSON
    <the tensors' entries, one tensor after the other in the order of "tensors">

Reading runs no code from the file; a changed byte anywhere is noticed.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from byheart.certify.certificate import Verdict
from byheart.certify.next_token import DecoderCertificate
from byheart.compile.documents import DecoderMemory
from byheart.data.tokens.tokenizer import Tokenizer
from byheart.data.values import from_json, to_json
from byheart.errors import ByheartError, FileFormatError
from byheart.files import write_atomically
from byheart.ir.activation import Activation
from byheart.ir.decoder import AttentionHead, Average, Decoder, Reader, SelfAttention

MAGIC = b"byheart decoder 1\n"
LARGEST = 1 << 33  # bytes

Floats = npt.NDArray[np.float64]


def is_decoder_file(path: str | Path) -> bool:
    try:
        with Path(path).open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def save_decoder(memory: DecoderMemory, path: str | Path) -> None:
    """Writes the file whole or not at all."""
    decoder = memory.decoder
    header = {
        "vocabulary": [to_json(token) for token in decoder.vocabulary],
        "tokens": memory.tokenizer.kind,
        "activation": decoder.activation.value,
        "skip": decoder.reader.skip,
        "mixer": decoder.reader.kind,
        "tensors": [list(matrix.shape) for matrix in decoder.matrices],
        "certificate": memory.certificate.as_dict(),
        "numbers": memory.numbers,
        "seed": memory.seed,
        "cross_entropy": memory.cross_entropy,
        "known": "".join(f"{number:016x}" for number in sorted(memory.known)),
    }
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii") + b"\n"
    body = text + b"".join(np.ascontiguousarray(matrix, dtype="<f8").tobytes() for matrix in decoder.matrices)
    write_atomically(Path(path), MAGIC + hashlib.sha256(body).hexdigest().encode("ascii") + b"\n" + body)


def load_decoder(path: str | Path) -> DecoderMemory:
    """The decoder in a file; a FileFormatError for a damaged or foreign file."""
    path = Path(path)
    try:
        if path.stat().st_size > LARGEST:
            raise FileFormatError(f"{path} is larger than any decoder ({LARGEST} bytes)")
        data = path.read_bytes()
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror}") from error
    if not data.startswith(MAGIC):
        raise FileFormatError(
            f"{path} is not a byheart decoder of this version (its first line is not {MAGIC.decode().strip()!r})"
        )
    digest, _, body = data[len(MAGIC) :].partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode("ascii") != digest:
        raise FileFormatError(f"{path} is damaged: the checksum does not match; build or copy it again")
    text, _, raw = body.partition(b"\n")
    try:
        return _memory(json.loads(text), raw)
    except (ByheartError, ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise FileFormatError(f"{path} is damaged: {error}") from error


def _memory(header: dict[str, Any], raw: bytes) -> DecoderMemory:
    tensors = _tensors(header["tensors"], raw)
    embedding, positions = tensors[:2]
    if header["mixer"] == "average":
        mixer: Average | SelfAttention = Average(positions)
        rest = tensors[2:]
    else:
        count = next(
            k for k in range(1, len(tensors)) if sum(t.shape[1] for t in tensors[5 : 3 + 3 * k : 3]) == len(tensors[2])
        )
        heads = tuple(AttentionHead(*tensors[3 + 3 * k : 6 + 3 * k]) for k in range(count))
        mixer = SelfAttention(positions, heads, tensors[2])
        rest = tensors[3 + 3 * count :]
    reader = Reader(embedding, mixer, bool(header["skip"]))
    vocabulary = tuple(from_json(token, "vocabulary") for token in header["vocabulary"])
    decoder = Decoder(vocabulary, reader, rest[0], rest[1], Activation.named(header["activation"]), tuple(rest[2:]))
    stored = header["certificate"]
    certificate = DecoderCertificate(**{**stored, "verdict": Verdict(stored["verdict"])})
    known = str(header.get("known", ""))
    return DecoderMemory(
        decoder,
        _tokenizer(header),
        certificate,
        dict(header["numbers"]),
        int(header["seed"]),
        float(header["cross_entropy"]),
        known=frozenset(int(known[k : k + 16], 16) for k in range(0, len(known), 16)),
    )


def _tokenizer(header: dict[str, Any]) -> Tokenizer:
    """Older files have the field `tokenizer`, in which `words` was what is called `wordpunct` everywhere now."""
    if "tokens" in header:
        return Tokenizer(header["tokens"])
    return Tokenizer({"words": "wordpunct"}.get(header["tokenizer"], header["tokenizer"]))


def _tensors(shapes: list[list[int]], raw: bytes) -> list[Floats]:
    sizes = [math.prod(shape) for shape in shapes]
    if any(size < 0 for size in sizes) or 8 * sum(sizes) != len(raw):
        raise FileFormatError(f"{len(raw)} bytes of weights do not fill the shapes {shapes}")
    flat = np.frombuffer(raw, dtype="<f8").astype(np.float64)
    edges = np.cumsum([0, *sizes])
    return [flat[a:b].reshape(shape) for a, b, shape in zip(edges[:-1], edges[1:], shapes, strict=True)]
