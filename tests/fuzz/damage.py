"""Ways to damage a file, drawn by hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

WORDS = [b"9" * 30, b"1e999", b"NaN", b"\xed\xa0\x80"]
INTERESTING = [b"\x00", b"\xff", b"\n", b'"', b"[", b"{", b"}", b",", b"-", *WORDS]


@st.composite
def damaged(draw: st.DrawFn, originals: list[bytes]) -> bytes:
    """One of the originals with up to four wounds: bytes changed, cut out, put in, doubled, or the end torn off."""
    data = draw(st.sampled_from(originals))
    for _ in range(draw(st.integers(1, 4))):
        if not data:
            break
        place = draw(st.integers(0, len(data) - 1))
        kind = draw(st.sampled_from(["flip", "cut", "insert", "double", "tear", "swap"]))
        length = draw(st.integers(1, min(40, len(data))))
        if kind == "flip":
            data = data[:place] + bytes([data[place] ^ (1 << draw(st.integers(0, 7)))]) + data[place + 1 :]
        elif kind == "cut":
            data = data[:place] + data[place + length :]
        elif kind == "insert":
            part = draw(st.sampled_from(INTERESTING) | st.binary(min_size=1, max_size=8))
            data = data[:place] + part + data[place:]
        elif kind == "double":
            data = data[:place] + data[place : place + length] * 2 + data[place + length :]
        elif kind == "tear":
            data = data[:place]
        else:
            other = draw(st.integers(0, len(data) - 1))
            swapped = bytearray(data)
            swapped[place], swapped[other] = swapped[other], swapped[place]
            data = bytes(swapped)
    return data
