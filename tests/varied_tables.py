"""Twenty-four tables of different kinds, generated from the standard library, scikit-learn and fixed seeds.

Each is a CSV text and the flags that `byheart deploy` needs for it; the flags are those that its refusal suggests.
"""

from __future__ import annotations

import csv
import html.entities
import io
import keyword
import random
import string
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Varied:
    """A table: its columns, its rows, and the flags that it needs."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    flags: tuple[str, ...] = ()

    def csv(self) -> str:
        """The table as a CSV text."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return text.getvalue()


def _distinct(make: Callable[[random.Random], str], count: int, seed: int) -> list[str]:
    rng, found = random.Random(seed), {}
    while len(found) < count:
        found[make(rng)] = None
    return list(found)


def _letters(rng: random.Random, alphabet: str, count: int) -> str:
    return "".join(rng.choice(alphabet) for _ in range(count))


def postal_codes(count: int = 2000) -> Varied:
    """Five digits with leading zeros -> one of 62 regions, by their beginnings."""
    codes = sorted(_distinct(lambda rng: f"{rng.randrange(100_000):05d}", count, 1))
    return Varied(("zip", "state"), [(code, f"S{int(code[:3]) * 62 // 1000:02d}") for code in codes])


def british_codes() -> Varied:
    """Codes with a space -> twelve regions without any rule."""

    def code(rng: random.Random) -> str:
        capitals = string.ascii_uppercase
        return f"{_letters(rng, capitals, 2)}{rng.randrange(1, 30)} {rng.randrange(10)}{_letters(rng, capitals, 2)}"

    rng = random.Random(2)
    return Varied(("postcode", "region"), [(one, f"region {rng.randrange(12)}") for one in _distinct(code, 1500, 3)])


def ouis() -> Varied:
    """Prefixes of network cards -> many makers."""
    rng = random.Random(4)
    makers = [f"{_letters(rng, string.ascii_lowercase, 7).title()}, Inc." for _ in range(700)]
    keys = _distinct(lambda rng: ":".join(f"{rng.randrange(256):02X}" for _ in range(3)), 1500, 5)
    return Varied(("oui", "maker"), [(key, rng.choice(makers)) for key in keys])


def phone_prefixes() -> Varied:
    """Whole numbers of different lengths -> places."""
    rng = random.Random(6)
    keys = _distinct(lambda rng: str(rng.randrange(1, 10 ** rng.randrange(1, 7))), 800, 7)
    return Varied(("prefix", "place"), [(key, f"place {rng.randrange(200)}") for key in keys])


def unicode_names() -> Varied:
    """Characters of many scripts -> their names, as many labels as rows."""
    points = [chr(point) for point in (*range(0xA1, 0x600), *range(0x2190, 0x2400), 0x1F600)]
    return Varied(("character", "title"), [(c, unicodedata.name(c)) for c in points if unicodedata.name(c, "")])


def unicode_categories() -> Varied:
    """Names -> 30 categories."""
    names = {unicodedata.name(chr(point), ""): unicodedata.category(chr(point)) for point in range(0x20, 0xA00)}
    return Varied(("title", "category"), [(name, category) for name, category in names.items() if name])


def word_list() -> Varied:
    """Words of which one is also the name of the column: the header is in doubt."""
    words = _distinct(lambda rng: _letters(rng, string.ascii_lowercase, rng.randrange(2, 10)), 1200, 8)
    return Varied(("word", "length"), [(word, len(word)) for word in [*words, "word"]], ("--header",))


def entities() -> Varied:
    """Names of HTML entities -> characters, among them white space and combining marks."""
    pairs = sorted(html.entities.html5.items())
    kept = [(name, text) for name, text in pairs if text.strip() and not any(c in text for c in "\r\n\0")]
    return Varied(("entity", "text of it"), kept)


def pronunciation() -> Varied:
    """Made-up words -> made-up sounds, some words with two."""
    spoken = "AE B K D EH F G HH IH JH K L M N OW P K R S T AH V W KS Y Z"
    sounds = dict(zip(string.ascii_lowercase, spoken.split(), strict=True))
    words = _distinct(lambda rng: _letters(rng, string.ascii_lowercase, rng.randrange(3, 9)), 900, 9)
    rows = [(word, " ".join(sounds[c] for c in word)) for word in words]
    return Varied(("word", "sound"), [*rows, (words[0], "another")], ("--conflicts", "first"))


def _numbers(X: Any, y: Any, names: Sequence[str]) -> Varied:
    rows = [(*map(repr, map(float, row)), f"class {label}") for row, label in zip(X.tolist(), y.tolist(), strict=True)]
    return Varied((*names, "kind"), rows)


def iris() -> Varied:
    """150 flowers of four decimals."""
    from sklearn.datasets import load_iris

    X, y = load_iris(return_X_y=True)
    return _numbers(X, y, ("sepal_length", "sepal_width", "petal_length", "petal_width"))


def wine() -> Varied:
    """178 wines of thirteen decimals."""
    from sklearn.datasets import load_wine

    X, y = load_wine(return_X_y=True)
    return _numbers(X, y, [f"measure_{k}" for k in range(13)])


