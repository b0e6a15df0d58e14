"""A text recited: the Zen of Python, which ships with it, recited by a Transformer, character by character.

`python examples/book.py [FOLDER [BOOK.txt]]` recites any text. Prints one screen and draws the weights that hold it.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import sys
from pathlib import Path

import byheart
from byheart.memory.text import page_count
from byheart.plots import style
from byheart.plots.memory import weights_figure


def zen() -> str:
    """Tim Peters's text, in the public domain."""
    with contextlib.redirect_stdout(io.StringIO()):
        import this

    return codecs.decode(this.s, "rot13")


def main(folder: Path, text: str) -> None:
    memory = byheart.memorize_text(text)
    reply = memory.recite()
    size = memory.size
    print(f"{len(text):,} characters on {page_count(memory):,} pages, {memory.certificate.verdict.value}")
    each = size.total_bits / len(text)
    print(f"{size.parameters:,} parameters, {size.total_bits:,} bits: {each:.1f} for each character")
    print(f"recited: {'every character is right' if reply == text else 'WRONG'}\n")
    for line in reply.splitlines()[:10]:
        print("   ", line)
    print(f"\npicture: {style.save(weights_figure(memory), folder / 'book.png')}")


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
    target.mkdir(parents=True, exist_ok=True)
    main(target, Path(sys.argv[2]).read_text(encoding="utf-8") if len(sys.argv) > 2 else zen())
