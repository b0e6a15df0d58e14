#!/usr/bin/env python3
"""A second checker for byheart's memories, written from docs/file-format.md. It needs Python 3.11 and nothing else.

    python check.py names.byheart names.csv
    python check.py names.byheart rows.jsonl --sequence-column first --label-column country --json

It asks the file every row of DATA as a user would and compares each answer with DATA's own label, by type and value;
numbers are exact, or enclosed by rational intervals. `answers proved` says that every row of DATA gets its label, or
that the gap of a memory of distributions is as small as --gap asks. The recorded promise is compared with the sizes
counted here, but not derived again. Exit status: 0 answers proved; 1 refuted or undecided; 2 FILE or DATA is not
usable, or needs more than the budget; 70 a defect of this program.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import math
import re
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

FORMAT, PROVED = 2, "answers proved"
SAFE = 1 << 53  # integers below are plain JSON numbers
MOST_BITS, LONGEST = 1 << 22, 1 << 24  # of a weight; tokens of a row
SPARE_BITS, DOUBLINGS = 96, 4  # of interval arithmetic
PROBE = 16  # rows after which the work of all rows is estimated


class Refused(Exception):
    """FILE or DATA is not usable: exit status 2."""


class Undecided(Exception):
    """An interval holds more than one answer, or another library is needed to ask the row."""


class NoAnswer(Exception):
    """The file gives this row no answer."""


def need(condition: Any, message: str) -> None:
    if not condition:
        raise Refused(message)


class Budget:
    """Work is counted before it is done: 64 units for a product, one more for each pair of 64-bit words in it."""

    work, memory, done = 40_000_000_000, 1 << 30, 0  # some minutes; bytes

    def charge(self, products: int, words: int = 0) -> None:
        self.done += 64 * products + words
        self.expect(self.done)

    def expect(self, work: int) -> None:
        need(work <= self.work, f"about {work:,} units of work are needed, the limit is {self.work:,}: see --max-work")

    def hold(self, numbers: int, bits: int, what: str) -> None:
        size = numbers * (64 + bits // 8)  # bytes; a small Python integer and its place in a list take about 64
        need(size <= self.memory, f"{what} needs {size:,} bytes, the limit is {self.memory:,}: see --max-memory")


BUDGET = Budget()


# ------------------------------------------------------------------------------------------------ the format
# Objects and their fields, as the page has them. A form is the name of an object or of a function that reads a value;
# a|b is one of these texts, [form] a list, {form} an object with any names, form? may be null.

OBJECTS = """
file: byheart=int memory=memory sha256=text
memory: construction=text options={option} seed=int version=text notes=[text] network=network tokens=tokens
    classes=[label] encoder=encoder selection=selection claim=claim certificate=certificate
encoder: task=next-token|seq-to-seq|set|causal positions=bool length=positive symbols=[symbol]? dimension=positive
    padded=bool pad_vector=[coordinate]?
cutting: kind=text model=text? max_length=positive? pad=symbol type=auto|str|int|float|bool
selection: sequence_columns=[text] label_column=text? max_rows=rows? conflicts=error|first|majority|drop
    label_type=auto|str|int|float|bool missing=error|drop|label
claim: paper=KS25|M24|V22|P21|K23|KS24|MA24|B88|N65|byheart label=text bounds={int} formulas={text}
    assumptions=[text] properties=[text]
record: verdict=proved|refuted|undecided reason=text fingerprint=text arithmetic=text promise=text rows=int
    asked=int agree=int differ=int labels=int contexts=int left_out={int} promised={int} proofs={text} size=size
    witness=witness?
witness: row=int position=int? expected=int found=int
size: parameters=int nonzero=int max_bits=int total_bits=int width=int depth=int blocks=int attention_layers=int
    embedding_parameters=int
gap: entropy=double lower=double upper=double? allowed=double fraction=double tokens=double labels_proved=int
    labels_refuted=int
layers: layers=[layer] read=last|each|pooled readout=readout stages=[stage]
readout: decode=value|argmax classes=positive offset=small
affine: layer=text weight=matrix bias=[number]? relu=bool
threshold: layer=text weight=matrix bias=[number]
residual: layer=text weight1=matrix bias1=[number] weight2=matrix bias2=[number]
embedding: layer=text table=matrix strides=[count]
attention: layer=text kind=uniform|hardmax|softmax pattern=full|causal|star-in|star-out heads=[head]
head: value=matrix output=matrix key=matrix? query=matrix?
pool: layer=text width=positive
flatten: layer=text tokens=positive width=positive
global-token: layer=text stream=[number] place=start|end
decoder: decoder=inner inputs=[count] classes=[count] read=last|each known=text
block: embedding=vectors mixer=mixer skip=bool hidden=from_left bias=[double] activation=tanh|sigmoid|arctan|gelu
    output=[from_left]