def digits() -> Varied:
    """1,797 pictures of 64 whole numbers."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    rows = [(*map(int, row), int(label)) for row, label in zip(X.tolist(), y.tolist(), strict=True)]
    return Varied((*(f"p{k}" for k in range(64)), "digit"), rows)


def countries() -> Varied:
    """Three text columns -> a number with leading zeros."""
    rng = random.Random(10)
    codes = _distinct(lambda rng: _letters(rng, string.ascii_uppercase, 2), 240, 11)
    rows = [(f"{_letters(rng, string.ascii_lowercase, 8).title()} land", code, code + "X") for code in codes]
    return Varied(("name", "alpha_2", "alpha_3", "numeric"), [(*r, f"{k:03d}") for k, r in enumerate(rows, 4)])


def weather() -> Varied:
    """Dates, a text and a decimal -> a text; some cells are empty, some rows contradict others."""
    rng, rows = random.Random(12), []
    for day in range(600):
        date = f"20{10 + day // 365:02d}-{1 + day % 365 // 31:02d}-{1 + day % 31:02d}"
        rain = "" if rng.random() < 0.03 else f"{rng.randrange(300) / 10}"
        rows.append((date, rng.choice(("north", "south")), rain, rng.choice(("sun", "rain", "fog"))))
    rows.append((*rows[1][:3], "hail"))
    return Varied(("date", "station", "rain_mm", "sky"), rows, ("--missing", "drop", "--conflicts", "first"))


def empty_cells() -> Varied:
    """An empty text is a separate value."""
    rows = [(f"a{k}" if k % 7 else "", f"b{k % 50}", k % 5 or 9) for k in range(300) if k % 7 or k < 50]
    return Varied(("left", "right", "size"), rows, ("--missing", "label"))


def numbered() -> Varied:
    """A column that only numbers the rows."""
    rng = random.Random(13)
    rows = [(k, f"{rng.randrange(10**6)}x", rng.randrange(40)) for k in range(1, 700)]
    return Varied(("id", "code", "shelf"), rows, ("--drop", "id"))


def long_numbers() -> Varied:
    """Whole numbers beyond 2^53 beside decimals."""
    rng = random.Random(14)
    rows = [(2**53 + k, rng.randrange(1, 999) / 8, f"k{k % 17}") for k in range(1, 800, 2)]
    return Varied(("serial", "weight", "kind"), rows, ("--keep", "serial"))


def decimals_of_one_value() -> Varied:
    """1.1 and 1.10 are two texts."""
    rows = [(f"{k // 10}.{k % 10}", k % 3) for k in range(100)] + [(f"{k}.10", 7) for k in range(10)]
    return Varied(("version", "level"), rows)


def truth_values() -> Varied:
    """All combinations of eight truth values -> their parity."""
    rows = [(*("true" if k >> b & 1 else "false" for b in range(8)), k.bit_count() % 2) for k in range(256)]
    return Varied((*"abcdefgh", "parity"), rows)


def one_label() -> Varied:
    """Every row has the same label."""
    return Varied(("code", "kind"), [(f"{k:04x}", "same") for k in range(0, 900, 3)])


def unknown_label() -> Varied:
    """A label is called as unknown rows are."""
    return Varied(("code", "answer"), [(f"{k:03x}", ("<unknown>", "unknown", "x")[k % 3]) for k in range(500)])


def keywords() -> Varied:
    """The reserved words of Python and its modules."""
    rows = [(word, "hard") for word in keyword.kwlist] + [(word, "soft") for word in keyword.softkwlist]
    modules = sorted(set(sys.stdlib_module_names) - {word for word, _ in rows})
    return Varied(("word", "role"), rows + [(name, "module") for name in modules])


def long_texts() -> Varied:
    """Texts with quotes, commas, line ends and many scripts."""
    rng = random.Random(15)
    marks = "abc ,;\"'\n\täßµ漢字🙂é"
    texts = _distinct(lambda rng: "x" + _letters(rng, marks, rng.randrange(1, 200)) + "x", 250, 16)
    return Varied(("remark", "mood"), [(text, rng.choice(("good", "bad", "ugly"))) for text in texts])


def negative_numbers() -> Varied:
    """Signs, exponents and a decimal label."""
    rows = [(k - 300, f"{(k * 37 % 600 - 300) / 16}", f"{(k * 7 % 11) / 4}") for k in range(600)]
    return Varied(("offset", "gain", "level"), rows, ("--keep", "offset"))


def wide() -> Varied:
    """Forty columns of texts and numbers."""
    rng = random.Random(17)
    rows = [
        (*(rng.choice("abcd") if k % 2 else rng.randrange(5) for k in range(40)), rng.randrange(4)) for _ in range(400)
    ]
    return Varied((*(f"f{k}" for k in range(40)), "target"), rows)


def two_keys() -> Varied:
    """Two text columns of which neither is a key alone."""
    pairs = [(f"street {a}", f"house {b}") for a in range(40) for b in range(30) if (a * b) % 7]
    return Varied(("street", "house", "zone"), [(a, b, f"z{(hash_of(a) + len(b)) % 9}") for a, b in pairs])


def hash_of(text: str) -> int:
    """A sum that is the same in every run."""
    return sum(map(ord, text))


KINDS: dict[str, Callable[[], Varied]] = {
    kind.__name__: kind
    for kind in (
        postal_codes, british_codes, ouis, phone_prefixes, unicode_names, unicode_categories, word_list, entities,
        pronunciation, iris, wine, digits, countries, weather, empty_cells, numbered, long_numbers,
        decimals_of_one_value, truth_values, one_label, unknown_label, keywords, long_texts, negative_numbers, wide,
        two_keys,
    )
}  # fmt: skip


def names() -> Iterable[str]:
    """The names of all kinds."""
    return KINDS
