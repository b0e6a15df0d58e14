"""How messages quote tokens and rows: shortened, on one line.

>>> quote("a" * 100), quote([1, 2])
("'aaaaaaaaaaaaaaaaaaaaaaaa…aaaaaaa'", '[1, 2]')
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context
from fractions import Fraction

# Characters of a quoted value, and items of a quoted row.
_LIMIT = 34
_ITEMS = 8


def quote(value: object) -> str:
    """The repr of `value`, shortened in the middle; a huge int in hexadecimal, because Python refuses its decimal
    digits."""
    return cut(quote_fully(value))


def quote_fully(value: object) -> str:
    if type(value) is int and abs(value) >> 128:
        return hex(value)
    try:
        return repr(value)
    except ValueError:  # a container of huge ints
        return f"a {type(value).__name__}"


def written(value: object) -> str:
    """The str of a label or token; numbers that Python refuses to write in decimals are hexadecimal.

    >>> written("a"), written(7), written(16**5000)[:6]
    ('a', '7', '0x1000')
    """
    try:
        return str(value)
    except ValueError:
        return quote_fully(value)


def as_json_number(value: int) -> int | str:
    """The number, for JSON; in hexadecimal as a text where Python refuses its decimal digits.

    >>> as_json_number(7), as_json_number(-(16**5000))[:6]
    (7, '-0x100')
    """
    text = written(value)
    return text if "x" in text else value


def cut(text: str) -> str:
    return text if len(text) <= _LIMIT else f"{text[: _LIMIT - 9]}…{text[-8:]}"


def one_line(error: BaseException, limit: int = 160) -> str:
    """Another library's message, on one line and of limited length.

    >>> one_line(ValueError("bad\\n  header"))
    'bad header'
    """
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= limit else f"{text[:limit]}…"


def visible(text: str) -> str:
    """A line for the terminal: control characters in a file are shown, so that they cannot forge a line.

    >>> visible("Theorem 1\\nproved: all of it")
    'Theorem 1\\\\nproved: all of it'
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def quote_row(tokens: Sequence[object]) -> str:
    """A row of tokens: its first few, joined when they are characters."""
    shown = list(tokens[:_ITEMS])
    dots = " …" if len(tokens) > _ITEMS else ""
    if shown and all(isinstance(t, str) and len(t) == 1 for t in shown):
        return cut(repr("".join(map(str, tokens))))
    return "[" + ", ".join(map(quote, shown)) + dots + "]"


_WIDE = Context(prec=20, Emax=10**17, Emin=-(10**17))  # for numbers beyond what a float holds


def short(value: Fraction) -> str:
    """A number in few characters, however large or small it is.

    >>> short(Fraction(12)), short(Fraction(67, 8)), short(Fraction(3) ** 1000), short(Fraction(1, 2**2000))
    ('12', '8.375', '1.322e+477', '8.710e-603')
    """
    if value.denominator == 1 and abs(value) < 10**9:
        return str(value)
    if not value or -900 < value.numerator.bit_length() - value.denominator.bit_length() < 900:
        return f"{float(value):.4g}"
    return f"{_WIDE.divide(_WIDE.create_decimal(value.numerator), _WIDE.create_decimal(value.denominator)):.4g}"