averaging: kind=average| positions=[double]
attending: kind=attention| positions=vectors heads=[decoder_head] output=from_left
decoder_head: key=from_left query=from_left value=from_left
table: network=layers codes=[count] length=positive padded=bool coordinates=vectors columns=from_left
"""
FIELDS = {
    name: dict(field.split("=") for field in fields.split())
    for name, fields in (entry.split(":") for entry in re.split(r"\n(?=\S)", OBJECTS.strip()))
}
FIELDS["record of a gap"] = FIELDS["record"] | {"gap": "gap"}
SIZES = tuple(FIELDS["size"])


def parse(value: Any, form: str, where: str) -> Any:
    """The value as its form means it; refused if it has another form."""
    if form.endswith("?"):
        return None if value is None else parse(value, form[:-1], where)
    if form[0] == "[":
        need(isinstance(value, list), f"{where} must be a list")
        return [parse(item, form[1:-1], where) for item in value]
    if form[0] == "{":
        need(isinstance(value, dict), f"{where} must be an object")
        return {name: parse(item, form[1:-1], f"{where}.{name[:40]}") for name, item in value.items()}
    if "|" in form:
        need(isinstance(value, str) and value in form.strip("|").split("|"), f"{where}: {str(value)[:40]!r} is unknown")
        return value
    if form in READERS:
        return READERS[form](value, where)
    fields = FIELDS[form]
    exactly = isinstance(value, dict) and set(value) == set(fields)
    need(exactly, f"{where} must be an object with the fields {', '.join(fields)}, and no others")
    return {name: parse(value[name], part, f"{where}.{name}") for name, part in fields.items()}


def of_type(*kinds: type, least: float = -math.inf, most: float = math.inf) -> Callable[[Any, str], Any]:
    def read(value: Any, where: str) -> Any:
        fits = type(value) in kinds and (type(value) is not int or least <= value <= most)
        need(fits, f"{where}: {str(value)[:40]!r} is of another type, or outside its range")
        return value

    return read


Number = tuple[int, int]  # (mantissa, exponent): mantissa·2^exponent
HEXADECIMAL = re.compile(r"(-?0x[1-9a-f][0-9a-f]*)(?:p(-?[1-9][0-9]{0,6}))?")


def number(value: Any, where: str) -> Number:
    """A weight in its one written form: the mantissa of a text is odd, and the number is not a small integer."""
    if type(value) is int and abs(value) < SAFE:
        return value, 0
    match = HEXADECIMAL.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise Refused(f"{where}: {str(value)[:40]!r} is not a number of this format")
    need(4 * len(match[1].lstrip("-0x")) <= MOST_BITS, f"{where} has more than {MOST_BITS} bits")
    mantissa, exponent = int(match[1], 16), int(match[2] or 0)
    need(abs(exponent) <= MOST_BITS, f"{where} has a power of two beyond {MOST_BITS}")
    small = exponent >= 0 and mantissa.bit_length() + exponent <= 53
    need(mantissa & 1 and not small, f"{where}: {value[:40]!r} is not in its one written form")
    return mantissa, exponent


def double(value: Any, where: str) -> Number:
    mantissa, exponent = number(value, where)
    fits = mantissa.bit_length() <= 53 and exponent >= -1074 and mantissa.bit_length() + exponent <= 1024
    need(fits, f"{where}: {str(value)[:40]!r} is not a float64 number")
    return mantissa, exponent


TAGS: dict[str, tuple[Any, Any]] = {  # how the content is read and written
    "integer": (lambda written: int(written, 16), hex),
    "float": (float.fromhex, float.hex),
    "bytes": (bytes.fromhex, bytes.hex),
    "tuple": (lambda parts: tuple(label(part, "") for part in parts), None),
}


def label(value: Any, where: str) -> Any:
    """Texts, small integers, true, false and null as they are, anything else tagged."""
    if value is None or isinstance(value, str | bool) or (type(value) is int and abs(value) < SAFE):
        return value
    try:
        ((tag, content),) = value.items()
        read, write = TAGS[tag]
        need(type(content) is (str if write else list), "")
        found = read(content)
        need(not write or (write(found) == content and found == found), "")
        need(tag != "integer" or abs(found) >= SAFE, "")
        return found
    except (Refused, AttributeError, KeyError, ValueError, TypeError, OverflowError, RecursionError):
        raise Refused(f"{where}: {str(value)[:40]!r} is not a value of this format") from None


def symbol(value: Any, where: str) -> Any:
    found = label(value, where)
    need(not isinstance(found, tuple | bytes) and found not in (math.inf, -math.inf), f"{where} is not a token")
    return found


def rank(token: Any) -> tuple[Any, ...]:
    """Symbols are sorted by type and then by value; -0.0 comes before 0.0."""
    place = [type(None), bool, int, float, str].index(type(token))
    return place, 0 if token is None else token, math.copysign(1, token) if place == 3 else 0


def identity(value: Any) -> Any:
    """Equal for values of one type and value alone: 1, 1.0, True and "1" differ, and so do 0.0 and -0.0."""
    return (tuple, tuple(map(identity, value))) if isinstance(value, tuple) else (type(value), repr(value))


def coordinate(value: Any, where: str) -> Number:
    """A pair [mantissa, exponent] in lowest terms."""
    need(isinstance(value, list) and len(value) == 2, f"{where} must be a pair")
    mantissa, exponent = label({"integer": value[0]} if isinstance(value[0], str) else value[0], where), value[1]
    need(type(mantissa) is type(exponent) is int and -(1 << 16) <= exponent <= 0, f"{where} must be two integers")
    need(exponent == 0 or mantissa & 1, f"{where} is not in lowest terms")
    return mantissa, exponent


class Matrix:
    """z -> W z; the weights are integers over 2^shift."""

    def __init__(self, columns: int, rows: list[list[tuple[int, Number]]]) -> None:
        self.shape = self.height, self.columns = len(rows), columns
        self.numbers = [w for row in rows for _, w in row]
        shift = self.shift = max([0, *(-e for _, e in self.numbers)])
        sizes = [bits_of(w) + shift for w in self.numbers]
        BUDGET.hold(1, sum(sizes), "a matrix")
        self.longest, self.words = max(sizes, default=0), sum(1 + k // 64 for k in sizes)
        self.rows = [[(j, m << e + shift) for j, (m, e) in row] for row in rows]

    def __call__(self, z: Vec) -> Vec:
        words = 1 + max(x.bit_length() for end in (z.low, z.high, [z.den]) for x in end) // 64
        BUDGET.charge(len(self.numbers) + self.height + 64, self.words * words)
        BUDGET.hold(self.height, 64 * words + self.longest, "the output of a layer")
        low = self._end(z.low, z.high)
        return Vec(low, low if z.low is z.high else self._end(z.high, z.low), z.den << self.shift)

    def _end(self, a: list[int], b: list[int]) -> list[int]:
        """Positive weights take this end, negative ones the other."""
        return [sum([w * (a if w > 0 else b)[j] for j, w in row]) for row in self.rows]

    def row(self, k: int) -> Vec:
        found = [0] * self.columns
        for j, w in self.rows[k]:
            found[j] = w
        return Vec(found, found, 1 << self.shift)


def matrix(form: Callable[[Any, str], Number], turned: bool = False) -> Callable[[Any, str], Matrix]:
    """A matrix without its zeros; turned: one that a row is multiplied with from the left."""

    def read(value: Any, where: str) -> Matrix:
        fits = isinstance(value, dict) and set(value) == {"columns", "rows"} and isinstance(value["rows"], list)
        need(fits, f"{where} must be a matrix with columns and rows")
        columns, rows = parse(value["columns"], "width", where), []
        for row in value["rows"]:
            pairs = isinstance(row, list) and all(isinstance(cell, list) and len(cell) == 2 for cell in row)
            need(pairs and all(type(j) is int for j, _ in row), f"{where}: cells must be [column, number]")
            rows.append([(j, form(w, where)) for j, w in row])
            ascending = all(a < b for a, b in pairwise([-1, *(j for j, _ in row), columns]))
            need(ascending and all(w[0] for _, w in rows[-1]), f"{where}: columns ascend, zeros are not stored")
        if not turned:
            return Matrix(columns, rows)
        BUDGET.hold(columns, 0, where)
        found: list[list[tuple[int, Number]]] = [[] for _ in range(columns)]
        for k, row in enumerate(rows):
            for j, w in row:
                found[j].append((k, w))
        return Matrix(len(rows), found)

    return read


def variant(pick: Callable[[dict[str, Any]], Any]) -> Callable[[Any, str], Any]:
    """An object that has one of several forms."""

    def read(value: Any, where: str) -> Any:
        form = pick(value) if isinstance(value, dict) else None
        need(isinstance(form, str) and form in FIELDS, f"{where} is not an object, or of an unknown kind")
        return parse(value, form, where)

    return read


def stage(value: Any, where: str) -> Any:
    fits = isinstance(value, list) and [type(part) for part in value] == [str, int] and value[1] >= 0
    need(fits, f"{where} must be a name and a number of layers")
    return value


KINDS, PIECES = "auto|json|characters|bytes|words|wordpunct|uncased|integers", "bpe|wordpiece|unigram|file"
PLAIN = {"model": None, "max_length": None, "pad": None, "type": "auto"}  # of tokens that are a name alone


def tokens(value: Any, where: str) -> Any:
    if isinstance(value, str):
        return {"kind": parse(value, KINDS, where), **PLAIN}
    found = parse(value, "cutting", where)
    trained = parse(found["kind"], f"{KINDS}|{PIECES}", where) in PIECES.split("|")
    need((found["model"] is not None) == trained, f"{where}.model is for trained tokenizers alone")
    need(trained or found != {"kind": found["kind"]} | PLAIN, f"{where} must be a name")
    need(found["pad"] is None or found["max_length"] is not None, f"{where}.pad needs {where}.max_length")
    return found


READERS = {
    **{"text": of_type(str), "int": of_type(int), "bool": of_type(bool), "option": of_type(str, int, bool, type(None))},
    **{"count": of_type(int, least=0, most=SAFE - 1), "small": of_type(int, least=1 - SAFE, most=SAFE - 1)},
    **{"positive": of_type(int, least=1, most=LONGEST), "width": of_type(int, least=0, most=LONGEST)},
    **{"number": number, "double": double, "label": label, "symbol": symbol, "coordinate": coordinate, "stage": stage},
    **{"matrix": matrix(number), "vectors": matrix(double), "from_left": matrix(double, turned=True), "tokens": tokens},
    "rows": of_type(int, least=1, most=SAFE),
    "layer": variant(lambda value: value.get("layer")),
    "certificate": variant(lambda value: "record of a gap" if "gap" in value else "record"),
    "network": variant(lambda value: "decoder" if "decoder" in value else "layers"),
    "inner": variant(lambda value: "table" if "network" in value else "block"),
    "mixer": variant(lambda value: "averaging" if value.get("kind") == "average" else "attending"),
}


def parse_json(source: str, where: str, floats: Callable[[str], Any] | None = None) -> Any:
    """JSON without duplicate keys and without NaN; without fractions unless `floats` reads them."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        need(len(dict(pairs)) == len(pairs), f"{where}: a key stands twice in one object")
        return dict(pairs)

    def refuse(written: str) -> Any:
        raise Refused(f"{where}: the number {written[:40]} cannot stand here")

    try:
        return json.loads(source, object_pairs_hook=once, parse_float=floats or refuse, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise Refused(f"{where} is not JSON: {error}") from None


def read_bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise Refused(f"cannot read {path}: {error.strerror}") from None


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")


def read_memory(path: str) -> dict[str, Any]:
    """The memory in a file: text, version and checksum are right, and every field is one of the format."""
    data = read_bytes(path)
    need(data.isascii() and data.startswith(b'{"byheart":'), f"{path} is not a memory of byheart")
    document = parse_json(data.decode("ascii"), path)
    version, memory = document.get("byheart"), document.get("memory")
    need(type(version) is int and version == FORMAT, f"{path}: format version {version}; this checker reads {FORMAT}")
    digest = hashlib.sha256(canonical(memory)).hexdigest()
    need(document.get("sha256") == digest, f"{path}: the checksum does not match")
    need(canonical(document) == data, f"{path} is not in canonical form: it was edited or damaged")
    return parse(document, "file", path)["memory"]


# ------------------------------------------------------------------------------------------------ numbers
# Rational numbers are integers over a denominator; an irrational number is two of them that enclose it. `bits` says
# how finely enclosures are rounded, always outwards.

Ends = tuple[int, int]  # a number lies between them, divided by 2^bits


class Vec(NamedTuple):
    """Numbers between `low` and `high`, all over one denominator; both are one list where the numbers are exact."""

    low: list[int]
    high: list[int]
    den: int

    @staticmethod
    def exactly(numbers: Iterable[Number]) -> Vec:
        shift = max([0, *(-e for _, e in numbers)])
        found = [m << e + shift for m, e in numbers]
        return Vec(found, found, 1 << shift)

    def each(self, function: Callable[[int], int], den: int) -> Vec:
        """An increasing function of every numerator."""
        low = [function(x) for x in self.low]
        return Vec(low, low if self.low is self.high else [function(x) for x in self.high], den)

    def over(self, den: int) -> Vec:
        factor = den // self.den
        return self if factor == 1 else self.each(lambda x: x * factor, den)

    def tidy(self, bits: int) -> Vec:
        """Lowest terms where the numbers are exact; otherwise rounded outwards to multiples of 2^-bits."""
        if self.low is not self.high:
            ends = [(x << bits) // self.den for x in self.low], [-((-x << bits) // self.den) for x in self.high]
            return Vec(*ends, 1 << bits)
        if self.den == 1:
            return self
        ones = self.den
        for x in self.low:
            ones |= x
        common = (ones & -ones) * math.gcd(self.den // (self.den & -self.den), *self.low)  # no long divisions by 2
        return self if common == 1 else self.each(lambda x: x // common, self.den // common)


def alike(parts: list[Vec]) -> list[Vec]:
    """The same numbers over one denominator."""
    den = math.lcm(*(part.den for part in parts))
    return [part.over(den) for part in parts]


def combined(parts: list[Vec], fold: Callable[[list[list[int]]], list[int]]) -> Vec:
    parts = alike(parts)
    low = fold([part.low for part in parts])
    exact = all(part.low is part.high for part in parts)
    return Vec(low, low if exact else fold([part.high for part in parts]), parts[0].den)


def joined(parts: list[Vec]) -> Vec:
    return combined(parts, lambda ends: [x for end in ends for x in end])


def total(parts: list[Vec]) -> Vec:
    return combined(parts, lambda ends: [sum(xs) for xs in zip(*ends, strict=True)])


def inner_product(a: Vec, b: Vec) -> Vec:
    """One number."""
    four = [(w * y, w * z, x * y, x * z) for w, x, y, z in zip(a.low, a.high, b.low, b.high, strict=True)]
    low = [sum(map(min, four))]
    return Vec(low, low if a.low is a.high and b.low is b.high else [sum(map(max, four))], a.den * b.den)


def series(y: int, one: int, factor: Callable[[int], tuple[int, int]]) -> Ends:
    """Bounds of 2^one·(1 + f(1)Y + f(1)f(2)Y² + …) for f = p/q > 0 and a number Y from y to y + 1, over 2^one.

    All terms are positive: cut down they stay below, rounded up they stay above. Ratios of terms tend to fall below
    1/2 for good (f falls, or f < 1 and Y <= 1/2), and from then on what follows a term is less than the term.
    """
    low = high = a = b = 1 << one
    n = 0
    while True:
        n += 1
        p, q = factor(n)
        a, b = a * y * p // (q << one), -(-b * (y + 1) * p // (q << one))
        low, high = low + a, high + b
        if b <= 1 and 2 * p * y <= q << one:
            return low, high + b


@lru_cache(maxsize=1 << 14)
def exponential(numerator: int, den: int, bits: int) -> Ends:
    """e^-x for x = numerator/den >= 0: e^(x/2^k) for a small exponent, squared k times and inverted."""
    if numerator > bits * den:  # e^-x < 2^-bits
        return 0, 1
    halvings = (numerator // den).bit_length() + 1
    one = bits + 3 * halvings + 32
    low, high = series((numerator << one - halvings) // den, one, lambda n: (1, n))
    for _ in range(halvings):
        low, high = low * low >> one, -(-high * high >> one)
    return (1 << one + bits) // high, -(-(1 << one + bits) // low)


def logarithm(x: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    """log x = k log 2 + 2 artanh z for x = 2^k (1 + z)/(1 - z); artanh z / z = 1 + z²/3 + z⁴/5 + …"""

    def doubled_artanh(z: Fraction) -> list[Fraction]:
        square = (z * z).numerator << bits
        bounds = series(square // (z * z).denominator, bits, lambda n: (2 * n - 1, 2 * n + 1))
        return [2 * z * end / (1 << bits) for end in bounds]

    k = x.numerator.bit_length() - x.denominator.bit_length()
    m = x / Fraction(2) ** k
    rest, two = doubled_artanh((m - 1) / (m + 1)), doubled_artanh(Fraction(1, 3))
    ends = [part + k * one for part in rest for one in two]
    return min(ends), max(ends)


def sigmoid(numerator: int, den: int, bits: int) -> Ends:
    one, (a, b) = 1 << bits, exponential(abs(numerator), den, bits)
    low, high = (one << bits) // (one + b), -((-one << bits) // (one + a))
    return (low, high) if numerator >= 0 else (one - high, one - low)


def tanh(numerator: int, den: int, bits: int) -> Ends:
    low, high = sigmoid(2 * numerator, den, bits)
    return 2 * low - (1 << bits), 2 * high - (1 << bits)


def arctan(numerator: int, den: int, bits: int) -> Ends:
    """Euler's series: x/(1+x²)·(1 + 2/3·Y + 2·4/(3·5)·Y² + …) with Y = x²/(1+x²); beyond 1 it is π/2 - arctan 1/x."""
    x, whole = abs(numerator), numerator * numerator + den * den
    if x > den:
        (a, b), (low, high) = half_pi(bits), arctan(den, x, bits)
        low, high = a - high, b - low
    else:
        one = bits + 32
        bounds = series((x * x << one) // whole, one, lambda n: (2 * n, 2 * n + 1))
        low, high = bounds[0] * x * den // (whole << 32), -(-bounds[1] * x * den // (whole << 32))
    return (low, high) if numerator >= 0 else (-high, -low)


@cache
def half_pi(bits: int) -> Ends:
    low, high = arctan(1, 1, bits)
    return 2 * low, 2 * high


def gelu(numerator: int, den: int, bits: int) -> Ends:
    """x·Φ(x) with Φ(x) = 1/2 + e^(-x²/2)/√(2π)·(x + x³/3 + x⁵/15 + …) for x > 0, and Φ(-x) = 1 - Φ(x)."""
    x, one = abs(numerator), bits + (abs(numerator) // den).bit_length() + 32
    square = x * x // (den * den)
    if square > 2 * one:
        low, high = (1 << one) - 1, 1 << one  # 1 - Φ(x) < e^(-x²/2)
    else:
        fine = one + square  # for the exponential, because the series is about as large as that is small
        (a, b), half = exponential(x * x, 2 * den * den, fine), 1 << one - 1
        c, d = series((x * x << one) // (den * den), one, lambda n: (1, 2 * n + 1))
        root = [math.isqrt(4 * end << one) + k for k, end in enumerate(half_pi(one))]  # of 2π, times 2^one
        low = half + a * c * x // (den * root[1] << square)
        high = half - (-b * d * x // (den * root[0] << square))
    if numerator < 0:
        low, high = (1 << one) - high, (1 << one) - low
    ends = [numerator * low, numerator * high]
    return min(ends) // (den << one - bits), -(-max(ends) // (den << one - bits))


ACTIVATIONS = {"tanh": tanh, "sigmoid": sigmoid, "arctan": arctan, "gelu": gelu}


def activated(z: Vec, function: Callable[[int, int, int], Ends], bits: int) -> Vec:
    """An activation of every number: none of them changes more than twice as fast as its argument."""
    BUDGET.charge(len(z.low) * bits, len(z.low) * bits * bits // 64)
    low, high = [], []
    for x, y in zip(z.low, z.high, strict=True):
        a, b = function(x + y, 2 * z.den, bits)  # in the middle
        spread = -((x - y << bits) // z.den)
        low.append(a - spread)
        high.append(b + spread)
    return Vec(low, high, 1 << bits)


def shares(scores: Vec, bits: int) -> list[Ends]:
    """e^(score - largest score), for all scores."""
    BUDGET.charge(len(scores.low) * bits, len(scores.low) * bits * bits // 64)
    top, den = max(scores.high), scores.den
    pairs = zip(scores.low, scores.high, strict=True)
    return [(exponential(top - a, den, bits)[0], exponential(top - b, den, bits)[1]) for a, b in pairs]


def softmax_mean(V: list[Vec], scores: Vec, bits: int) -> Vec:
    """The mean of V, weighted by softmax of the scores."""
    V, weights = alike(V), shares(scores, bits)
    least, most = sum(a for a, _ in weights), sum(b for _, b in weights)
    if least == 0:
        raise Undecided("the intervals of softmax stay too wide")
    low, high = [], []
    for c in range(len(V[0].low)):
        a = sum(v.low[c] * share[v.low[c] < 0] for v, share in zip(V, weights, strict=True))
        b = sum(v.high[c] * share[v.high[c] >= 0] for v, share in zip(V, weights, strict=True))
        low.append((a << bits) // (V[0].den * (most if a >= 0 else least)))
        high.append(-((-b << bits) // (V[0].den * (least if b >= 0 else most))))
    return Vec(low, high, 1 << bits)


def the_largest(z: Vec) -> list[int]:
    """The places of the largest numbers."""
    best = max(z.low)
    found = [k for k, high in enumerate(z.high) if high >= best]
    if len(found) > 1 and any(z.low[k] != z.high[k] for k in found):
        raise Undecided("intervals do not decide which number is the largest")
    return found


def bits_of(value: Number) -> int:
    """Binary digits of |value|, whole and fractional part together."""
    mantissa, exponent = value
    return max(mantissa.bit_length() + exponent, 0) + max(-exponent, 0) if mantissa else 0


# ------------------------------------------------------------------------------------------------ the network
# A layer is the object of the file, with matrices that can be applied.

Layer = dict[str, Any]


def weights(stored: Any) -> tuple[int, list[Number]]:
    """How many entries all matrices and vectors in a part of the file have, and those that are not zero."""
    if isinstance(stored, Matrix):
        return stored.height * stored.columns, stored.numbers
    if isinstance(stored, tuple):
        return 1, [stored] if stored[0] else []
    parts = stored.values() if isinstance(stored, dict) else stored if isinstance(stored, list) else ()
    found = [weights(part) for part in parts]
    return sum(count for count, _ in found), [w for _, numbers in found for w in numbers]


def widths(layer: Layer) -> tuple[int, int, int]:
    """Numbers of a token in front of the layer and behind it, and KS25's max(m, sH, q). Refuses what does not fit."""
    match layer["layer"]:
        case "affine" | "threshold":
            height, width = layer["weight"].shape
            need(layer["bias"] is None or len(layer["bias"]) == height, "a bias does not fit its matrix")
            return width, height, height
        case "residual":
            height, width = layer["weight1"].shape
            fits = layer["weight2"].shape == (width, height)
            fits = fits and (len(layer["bias1"]), len(layer["bias2"])) == (height, width)
            need(fits, "the matrices of a residual layer do not fit")
            return width, width, max(height, width)
        case "embedding":
            need(any(layer["strides"]), "an embedding needs a stride that is not 0")
            return len(layer["strides"]), layer["table"].columns, layer["table"].columns
        case "attention":
            for head in layer["heads"]:
                v, k, q, scored = head["value"], head["key"], head["query"], layer["kind"] != "uniform"
                need((k is not None) == (q is not None) == scored, "uniform attention alone has no keys and queries")
                fits = head["output"].shape == v.shape[::-1] and v.columns == layer["heads"][0]["value"].columns
                fits = fits and (not scored or (k.shape == q.shape and k.columns == v.columns))
                need(fits, "the matrices of a head do not fit")
            need(layer["heads"], "attention needs heads")
            width = layer["heads"][0]["value"].columns
            return width, width, max(width, sum(head["value"].height for head in layer["heads"]))
        case _:
            width = layer["width"] if "width" in layer else len(layer["stream"])
            return (width, *[width * layer.get("tokens", 1)] * 2)


def affine(weight: Matrix, bias: list[Number] | None, z: Vec) -> Vec:
    return total([weight(z), Vec.exactly(bias)]) if bias and any(m for m, _ in bias) else weight(z)


def on_token(layer: Layer, z: Vec) -> Vec:
    """Affine, threshold, residual, embedding."""
    kind = layer["layer"]
    if kind == "embedding":
        table = layer["table"]
        BUDGET.charge(len(z.low) + table.columns)
        row, rest = divmod(sum(a * b for a, b in zip(layer["strides"], z.low, strict=True)), z.den)
        if rest or not 0 <= row < table.height:
            raise NoAnswer("a token is outside the embedding table")
        return table.row(row)
    if kind == "residual":
        hidden = affine(layer["weight1"], layer["bias1"], z)
        hidden = hidden.each(lambda x: max(x, 0), hidden.den)
        return total([z, affine(layer["weight2"], layer["bias2"], hidden)])
    inner = affine(layer["weight"], layer["bias"], z)
    if kind == "affine":
        return inner.each(lambda x: max(x, 0), inner.den) if layer["relu"] else inner
    fired = inner.each(lambda x: int(x >= 0), 1)
    if fired.low != fired.high:
        raise Undecided("intervals do not decide a threshold")
    return Vec(fired.low, fired.low, 1)


def on_row(layer: Layer, row: list[Vec]) -> list[Vec]:
    """Global token, pool, flatten."""
    if layer["layer"] == "global-token":
        hub = [Vec.exactly(layer["stream"])]
        return hub + row if layer["place"] == "start" else row + hub
    if layer["layer"] == "pool":
        return [total(row)]
    if len(row) != layer["tokens"]:
        raise NoAnswer(f"the network reads exactly {layer['tokens']} tokens")
    return [joined(row)]


def attend(layer: Layer, row: list[Vec], wanted: range, bits: int) -> list[Vec]:
    """Attention: z and, from each head, a mean."""
    found = [[row[k]] for k in wanted]
    for head in layer["heads"]:
        V = [head["output"](head["value"](z)).tidy(bits) for z in row]
        scored = head["key"] and head["key"].numbers and head["query"].numbers  # otherwise all scores are 0
        K = [head["key"](z) for z in row] if scored else []
        means: dict[tuple[int, ...], Vec] = {}
        for parts, k in zip(found, wanted, strict=True):
            keys = allowed(layer["pattern"], k, len(row))
            BUDGET.charge(len(keys) * (len(V[0].low) + 4 * head["key"].height if scored else 0))
            if scored:
                asked = head["query"](row[k])
                scores = joined([inner_product(K[j], asked) for j in keys])
                if layer["kind"] == "softmax" and {*scores.low, *scores.high} != {scores.low[0]}:
                    parts.append(softmax_mean([V[j] for j in keys], scores, bits))
                    continue
                keys = tuple(keys[place] for place in the_largest(scores))
            if keys not in means:
                added = total([V[j] for j in keys])
                means[keys] = added._replace(den=added.den * len(keys))
            parts.append(means[keys])
    return [total(parts) for parts in found]


def allowed(pattern: str, k: int, n: int) -> tuple[int, ...]:
    """Which tokens token k of n attends to."""
    if pattern == "full" or (pattern == "star-in" and k == n - 1):
        return tuple(range(n))
    if pattern == "causal":
        return tuple(range(k + 1))
    return (k, n - 1) if pattern == "star-out" and k < n - 1 else (k,)


def refined(answer: Callable[[int], Any], bits: int) -> Any:
    """The answer with as many bits as decide it."""
    for doubling in range(DOUBLINGS):
        try:
            return answer(bits << doubling)
        except Undecided:
            continue
    return answer(bits << DOUBLINGS)


class Network:
    """Layers that fit together, whose output is read, and how it becomes a class."""

    def __init__(self, stored: dict[str, Any]) -> None:
        layers, self.read, self.readout = stored["layers"], stored["read"], stored["readout"]
        self.layers, self.widths = layers, [widths(layer) for layer in layers]
        kinds = [layer["layer"] for layer in layers]
        need(layers and "embedding" not in kinds[1:], "a network needs layers, and only the first may be an embedding")
        for (_, outward, _), (inward, _, _) in pairwise(self.widths):
            need(outward == inward, f"a layer gives {outward} numbers, the next takes {inward}")
        pools = [place for place, kind in enumerate(kinds) if kind in ("pool", "flatten")]
        hubs = [place for place, kind in enumerate(kinds) if kind == "global-token"]
        stars = [place for place, layer in enumerate(layers) if layer.get("pattern", "").startswith("star")]
        need(bool(pools) == (self.read == "pooled"), "reading the pooled token and a pool or flatten layer go together")
        need(len(hubs) < 2 and all(hub < k for hub in hubs for k in pools), "one global token at most, before pooling")
        need(all(hubs and hubs[0] < k for k in stars), "a star pattern needs a global token before it")
        outputs = 1 if self.readout["decode"] == "value" else self.readout["classes"]
        need(self.widths[-1][1] == outputs, "the outputs do not fit the readout")
        covered = sum(count for _, count in stored["stages"])
        need(covered == len(layers) or not stored["stages"], "the stages must cover every layer once")
        mixing = [k for k, kind in enumerate(kinds) if kind == "attention"] + pools + hubs
        self.last = max([0 if kinds[0] == "embedding" else -1, *mixing])  # the last layer that needs every token
        self.longest = max((bits_of(w) for w in weights(layers)[1]), default=0)
        self.known: dict[Any, Vec] = {}  # what equal tokens become
        self.held = 0  # words of it

    def ask(self, row: list[list[Number]]) -> list[int | None]:
        """Class indices of the tokens that are read, None for none."""
        BUDGET.hold(len(row) * max(inward + outward for inward, outward, _ in self.widths), 0, "a row")
        points = [Vec.exactly(point) for point in row]

        def answer(bits: int) -> list[int | None]:
            return [self._class(z) for z in self._outputs(points, bits)]

        return refined(answer, self.longest + SPARE_BITS)

    def _outputs(self, row: list[Vec], bits: int) -> list[Vec]:
        """The row behind all layers; behind the last layer that mixes tokens only those that are read are left."""
        start, stop = 0, len(row)  # the row's own tokens, without a global one
        for place, layer in enumerate([None, *self.layers], start=-1):
            attends = layer is not None and layer["layer"] == "attention"
            if layer is not None and layer["layer"] in ("global-token", "pool", "flatten"):
                row = on_row(layer, row)
                start, stop = int(layer.get("place") == "start"), len(row) - (layer.get("place") == "end")
            elif layer is not None and not attends:
                row = [self._token(place, z) for z in row]
            asked = range(len(row)) if place != self.last else range(start if self.read == "each" else stop - 1, stop)
            row = attend(layer, row, asked, bits) if attends else [row[k] for k in asked]
            row = [z.tidy(bits) for z in row]
        return row

    def _token(self, place: int, z: Vec) -> Vec:
        key = place, z.den, *z.low, *(() if z.low is z.high else z.high)
        if key not in self.known:
            self.known[key] = on_token(self.layers[place], z)
            self.held += sum(2 + x.bit_length() // 64 for x in key) + self.widths[place][1] * 8
            if self.held > BUDGET.memory // 64:
                self.known, self.held = {key: self.known[key]}, 0
        return self.known[key]

    def _class(self, z: Vec) -> int | None:
        """The class index of an output; None where it is no class."""
        if self.readout["decode"] == "argmax":
            found = the_largest(z)
            return found[0] if len(found) == 1 else None
        first, last = (x - self.readout["offset"] for x in (-(-z.low[0] // z.den), z.high[0] // z.den))  # whole numbers
        if first > last or last < 0 or first >= self.readout["classes"]:
            return None
        if z.low[0] != z.high[0]:
            raise Undecided("an interval cannot show that a number is whole")
        return first

    def size(self) -> dict[str, int]:
        """The sizes of the network, counted as the page says."""
        kinds, first, last = [layer["layer"] for layer in self.layers], 0, len(self.layers)
        linear = [layer.get("relu") is False for layer in self.layers]
        first += kinds[0] == "flatten"
        if first < last and (kinds[first] == "embedding" or linear[first]):
            first += 2 if kinds[first : first + 2] == ["embedding", "flatten"] else 1
        inner = range(first, last - (last > 1 and linear[-1]))
        forward = [kinds[k] in ("affine", "threshold", "residual") for k in inner]
        attention = [kinds[k] == "attention" for k in inner]
        alone = sum(a and not f for a, f in zip(attention, [*forward[1:], False], strict=False))
        entries, numbers = weights(self.layers)
        bits, width = [bits_of(w) for w in numbers], max((self.widths[k][2] for k in inner), default=1)
        counted = entries, len(bits), max(bits, default=0), sum(bits), width, sum(forward) + sum(attention)
        embedded = sum(weights(layer)[0] for layer in self.layers if layer["layer"] == "embedding")
        return dict(zip(SIZES, (*counted, sum(forward) + alone, sum(attention), embedded), strict=True))


class Block:
    """A decoder of M24: one vector for a context, a hidden layer, a logit for each token."""

    def __init__(self, stored: dict[str, Any]) -> None:
        self.stored, mixer = stored, stored["mixer"]
        self.heads, self.positions = mixer.get("heads", []), mixer["positions"]
        self.attends, self.vocabulary = "heads" in mixer, stored["embedding"].height
        self.length = self.positions.height if self.attends else len(self.positions)
        d, hidden, output = stored["embedding"].columns, stored["hidden"], stored["output"]
        ends = [d, *(size for part in (hidden, *output) for size in part.shape[::-1]), self.vocabulary]
        fits = output and ends[::2] == ends[1::2] and len(stored["bias"]) == hidden.height
        if self.attends:
            fits = fits and self.heads and self.positions.columns == d
            fits = fits and all(h["key"].shape == h["query"].shape for h in self.heads)
            fits = fits and all(h["key"].columns == h["value"].columns == d for h in self.heads)
            fits = fits and mixer["output"].shape == (d, sum(h["value"].height for h in self.heads))
        need(fits, "the matrices of the decoder do not fit")

    def logits(self, context: tuple[int, ...], bits: int) -> Vec:
        """The logits of all tokens behind a context."""
        Z = [self.stored["embedding"].row(token) for token in context]
        if self.attends:
            Z = [total([z, self.positions.row(place)]) for place, z in enumerate(Z)]
            x = self.stored["mixer"]["output"](joined([self._attended(head, Z, bits) for head in self.heads]))
        else:
            u = Vec.exactly(self.positions)
            x = total([z.each(lambda x, w=w: x * w, z.den * u.den) for z, w in zip(Z, u.low, strict=False)])
        x = total([x, Z[-1]]) if self.stored["skip"] else x
        hidden = affine(self.stored["hidden"], self.stored["bias"], x).tidy(bits)
        z = activated(hidden, ACTIVATIONS[self.stored["activation"]], bits)
        for part in self.stored["output"]:
            z = part(z).tidy(bits)
        return z

    def _attended(self, head: dict[str, Matrix], Z: list[Vec], bits: int) -> Vec:
        asked = head["query"](Z[-1])
        return head["value"](softmax_mean(Z, joined([inner_product(head["key"](z), asked) for z in Z]), bits))

    def size(self) -> dict[str, int]:
        heads, (entries, numbers) = sum(head["value"].height for head in self.heads), weights(self.stored)
        width = max(self.stored["embedding"].columns, heads, self.stored["hidden"].height)
        counted = entries, len(numbers), 64, 64 * len(numbers), width, 1 + self.attends, 1, int(self.attends)
        return dict(zip(SIZES, (*counted, weights(self.stored["embedding"])[0]), strict=True))


class Table:
    """A decoder in which an exact network names the row of a table that has a context's logits."""

    def __init__(self, stored: dict[str, Any]) -> None:
        self.network, self.codes, self.length = Network(stored["network"]), stored["codes"], stored["length"]
        self.stored, self.rows, self.vocabulary = stored, stored["coordinates"], len(self.codes)
        fits = stored["columns"].shape == (len(self.codes), self.rows.columns) and self.network.read == "last"
        fits = (
            fits
            and max(self.codes, default=0) <= len(self.codes)
            and self.network.widths[0][0] == 2
            and self.network.readout["classes"] == self.rows.height
        )
        need(fits, "the exact network, its codes and the table do not fit")

    def logits(self, context: tuple[int, ...], bits: int) -> Vec:
        codes, short = [self.codes[token] for token in context], self.length - len(context)
        row = None
        if min(codes) > 0 and (self.stored["padded"] or not short):
            (row,) = self.network.ask([[(c, 0), (place, 0)] for place, c in enumerate([0] * short + codes)])
        z = Vec.exactly([(0, 0)] * self.rows.columns) if row is None else self.rows.row(row)
        return self.stored["columns"](z)

    def size(self) -> dict[str, int]:
        found, (entries, numbers) = self.network.size(), weights([self.rows, self.stored["columns"]])
        added = {"parameters": entries, "nonzero": len(numbers), "total_bits": 64 * len(numbers), "depth": 1}
        found |= {name: found[name] + more for name, more in added.items()}
        largest = {"max_bits": 64 if numbers else 0, "width": self.rows.columns}
        return found | {name: max(found[name], other) for name, other in largest.items()}


class Decoder:
    """A decoder whose tokens have numbers of their own: those of the encoder's codes, and those of the classes."""

    def __init__(self, stored: dict[str, Any]) -> None:
        inner, self.read, self.inputs, self.classes = (
            stored[name] for name in ("decoder", "read", "inputs", "classes")
        )
        self.inner = Table(inner) if "network" in inner else Block(inner)
        self.size, self.known = self.inner.size, dict[tuple[int, ...], int]()
        for given in (self.inputs, self.classes):
            distinct = len(set(given)) == len(given) > 0
            need(distinct and max(given) < self.inner.vocabulary, "inputs and classes must be distinct tokens")
        known = re.findall("[0-9a-f]{16}", stored["known"])
        need("".join(known) == stored["known"] and known == sorted(set(known)), "network.known is not in its one form")
        self.bits = SPARE_BITS + max([0, *(m.bit_length() + e for m, e in weights(inner)[1])])

    def contexts(self, codes: list[int]) -> list[tuple[int, ...]]:
        """What is asked: the whole row, or each of its prefixes."""
        row = tuple(self.inputs[code - 1] for code in codes)
        return [row[: k + 1] for k in range(len(row))] if self.read == "each" else [row]

    def ask(self, codes: list[int]) -> list[int | None]:
        """The class of the largest logit behind each context; None if that token is not a class."""
        found = [self._token(context) for context in self.contexts(codes)]
        return [self.classes.index(token) if token in self.classes else None for token in found]

    def _token(self, context: tuple[int, ...]) -> int:
        def largest(bits: int) -> int:
            found = the_largest(self.inner.logits(context, bits))
            if len(found) > 1:
                raise Undecided("two logits are equal and the largest")
            return found[0]

        if context not in self.known:
            self.known[context] = refined(largest, self.bits)
        return self.known[context]


# ------------------------------------------------------------------------------------------------ asking


class Memory:
    """A file that can be asked."""

    def __init__(self, stored: dict[str, Any]) -> None:
        encoder, self.stored, self.cutting = stored["encoder"], stored, stored["tokens"]
        self.decoder = Decoder(stored["network"]) if "decoder" in stored["network"] else None
        self.network = self.decoder or Network(stored["network"])
        self.task, self.positions, self.length = encoder["task"], encoder["positions"], encoder["length"]
        self.dimension, self.padded, self.symbols = encoder["dimension"], encoder["padded"], encoder["symbols"]
        self.pads, self.per_token = self.task in ("next-token", "seq-to-seq"), self.task in ("seq-to-seq", "causal")
        self.classes, self.pad = stored["classes"], encoder["pad_vector"]
        self.codes = {identity(found): k for k, found in enumerate(self.symbols or (), start=1)}
        self.distributions = "gap" in stored["certificate"]
        pages = [found for found in self.symbols or () if type(found) is int]
        book = self.task == "causal" and self.positions and all(isinstance(name, str) for name in self.classes)
        self.has_pages = book and pages and pages == list(range(len(pages)))
        outputs = self.decoder.classes if self.decoder else []
        self.numbers = {identity(name): token for name, token in zip(self.classes, outputs, strict=False)}
        self._check()

    def _check(self) -> None:
        """Whether the parts of the file fit together."""
        vectors = self.symbols is None
        ordered = self.symbols and all(rank(a) < rank(b) for a, b in pairwise(self.symbols))
        need(vectors or ordered, "encoder.symbols must be sorted and distinct")
        need(vectors or self.dimension == 1, "the dimension of symbols is 1")
        need(self.pads or not self.padded, f"the task {self.task} never pads")
        need(not (self.positions and self.task == "set"), "a set has no positions")
        need((self.pad is not None) == (self.padded and vectors), "encoder.pad_vector is for padded vectors alone")
        need(self.pad is None or len(self.pad) == self.dimension, "encoder.pad_vector has another dimension")
        if self.decoder:
            fits = len(self.symbols or ()) == len(self.decoder.inputs) and self.length == self.decoder.inner.length
            need(fits and self.task in ("next-token", "causal"), "the encoder does not fit the decoder")
            count = len(self.decoder.classes)
        else:
            inward, count = self.network.widths[0][0], self.network.readout["classes"]
            need(inward == self.dimension + self.positions, "the tokens do not fit the first layer")
        need(not self.distributions or (self.decoder and self.positions), "only a decoder with positions has a gap")
        distinct = len(set(map(identity, self.classes)))
        need(distinct == len(self.classes) == count, "the classes do not fit the network")
        need(
            self.per_token == (self.network.read == "each"), f"the task {self.task} is not read at {self.network.read}"
        )
        BUDGET.hold(self.length * (self.dimension + 1) if self.padded else 0, 0, "a padded row")

    def tokens(self, cell: Any, document: bool = False) -> list[Any]:
        """The tokens of a cell, of any number: those of a list, or of a text, cut as the file says."""
        found = self._cut(cell, document) if isinstance(cell, str) else cell if isinstance(cell, list) else [cell]
        kind = self.cutting["type"]
        return [token if isinstance(token, list) else convert(token, kind) for token in found]

    def _cut(self, cell: str, document: bool) -> list[Any]:
        kind = self.cutting["kind"]
        if not document and cell.lstrip().startswith("[") and cell.rstrip().endswith("]"):  # a list is the tokens
            try:
                return parse_json(cell, "a cell", finite)
            except Refused as error:
                if kind == "json":
                    raise error
        if kind in PIECES.split("|"):
            raise Undecided(f"cutting texts into {kind} pieces needs the library tokenizers; give lists of tokens")
        need(kind != "json" or document, f"{cell[:40]!r} is not a JSON list of tokens")
        cutters: dict[str, Callable[[str], list[Any]]] = {
            "bytes": lambda text: list(text.encode("utf-8", "surrogatepass")),
            "words": re.compile(r"\S+").findall,
            "wordpunct": re.compile(r"\w+|[^\w\s]+").findall,
            "uncased": lambda text: re.findall(r"\w+|[^\w\s]", text.lower()),
            "integers": lambda text: [convert(word, "int") for word in text.replace(",", " ").split()],
        }
        return cutters.get(kind, list)(cell)

    def fitted(self, row: list[Any]) -> list[Any]:
        """A row cut and filled as the file says."""
        most, filler = self.cutting["max_length"], self.cutting["pad"]
        return row[:most] + ([filler] * (most - len(row)) if filler is not None else [])

    def points(self, row: list[Any]) -> list[list[Number]]:
        """The tokens as vectors, before padding and positions."""
        exactly = self.pads and not self.padded
        if not (len(row) == self.length if exactly else 1 <= len(row) <= self.length):
            raise NoAnswer(f"a row of {len(row)} tokens does not fit the file's {self.length}")
        return [self._point(token) for token in row]

    def _point(self, token: Any) -> list[Number]:
        if self.symbols is not None:
            if (code := self.codes.get(identity(token))) is None:
                raise NoAnswer(f"the token {str(token)[:40]!r} is not a symbol of the file")
            return [(code, 0)]
        numbers = token if isinstance(token, list) else [token]
        if len(numbers) != self.dimension or not all(type(x) in (int, float) for x in numbers):
            raise NoAnswer(f"the token {str(token)[:40]!r} is not a vector of {self.dimension} numbers")
        ratios = [x.as_integer_ratio() for x in numbers]  # of a float: exactly the double's value
        point = [(numerator, 1 - den.bit_length()) for numerator, den in ratios]
        if point == self.pad:
            raise NoAnswer("the vector is the one that pads short rows")
        return point

    def ask(self, points: list[list[Number]]) -> list[Any]:
        """The answers to a row: one, or one per token; NoAnswer where the output is no class."""
        if self.decoder:
            found = self.decoder.ask([code for ((code, _),) in points])
        else:
            padding = [self.pad or [(0, 0)]] * (self.length - len(points) if self.pads else 0)
            row = [[*point, (place, 0)] if self.positions else point for place, point in enumerate(padding + points)]
            found = self.network.ask(row)[len(padding) if self.per_token else 0 :]
        return [NoAnswer if k is None else self.classes[k] for k in found]


def finite(written: str) -> float:
    need(math.isfinite(float(written)), f"{written[:40]} is too large a number")
    return float(written)


def convert(value: Any, kind: str) -> Any:
    """A value as the type that a user asked for; `auto` and null leave it as it is."""
    if kind == "auto" or value is None or type(value).__name__ == kind:
        return value
    written = value if isinstance(value, str) else json.dumps(value) if isinstance(value, int | float) else "?"
    if kind == "str" and written != "?":
        return str(value)
    whole = re.fullmatch(r"[+-]?[0-9]{1,3999}", written) or (type(value) is float and value.is_integer())
    if kind == "int" and whole:
        return int(value)
    if kind == "float" and re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", written):
        found = float(written)
        if math.isfinite(found) and (isinstance(value, str) or int(found) == value):
            return found
    if kind == "bool" and type(value) is not float and written.lower() in ("true", "false", "1", "0"):
        return written.lower() in ("true", "1")
    raise Refused(f"{written[:40]!r} cannot be taken as {kind}")


# ------------------------------------------------------------------------------------------------ the data

Case = tuple[str, Any, Any]  # where it stands, the cell of the sequence, the cell of the label; None: missing
Rows = list[tuple[str, dict[str, Any]]]  # where it stands, and its cells by the names of columns
NEXT = object()  # in place of a label: every next token is one
SEQUENCES = ("sequence", "sequences", "tokens", "text", "input", "premise", "sentence", "name", "x")
LABELS = ("label", "labels", "y", "target", "class", "output", "answer")
NUMBERING = ("", "id", "index", "row", "nr", "no", "#", "unnamed: 0")  # columns that say nothing about their row
TEXTS = (
    "text",
    "story",
    "document",
    "doc",
    "content",
    "body",
    "sentence",
    "review",
    "premise",
    "tokens",
    "sequence",
    "input",
)


def read_table(path: str, header: bool) -> Rows:
    """CSV, TSV, JSON Lines, or a text with a row on each line."""
    try:
        source, ending = read_bytes(path).decode("utf-8-sig"), path.lower()
    except UnicodeDecodeError as error:
        raise Refused(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    need(not ending.endswith((".json", ".gz", ".zst", ".parquet", ".arrow")), f"{path}: give CSV or JSON Lines")
    lines = [(f"line {k}", line) for k, line in enumerate(source.split("\n"), start=1) if line.strip()]
    if ending.endswith(".txt"):
        return [(place, {"text": line.rstrip("\r")}) for place, line in lines]
    if ending.endswith((".jsonl", ".ndjson")) or (source[:1] == "{" and not ending.endswith((".csv", ".tsv"))):
        rows = [(place, parse_json(line, f"{path}, {place}", finite)) for place, line in lines]
        need(all(isinstance(row, dict) for _, row in rows), f"{path}: every line must be a JSON object")
        return rows
    bare = re.sub(r'"[^"]*"', "", source.lstrip("\r\n").split("\n", 1)[0])
    separator = "\t" if ending.endswith(".tsv") else max(",;\t|", key=bare.count)
    csv.field_size_limit(1 << 26)
    reader = csv.reader(io.StringIO(source, newline=""), delimiter=separator, strict=True)
    try:
        table = [(f"line {reader.line_num}", cells) for cells in reader if cells]
    except csv.Error as error:
        raise Refused(f"{path}, line {reader.line_num}: this is not CSV: {error}") from None
    need(table, f"{path} is empty")
    width = len(table[0][1])
    names = [name.strip() for name in table[0][1]] if header else [f"column {k + 1}" for k in range(width)]
    need(len(set(names)) == width, f"{path} has two columns of one name")
    for place, cells in table:
        need(len(cells) == width, f"{path}, {place} has another number of cells than the first line")
    filled = [(place, [cell or None for cell in cells]) for place, cells in table[int(header) :]]  # empty: missing
    return [(place, dict(zip(names, cells, strict=True))) for place, cells in filled]


def read_pages(path: str, memory: Memory) -> list[Case]:
    """A text as rows: a page's number and its characters, and as labels the character that follows each of them."""
    data = read_bytes(path)
    try:
        source = data.decode("latin-1" if memory.cutting["kind"] == "bytes" else "utf-8")
    except UnicodeDecodeError:
        source = data.decode("latin-1")
    found: list[Case] = []
    for page, start in enumerate(range(0, len(source), memory.length)):
        letters: list[Any] = list(source[start : start + memory.length])
        end = [""] if len(letters) < memory.length else []  # the end of the text is a class of its own
        found.append((f"page {page}", [page, *letters][: memory.length], letters + end))
    return found


def guess(names: list[str], usual: tuple[str, ...], others: tuple[str, ...], taken: list[str]) -> list[str]:
    """A column of a usual name, else the first that has no usual name of the other role; one that numbers rows last."""
    free = [name for name in names if name not in taken]
    known = [name for word in usual for name in free if name.lower() == word]
    rest = [name for name in free if name.lower() not in others]
    return (known or sorted(rest, key=lambda name: len(names) > 2 and name.lower() in NUMBERING))[:1]


def read_cases(memory: Memory, flags: argparse.Namespace) -> list[Case]:
    """The rows of DATA. Which columns are asked is never left to the file."""
    if flags.data.lower().endswith(".txt") and memory.has_pages:
        return read_pages(flags.data, memory)
    rows, then = read_table(flags.data, flags.header), memory.stored["selection"]
    need(rows, f"{flags.data} has no rows")
    names = list(dict.fromkeys(name for _, row in rows for name in row))
    target = [flags.label_column] if flags.label_column else []
    if flags.sequence_column == ["*"]:
        target = target or guess(names, LABELS, (), [])[:1] or names[-1:]
    chosen = flags.sequence_column or guess(names, SEQUENCES, LABELS, target)
    chosen = [name for name in names if name not in target] if chosen == ["*"] else chosen
    usual = [name for name in names if name.lower() in LABELS and name not in chosen]
    target = target or (guess(names, LABELS, SEQUENCES, chosen) if usual or memory.task != "causal" else [])
    said = flags.label_type or then["label_type"] == "auto"
    need(said, f"FILE was made with --label-type {then['label_type']}: say it")
    made_of = then["sequence_columns"], [then["label_column"]] if then["label_column"] else []
    told = flags.sequence_column and (flags.label_column or not made_of[1])
    need(told or not made_of[0] or made_of == (chosen, target), f"name the columns: FILE was made of {made_of}")
    need(chosen and (target or memory.task == "causal"), "name --sequence-column and --label-column")
    for name in chosen + target:
        for place, row in rows:
            need(name in row, f"{flags.data}, {place} has no column {name!r}")
    pick = (lambda row: row[chosen[0]]) if len(chosen) == 1 else (lambda row: [row[name] for name in chosen])
    return [(place, pick(row), row[target[0]] if target else NEXT) for place, row in rows]


def question(memory: Memory, cell: Any, given: Any, flags: argparse.Namespace) -> Any:
    """The tokens to ask and the labels to expect: one, one per token, or the next tokens; None: dropped as missing."""
    try:
        row = [] if cell is None else memory.tokens(cell)
    except Undecided as error:
        return error
    if given is NEXT:
        row, labels = row[:-1], row[1:]
    elif memory.per_token and given is not None:
        labels = parse_json(given, "a label", finite) if isinstance(given, str) else given
        need(isinstance(labels, list), f"{memory.task} takes a list with one label per token, not {str(given)[:40]!r}")
        need(not row or len(row) == len(labels), f"a row has {len(row)} tokens, but {len(labels)} labels")
    else:
        labels = [given]
    if not row or None in row or None in labels:
        policy = flags.missing or memory.stored["selection"]["missing"]  # of the file's: one that leaves no row out
        need(policy == "label" or flags.missing == "drop", "a value is missing: say --missing drop or --missing label")
        if policy == "drop":
            return None
    row, labels = (row or [None])[: flags.max_length], labels[: flags.max_length] if memory.per_token else labels
    return memory.fitted(row), labels if given is NEXT else [
        convert(value, flags.label_type or "auto") for value in labels
    ]


def read_documents(memory: Memory, flags: argparse.Namespace, left_out: Counter[str]) -> list[Case]:
    """Documents, with the tokens that follow as labels, or contexts with the weights of what follows."""
    rows = read_table(flags.data, flags.header)
    pairs = all("context" in row and type(row.get("next")) is dict for _, row in rows) and not flags.sequence_column
    need(rows and pairs == (memory.task == "next-token"), f"{flags.data} has no rows for the task {memory.task}")
    name = "context" if pairs else (flags.sequence_column or [text_column(rows)])[0]
    found: list[Case] = []
    for place, row in rows:
        cell = row.get(name)
        fits = isinstance(cell, str) or (type(cell) is list and all(type(token) in (str, int) for token in cell))
        dropped = cell in (None, "", []) and not pairs and flags.missing == "drop"
        empty = cell in (None, "", []) and not pairs and flags.missing == "label"  # one token, null
        need(dropped or empty or (cell and fits), f"{flags.data}, {place} has no text in {name!r}")
        try:
            cut = memory.tokens(cell, document=True)[: None if pairs else flags.max_length]
        except Undecided as error:
            raise Refused(f"{flags.data}, {place}: {error}") from None
        if dropped or (len(cut) < 2 and not pairs):
            left_out["by --missing drop" if dropped else "a single token, which nothing follows"] += 1
        else:
            found.append((place, cut, row["next"]) if pairs else (place, cut[:-1], cut[1:]))
    return found


def text_column(rows: Rows) -> str:
    first = rows[0][1]
    usual = [name for word in TEXTS for name in first if name.lower() == word and isinstance(first[name], str | list)]
    texts = [name for name, value in first.items() if isinstance(value, str)]
    need(usual or len(texts) == 1, "which column is the text? Name it with --sequence-column")
    return (usual or texts)[0]


# ------------------------------------------------------------------------------------------------ the verdict


def outcomes(memory: Memory, flags: argparse.Namespace) -> tuple[dict[str, list[str]], Counter[str], Any]:
    """Rows that agree, differ or stay undecided, in words, and how many were left out by which flag."""
    found: dict[str, list[str]] = {"agree": [], "differ": [], "undecided": []}
    left_out: Counter[str] = Counter()
    labels_of: dict[Any, set[Any]] = {}  # what DATA says about equal rows
    disputes = []
    questions = [(where, question(memory, cell, given, flags)) for where, cell, given in read_cases(memory, flags)]
    kept = [(where, asked) for where, asked in questions if asked is not None]
    if len(kept) < len(questions):
        left_out["by --missing drop"] = len(questions) - len(kept)
    for place, (where, asked) in enumerate(kept[: flags.max_rows]):
        if place == PROBE:
            BUDGET.expect(BUDGET.done * min(len(kept), flags.max_rows or len(kept)) // PROBE)
        try:
            if isinstance(asked, Undecided):
                raise asked
            answers = memory.ask(memory.points(asked[0]))
            key, expected, said = (identity(tuple(map(identity, part))) for part in (asked[0], asked[1], answers))
            labels_of.setdefault(key, set()).add(expected)
            words = f"{where}: the label is {asked[1]}, the file says {answers}".replace(repr(NoAnswer), "nothing")
            found["agree"].append(where) if expected == said else disputes.append((words, key, said))
        except NoAnswer as error:
            found["differ"].append(f"{where}: {error}")
        except Undecided as error:
            found["undecided"].append(f"{where}: {error}")
    for words, key, said in disputes:  # another row with the same tokens may have the label that the file gives
        torn = len(labels_of[key]) > 1 and (flags.conflicts == "drop" or said in labels_of[key])
        if flags.conflicts != "error" and torn:
            left_out[f"by --conflicts {flags.conflicts}"] += 1
        else:
            found["differ"].append(words)
    if flags.max_rows is not None and len(kept) > flags.max_rows:
        left_out[f"beyond --max-rows {flags.max_rows}"] = len(kept) - flags.max_rows
    return found, left_out, {}


Bounds = tuple[Fraction, Fraction]


def gap_of(logits: Vec, follows: dict[int, Fraction], bits: int) -> tuple[Bounds, Bounds]:
    """Of one context: its entropy Σ w·log(c/w), and its gap Σ w·(log Σ e^logits - logit) - entropy, both enclosed."""
    masses, top, whole = shares(logits, bits), Fraction(max(logits.high), logits.den), sum(follows.values())
    least, most = Fraction(sum(a for a, _ in masses), 1 << bits), Fraction(sum(b for _, b in masses), 1 << bits)
    if least == 0:
        raise Undecided("the intervals of softmax stay too wide")
    logs = [logarithm(whole / w, bits) if w != whole else (Fraction(0), Fraction(0)) for w in follows.values()]
    entropy = [sum(w * log[end] for w, log in zip(follows.values(), logs, strict=True)) for end in (0, 1)]
    low = sum(w * Fraction(logits.low[token], logits.den) for token, w in follows.items())
    high = sum(w * Fraction(logits.high[token], logits.den) for token, w in follows.items())
    loss = whole * (top + logarithm(least, bits)[0]) - high, whole * (top + logarithm(most, bits)[1]) - low
    return (entropy[0], entropy[1]), (loss[0] - entropy[1], loss[1] - entropy[0])


def weights_of(follows: Any, memory: Memory) -> dict[int, Fraction]:
    """The tokens that follow a context: one label, or labels with weights."""
    pairs = follows.items() if isinstance(follows, dict) else [(follows, 1)]
    for name, w in pairs:
        need(type(w) in (int, float) and 0 <= w < 1e300, f"{str(name)[:40]!r} has the weight {str(w)[:40]}")
        if identity(name) not in memory.numbers:
            raise NoAnswer(f"it is followed by {str(name)[:40]!r}, which the file never says")
    found = {memory.numbers[identity(name)]: Fraction(float(w)) for name, w in pairs if w}
    need(found and min(found.values()) >= Fraction(1e-290) * sum(found.values()), "weights are missing or too small")
    return found


def gap_outcomes(memory: Memory, flags: argparse.Namespace) -> tuple[dict[str, list[str]], Counter[str], Any]:
    """A memory of distributions: one statement about all rows together, and how large the gap is."""
    left_out = Counter[str]()
    kept = read_documents(memory, flags, left_out)
    if flags.max_rows is not None and len(kept) > flags.max_rows:
        left_out[f"beyond --max-rows {flags.max_rows}"] = len(kept) - flags.max_rows
    rows: list[tuple[str, list[tuple[int, ...]]]] = []  # where it stands, and its contexts
    follows: dict[tuple[int, ...], Counter[int]] = {}
    strange: list[str] = []
    for where, row, given in kept[: flags.max_rows]:
        try:
            asked = memory.decoder.contexts([code for ((code, _),) in memory.points(memory.fitted(row))])
            told_of = [given] if isinstance(given, dict) else given
            if len(asked) != len(told_of):
                raise NoAnswer(f"it has {len(told_of)} labels, the file cuts rows to {len(asked)} tokens")
            for context, said in zip(asked, told_of, strict=True):
                told = Counter(weights_of(said, memory))
                again = isinstance(given, dict) and follows.get(context, told) != told
                need(not again, f"{where}: another row gives the same tokens another distribution")
                follows[context] = told if isinstance(given, dict) else follows.get(context, Counter()) + told
            rows.append((where, asked))
        except NoAnswer as error:
            strange.append(f"{where}: {error}")
            rows.append((where, []))
    if strange:
        return {"agree": [], "differ": strange, "undecided": [where for where, asked in rows if asked]}, left_out, {}
    found, gap = judged_gap(memory, rows, follows, Fraction(flags.gap))
    return found, left_out, gap


def nats(x: Fraction) -> str:
    return f"{float(x):.6g} nats" if abs(x) < 1e300 else "over 1e300 nats"


def judged_gap(memory: Memory, rows: Any, follows: Any, fraction: Fraction) -> tuple[dict[str, list[str]], Any]:
    """Proved, all rows agree; refuted, those differ that have a context with more than its share of what is allowed."""
    tokens, certain = sum(sum(told.values()) for told in follows.values()), all(len(t) == 1 for t in follows.values())

    def judge(bits: int) -> tuple[Any, list[Fraction], list[Fraction], list[Fraction]]:
        parts = {}
        for place, (context, told) in enumerate(follows.items()):
            if place == PROBE:
                BUDGET.expect(BUDGET.done * len(follows) // PROBE)
            parts[context] = gap_of(memory.decoder.inner.logits(context, bits), told, bits)
        entropy, gap = ([sum(part[k][end] for part in parts.values()) for end in (0, 1)] for k in (0, 1))
        allowed = [fraction * (tokens if certain else end) for end in entropy]
        if gap[0] <= allowed[1] and gap[1] > allowed[0]:
            raise Undecided(f"the gap lies between {nats(gap[0])} and {nats(gap[1])}")
        return parts, entropy, gap, allowed

    try:
        parts, entropy, gap, allowed = refined(judge, memory.decoder.bits)
    except Undecided as error:
        return {"agree": [], "differ": [], "undecided": [f"{where}: {error}" for where, _ in rows]}, {}
    numbers = {"entropy": entropy[0], "lower": gap[0], "upper": gap[1], "allowed": allowed[0]}
    said = {name: float(x) if abs(x) < 1e300 else None for name, x in numbers.items()} | {"contexts": len(follows)}
    if gap[1] <= allowed[0]:
        words = f"the gap is at most {nats(gap[1])}, {nats(allowed[0])} are allowed"
        return {"agree": [where for where, _ in rows], "differ": [], "undecided": []}, said | {"words": words}
    words = f"the gap is at least {nats(gap[0])}, {nats(allowed[1])} are allowed"
    beyond = {c for c, (_, own) in parts.items() if own[0] * tokens > allowed[1] * sum(follows[c].values())}
    differ = [f"{where}: {words}" for where, asked in rows if beyond & {*asked}] or [words for _ in rows]
    agree = [where for where, asked in rows if not beyond & {*asked}] if len(differ) < len(rows) else []
    return {"agree": agree, "differ": differ, "undecided": []}, said


def check(flags: argparse.Namespace) -> dict[str, Any]:
    """The verdict about every row of DATA, with counts."""
    BUDGET.work, BUDGET.memory, BUDGET.done = flags.max_work, flags.max_memory, 0
    need(0 < flags.gap < math.inf, "--gap must be a number above 0")
    memory = Memory(read_memory(flags.file))
    found, left_out, gap = (gap_outcomes if memory.distributions else outcomes)(memory, flags)
    counts = {name: len(rows) for name, rows in found.items()}
    size, claim, recorded = memory.network.size(), memory.stored["claim"], memory.stored["certificate"]["size"]
    need(set(claim["bounds"]) <= set(size), "memory.claim.bounds names something that is not a size")
    broken = [f"{name} is {n}, recorded is {recorded[name]}" for name, n in size.items() if n != recorded[name]]
    over = [(name, most) for name, most in claim["bounds"].items() if size[name] > most]
    broken += [f"{name} is {size[name]}, promised is at most {most}" for name, most in over]
    kept = "broken by the sizes" if over else "kept by the sizes" if claim["bounds"] else "no sizes are promised"
    kept += "".join(f"; not checked: {name}" for name in claim["properties"])
    verdict = "refuted" if broken or counts["differ"] else PROVED if counts["agree"] else "undecided"
    verdict = "undecided" if counts["undecided"] and verdict == PROVED else verdict
    right = gap.pop("words", None) or f"{counts['agree']} rows get their labels"
    reasons = [*found["differ"][:1], *broken, *found["undecided"][:1], right]
    return {
        **{"verdict": verdict, "reason": reasons[0], "rows": sum(counts.values()) + left_out.total()},
        **{"asked": sum(counts.values()), **counts, "left_out": left_out.total(), "left_out_by": dict(left_out)},
        **{"gap": gap or None, "size": size},
        "promise": f"{claim['paper']}, {claim['label']}: recorded, not derived again; {kept}",
    }


def whole(written: str) -> int:
    if not written.isdecimal() or int(written) < 1:
        raise argparse.ArgumentTypeError("a whole number from 1 on")
    return int(written)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("file", metavar="FILE", help="a memory that byheart wrote")
    add("data", metavar="DATA", help=".csv, .tsv, .jsonl, or .txt for a memory of a text")
    add("--sequence-column", action="append", metavar="NAME", help="repeated: their cells are the tokens; * for all")
    add("--label-column", metavar="NAME", help="both are guessed by usual names unless given")
    add("--no-header", dest="header", action="store_false", help="the first line is a row")
    add("--label-type", choices=FIELDS["selection"]["label_type"].split("|"), help="auto: as DATA has them")
    add("--missing", choices=FIELDS["selection"]["missing"].split("|"), help="empty cells and nulls")
    add("--max-rows", type=whole, metavar="N", help="ask the first N rows only")
    add("--max-length", type=whole, metavar="N", help="the first N tokens and labels of a row only")
    add("--conflicts", choices=FIELDS["selection"]["conflicts"].split("|"), default="error")
    add("--gap", type=float, default=0.01, help="for distributions: the part of the entropy that is allowed")
    add("--max-work", type=whole, default=Budget.work, metavar="UNITS", help="some minutes")
    add("--max-memory", type=whole, default=Budget.memory, metavar="BYTES", help="for numbers")
    add("--json", action="store_true", help="print one JSON object")
    return parser


def shown(text: str) -> str:
    """For a terminal: control characters, and what it cannot show, as escapes."""
    known = sys.stdout.encoding or "utf-8"
    visible = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return visible.encode(known, "backslashreplace").decode(known)


def main() -> int:
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader that has gone ends this program as it ends others
    flags = arguments().parse_args()
    try:
        found = check(flags)
    except (Refused, MemoryError) as error:
        print(shown(f"check.py: {str(error) or 'there is not enough memory'}"), file=sys.stderr)
        return 2
    except Exception:
        traceback.print_exc()
        return 70
    counts = ", ".join(f"{found[name]} {name}" for name in ("rows", "asked", "agree", "differ", "undecided"))
    why = ", ".join(f"{count} {reason}" for reason, count in found["left_out_by"].items()) or "none"
    lines = [f"{found['verdict']}: {found['reason']}", f"{counts}; left out: {why}", f"promise: {found['promise']}"]
    print(json.dumps(found) if flags.json else "\n".join(map(shown, lines)))
    return 0 if found["verdict"] == PROVED else 1


if __name__ == "__main__":
    sys.exit(main())
