#!/usr/bin/env python3
"""A second checker for byheart's memories, written from docs/file-format.md. It needs Python 3.11 and nothing else.

    python check.py names.byheart names.csv
    python check.py names.byheart rows.jsonl --sequence-column first --label-column country --json

It asks the file every row of DATA as a user would and compares each answer with DATA's own label, by type and value;
numbers are exact, or enclosed by rational intervals. `answers proved` says that every row of DATA gets its label, or
that the gap of a memory of distributions is as small as --gap asks. The recorded promise is compared with the sizes
counted here, but not derived again. Exit status: 0 answers proved; 1 refuted or undecided; 2 FILE or DATA is not
usable, or needs more than the budget; 70 a defect of this program.

The sections: the format, numbers, the network, decoders, asking, the data, the verdict.
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
from fractions import Fraction
from functools import cache, lru_cache
from itertools import pairwise
from typing import NamedTuple

FORMAT, PROVED = 2, "answers proved"
SAFE = 1 << 53  # integers below are plain JSON numbers
MOST_BITS, LONGEST = 1 << 22, 1 << 24  # of a weight; tokens of a row
SPARE_BITS, DOUBLINGS = 96, 4  # of interval arithmetic
DEEPEST = 20  # tuples in tuples
PROBE = 16  # rows after which the work of all rows is estimated


class Refused(Exception):
    """FILE or DATA is not usable: exit status 2."""


class Undecided(Exception):
    """An interval holds more than one answer, or another library is needed to ask the row."""


class NoAnswer(Exception):
    """The file gives this row no answer."""


def need(condition, message):
    if not condition:
        raise Refused(message)


class Budget:
    """Work is counted before it is done: 64 units for a product, one more for each pair of 64-bit words in it."""

    limit, done = 40_000_000_000, 0  # some minutes

    def charge(self, products, words=0):
        self.done += 64 * products + words
        self.expect(self.done)

    def expect(self, work):
        need(
            work <= self.limit, f"about {work:,} units of work are needed, the limit is {self.limit:,}: see --max-work"
        )

    def hold(self, numbers, bits=0):
        """Memory counts too: at the default limit a row or a matrix may take about a gigabyte."""
        self.expect(4096 * numbers + 4 * bits)


BUDGET = Budget()


# ------------------------------------------------------------------------------------------------ the format
# Objects and their fields, as the page has them. A form is the name of an object or of a function that reads a value;
# a|b is one of these texts, [form] a list, (form,form) a pair, {form} an object with any names, form? may be null.

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
matrix: columns=width rows=[[(count,number)]]
doubles: columns=width rows=[[(count,double)]]
layers: layers=[layer] read=last|each|pooled readout=readout stages=[(text,count)]
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
block: embedding=doubles mixer=mixer skip=bool hidden=from_left bias=[double] activation=tanh|sigmoid|arctan|gelu
    output=[from_left]
averaging: kind=average| positions=[double]
attending: kind=attention| positions=doubles heads=[decoder_head] output=from_left
decoder_head: key=from_left query=from_left value=from_left
table: network=layers codes=[count] length=positive padded=bool coordinates=doubles columns=from_left
"""
FIELDS = {
    name: dict(field.split("=") for field in fields.split())
    for name, fields in (entry.split(":") for entry in re.split(r"\n(?=\S)", OBJECTS.strip()))
}
FIELDS["record of a gap"] = FIELDS["record"] | {"gap": "gap"}
FIELDS["from_left"] = FIELDS["doubles"]  # rows multiply these matrices from the left
SIZES = tuple(FIELDS["size"])


def parse(value, form, where):
    """The value as its form means it; refused if it has another form."""
    if form.endswith("?"):
        return None if value is None else parse(value, form[:-1], where)
    if form[0] == "[":
        need(isinstance(value, list), f"{where} must be a list")
        return [parse(item, form[1:-1], where) for item in value]
    if form[0] == "(":
        need(isinstance(value, list) and len(value) == 2, f"{where} must hold pairs")
        return [parse(item, part, where) for item, part in zip(value, form[1:-1].split(","), strict=True)]
    if form[0] == "{":
        need(isinstance(value, dict), f"{where} must be an object")
        return {name: parse(item, form[1:-1], f"{where}.{name[:40]}") for name, item in value.items()}
    if "|" in form:
        need(isinstance(value, str) and value in form.strip("|").split("|"), f"{where}: {str(value)[:40]!r} is unknown")
        return value
    if form in READERS:
        return READERS[form](value, where)
    if form in VARIANTS:
        form = VARIANTS[form](value) if isinstance(value, dict) else None
        need(isinstance(form, str) and form in FIELDS, f"{where} is not an object, or of an unknown kind")
    fields = FIELDS[form]
    exactly = isinstance(value, dict) and set(value) == set(fields)
    need(exactly, f"{where} must be an object with the fields {', '.join(fields)}, and no others")
    found = {name: parse(value[name], part, f"{where}.{name}") for name, part in fields.items()}
    if "rows" not in fields or "columns" not in fields:
        return found
    for row in found["rows"]:
        ascending = all(a < b for a, b in pairwise([-1, *(j for j, _ in row), found["columns"]]))
        need(ascending and all(w[0] for _, w in row), f"{where}: columns ascend, zeros are not stored")
    return Matrix(found["columns"], found["rows"], turned=form == "from_left")


def of_type(*kinds, least=-math.inf, most=math.inf):
    def read(value, where):
        fits = type(value) in kinds and (type(value) is not int or least <= value <= most)
        need(fits, f"{where}: {str(value)[:40]!r} is of another type, or outside its range")
        return value

    return read


HEXADECIMAL = re.compile(r"(-?0x[1-9a-f][0-9a-f]*)(?:p(-?[1-9][0-9]{0,6}))?")


def number(value, where, double=False):
    """A weight as (mantissa, exponent). In its one written form: small integers as they are, else odd mantissas."""
    if type(value) is int and abs(value) < SAFE:
        return value, 0
    match = HEXADECIMAL.fullmatch(value) if isinstance(value, str) else None
    need(match, f"{where}: {str(value)[:40]!r} is not a number of this format")
    need(4 * len(match[1].lstrip("-0x")) <= MOST_BITS, f"{where} has more than {MOST_BITS} bits")
    mantissa, exponent = int(match[1], 16), int(match[2] or 0)
    need(abs(exponent) <= MOST_BITS, f"{where} has a power of two beyond {MOST_BITS}")
    small = exponent >= 0 and mantissa.bit_length() + exponent <= 53
    need(mantissa & 1 and not small, f"{where}: {value[:40]!r} is not in its one written form")
    fits = mantissa.bit_length() <= 53 and exponent >= -1074 and mantissa.bit_length() + exponent <= 1024
    need(fits or not double, f"{where}: {value[:40]!r} is not a float64 number")
    return mantissa, exponent


def coordinate(value, where):
    """A number as a pair [mantissa, exponent] in lowest terms."""
    need(isinstance(value, list) and len(value) == 2, f"{where} must be a pair")
    mantissa, exponent = label({"integer": value[0]} if isinstance(value[0], str) else value[0], where), value[1]
    need(type(mantissa) is type(exponent) is int and -(1 << 16) <= exponent <= 0, f"{where} must be two integers")
    need(exponent == 0 or mantissa & 1, f"{where} is not in lowest terms")
    return mantissa, exponent


TAGS = {  # how the content of a tagged value is read and written
    "integer": (lambda written: int(written, 16), hex),
    "float": (float.fromhex, float.hex),
    "bytes": (bytes.fromhex, bytes.hex),
    "tuple": (lambda parts, depth: tuple(label(part, "", depth + 1) for part in parts), None),
}


def label(value, where, depth=0):
    """Texts, small integers, true, false and null as they are, anything else tagged."""
    if value is None or isinstance(value, str | bool) or (type(value) is int and abs(value) < SAFE):
        return value
    try:
        ((tag, content),) = value.items()
        read, write = TAGS[tag]
        need(type(content) is (str if write else list), "")
        need(write or depth < DEEPEST, "")
        found = read(content) if write else read(content, depth)
        need(not write or (write(found) == content and found == found), "")
        need(tag != "integer" or abs(found) >= SAFE, "")
        return found
    except (Refused, AttributeError, KeyError, ValueError, TypeError, OverflowError, RecursionError):
        raise Refused(f"{where}: {str(value)[:40]!r} is not a value of this format") from None


def symbol(value, where):
    found = label(value, where)
    need(not isinstance(found, tuple | bytes) and found not in (math.inf, -math.inf), f"{where} is not a token")
    return found


def rank(token):
    """Symbols are sorted by type and then by value; -0.0 comes before 0.0."""
    place = [type(None), bool, int, float, str].index(type(token))
    return place, 0 if token is None else token, math.copysign(1, token) if place == 3 else 0


def identity(value):
    """Equal for values of one type and value alone: 1, 1.0, True and "1" differ, and so do 0.0 and -0.0."""
    if isinstance(value, tuple | list):
        return type(value), tuple(map(identity, value))
    return type(value), value.hex() if isinstance(value, float) else repr(value) if isinstance(value, dict) else value


KINDS, PIECES = "auto|json|characters|bytes|words|wordpunct|uncased|integers", "bpe|wordpiece|unigram|file"
PLAIN = {"model": None, "max_length": None, "pad": None, "type": "auto"}  # of tokens that are a name alone


def tokens(value, where):
    """How texts are cut: an object, or the name of a kind where that says everything."""
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
    **{
        "number": number,
        "double": lambda value, where: number(value, where, double=True),
        "label": label,
        "symbol": symbol,
        "coordinate": coordinate,
    },
    **{"tokens": tokens, "rows": of_type(int, least=1, most=SAFE)},
}
VARIANTS = {  # objects that have one of several forms
    "layer": lambda value: value.get("layer"),
    "certificate": lambda value: "record of a gap" if "gap" in value else "record",
    "network": lambda value: "decoder" if "decoder" in value else "layers",
    "inner": lambda value: "table" if "network" in value else "block",
    "mixer": lambda value: "averaging" if value.get("kind") == "average" else "attending",
}


def parse_json(source, where, floats=None):
    """JSON without duplicate keys and without NaN; without fractions unless `floats` reads them."""

    def once(pairs):
        need(len(dict(pairs)) == len(pairs), f"{where}: a key stands twice in one object")
        return dict(pairs)

    def refuse(written):
        raise Refused(f"{where}: the number {written[:40]} cannot stand here")

    try:
        return json.loads(source, object_pairs_hook=once, parse_float=floats or refuse, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise Refused(f"{where} is not JSON: {error}") from None


def read_bytes(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise Refused(f"cannot read {path}: {getattr(error, 'strerror', error)}") from None


def read_memory(path):
    """The memory in a file: text, version and checksum are right, and every field is one of the format."""

    def canonical(value):
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")

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
# how finely enclosures are rounded, always outwards. A pair of ends is two integers over 2^bits.


class Vec(NamedTuple):
    """Numbers between `low` and `high`, over one denominator; the numbers are exact where both are equal."""

    low: tuple[int, ...]
    high: tuple[int, ...]
    den: int


def exactly(numbers):
    """A vector of numbers (mantissa, exponent)."""
    shift = max([0, *(-e for _, e in numbers)])
    found = tuple(m << e + shift for m, e in numbers)
    return Vec(found, found, 1 << shift)


def each(z, function, den):
    """An increasing function of every numerator."""
    low = tuple(map(function, z.low))
    return Vec(low, low if z.low == z.high else tuple(map(function, z.high)), den)


def rounded(z, bits):
    return Vec(tuple((x << bits) // z.den for x in z.low), tuple(-((-x << bits) // z.den) for x in z.high), 1 << bits)


def tidy(z, bits):
    """Exact numbers without common factors of 2; enclosed ones rounded."""
    if z.low != z.high:
        return rounded(z, bits)
    ones = z.den
    for x in z.low:
        ones |= x
    shift = (ones & -ones).bit_length() - 1
    return each(z, lambda x: x >> shift, z.den >> shift) if shift else z


def combined(parts, fold):
    """Vectors over one denominator, folded into one."""
    den = math.lcm(*(part.den for part in parts))
    parts = [each(part, lambda x, factor=den // part.den: x * factor, den) for part in parts]
    low, exact = fold([part.low for part in parts]), all(part.low == part.high for part in parts)
    return Vec(low, low if exact else fold([part.high for part in parts]), den)


def joined(parts):
    return combined(parts, lambda ends: tuple(x for end in ends for x in end))


def total(parts):
    need(len({len(part.low) for part in parts}) == 1, "vectors of different widths are added")
    return combined(parts, lambda ends: tuple(map(sum, zip(*ends, strict=True))))


def inner_product(a, b):
    need(len(a.low) == len(b.low), "a key and a query have different widths")
    four = [(w * y, w * z, x * y, x * z) for w, x, y, z in zip(a.low, a.high, b.low, b.high, strict=True)]
    return Vec((sum(map(min, four)),), (sum(map(max, four)),), a.den * b.den)


def bits_of(weight):
    """Binary digits of |weight|, whole and fractional part together."""
    mantissa, exponent = weight
    return max(mantissa.bit_length() + exponent, 0) + max(-exponent, 0) if mantissa else 0


class Matrix:
    """z -> W z; the weights are integers over 2^shift. Zeros are not stored."""

    def __init__(self, columns, rows, turned=False):
        if turned:
            BUDGET.hold(columns)
            places = [[] for _ in range(columns)]
            for k, j, w in ((k, j, w) for k, row in enumerate(rows) for j, w in row):
                places[j].append((k, w))
            columns, rows = len(rows), places
        self.height, self.columns = len(rows), columns
        self.numbers = [w for row in rows for _, w in row]
        shift = self.shift = max([0, *(-e for _, e in self.numbers)])
        sizes = [bits_of(w) + shift for w in self.numbers]
        BUDGET.hold(0, sum(sizes))
        self.longest, self.words = max(sizes, default=0), sum(1 + size // 64 for size in sizes)
        self.rows = [[(j, m << e + shift) for j, (m, e) in row] for row in rows]

    def __call__(self, z):
        need(len(z.low) == self.columns, f"a layer gives {len(z.low)} numbers, the next takes {self.columns}")
        words = 1 + max(x.bit_length() for x in (*z.low, *z.high, z.den)) // 64
        BUDGET.charge(len(self.numbers) + self.height + 64, self.words * words)
        BUDGET.hold(self.height, self.height * (64 * words + self.longest))

        def end(a, b):  # positive weights take this end, negative ones the other
            return tuple(sum([w * (a if w > 0 else b)[j] for j, w in row]) for row in self.rows)

        low = end(z.low, z.high)
        return Vec(low, low if z.low == z.high else end(z.high, z.low), z.den << self.shift)

    def row(self, k):
        cells = dict(self.rows[k])
        found = tuple(cells.get(j, 0) for j in range(self.columns))
        return Vec(found, found, 1 << self.shift)


def series(y, one, factor):
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
def exponential(x, bits):
    """e^-x for x >= 0: e^(x/2^k) for a small exponent, squared k times and inverted."""
    if x > bits << bits:  # e^-x < 2^-bits
        return 0, 1
    halvings = (x >> bits).bit_length() + 1
    one = bits + 3 * halvings + 32
    low, high = series(x << one - bits >> halvings, one, lambda n: (1, n))
    for _ in range(halvings):
        low, high = low * low >> one, -(-high * high >> one)
    return (1 << one + bits) // high, -(-(1 << one + bits) // low)


def logarithm(x, bits):
    """Fractions around log x = k log 2 + 2 artanh z for x = 2^k (1 + z)/(1 - z); artanh z / z = 1 + z²/3 + z⁴/5 + …"""

    def doubled_artanh(z):
        bounds = series(((z * z).numerator << bits) // (z * z).denominator, bits, lambda n: (2 * n - 1, 2 * n + 1))
        return [2 * z * end / (1 << bits) for end in bounds]

    k = x.numerator.bit_length() - x.denominator.bit_length()
    m = x / Fraction(2) ** k
    ends = [a + k * b for a in doubled_artanh((m - 1) / (m + 1)) for b in doubled_artanh(Fraction(1, 3))]
    return min(ends), max(ends)


def sigmoid(x, bits):
    one, (a, b) = 1 << bits, exponential(abs(x), bits)
    low, high = (one << bits) // (one + b), -((-one << bits) // (one + a))
    return (low, high) if x >= 0 else (one - high, one - low)


def tanh(x, bits):
    low, high = sigmoid(2 * x, bits)
    return 2 * low - (1 << bits), 2 * high - (1 << bits)


def arctan(x, bits):
    """Euler's series: x/(1+x²)·(1 + 2/3·Y + 2·4/(3·5)·Y² + …) with Y = x²/(1+x²); beyond 1 it is π/2 - arctan 1/x."""
    size, one = abs(x), 1 << bits
    if size > one:
        (a, b), (low, high) = half_pi(bits), arctan((one << bits) // size, bits)
        low, high = a - high - 1, b - low  # 1/x was rounded down by less than 1
    else:
        whole, fine = size * size + one * one, bits + 32
        bounds = series((size * size << fine) // whole, fine, lambda n: (2 * n, 2 * n + 1))
        low, high = bounds[0] * size * one // (whole << 32), -(-bounds[1] * size * one // (whole << 32))
    return (low, high) if x >= 0 else (-high, -low)


@cache
def half_pi(bits):
    low, high = arctan(1 << bits, bits)
    return 2 * low, 2 * high


def gelu(x, bits):
    """x·Φ(x) with Φ(x) = 1/2 + e^(-x²/2)/√(2π)·(x + x³/3 + x⁵/15 + …) for x > 0, and Φ(-x) = 1 - Φ(x)."""
    size, square = abs(x), x * x >> 2 * bits
    one = bits + (size >> bits).bit_length() + 32
    low, high = (1 << one) - 1, 1 << one  # for large x, because 1 - Φ(x) < e^(-x²/2)
    if square <= 2 * one:
        fine = one + square  # for the exponential, because the series is about as large as that is small
        exponent = (x * x << fine) >> 2 * bits + 1
        a, b = exponential(exponent + 1, fine)[0], exponential(exponent, fine)[1]
        c, d = series((x * x << one) >> 2 * bits, one, lambda n: (1, 2 * n + 1))
        root = [math.isqrt(4 * end << one) + k for k, end in enumerate(half_pi(one))]  # of 2π, times 2^one
        low = (1 << one - 1) + a * c * size // (root[1] << square + bits)
        high = (1 << one - 1) - (-b * d * size // (root[0] << square + bits))
    if x < 0:
        low, high = (1 << one) - high, (1 << one) - low
    return min(x * low, x * high) >> one, -(-max(x * low, x * high) >> one)


ACTIVATIONS = {"tanh": tanh, "sigmoid": sigmoid, "arctan": arctan, "gelu": gelu}


def activated(z, function, bits):
    """An activation of every number: none of them changes more than twice as fast as its argument."""
    BUDGET.charge(len(z.low) * bits, len(z.low) * bits * bits // 64)
    z = rounded(z, bits)
    middle = [function((x + y) // 2, bits) for x, y in zip(z.low, z.high, strict=True)]
    spread = [y - x + 2 for x, y in zip(z.low, z.high, strict=True)]
    low = tuple(a - s for (a, _), s in zip(middle, spread, strict=True))
    return Vec(low, tuple(b + s for (_, b), s in zip(middle, spread, strict=True)), 1 << bits)


def shares(scores, bits):
    """e^(score - largest score), for all scores."""
    BUDGET.charge(len(scores.low) * bits, len(scores.low) * bits * bits // 64)
    z = rounded(scores, bits)
    top = max(z.high)
    pairs = zip(z.low, z.high, strict=True)
    found = [(exponential(top - a, bits)[0], exponential(top - b, bits)[1]) for a, b in pairs]
    if not any(a for a, _ in found):
        raise Undecided("the intervals of softmax stay too wide")
    return found


def softmax_mean(V, scores, bits):
    """The mean of the vectors V, weighted by softmax of the scores."""
    weights, all_of_them, width = shares(scores, bits), joined(V), len(V[0].low)
    least, most, den = sum(a for a, _ in weights), sum(b for _, b in weights), all_of_them.den
    low, high = [], []
    for c in range(width):
        a = sum(v * share[v < 0] for v, share in zip(all_of_them.low[c::width], weights, strict=True))
        b = sum(v * share[v >= 0] for v, share in zip(all_of_them.high[c::width], weights, strict=True))
        low.append((a << bits) // (den * (most if a >= 0 else least)))
        high.append(-((-b << bits) // (den * (least if b >= 0 else most))))
    return Vec(tuple(low), tuple(high), 1 << bits)


def the_largest(z):
    """The places of the largest numbers."""
    best = max(z.low)
    found = [k for k, high in enumerate(z.high) if high >= best]
    if len(found) > 1 and any(z.low[k] != z.high[k] for k in found):
        raise Undecided("intervals do not decide which number is the largest")
    return found


def refined(answer, bits):
    """The answer with as many bits as decide it."""
    for doubling in range(DOUBLINGS):
        try:
            return answer(bits << doubling)
        except Undecided:
            continue
    return answer(bits << DOUBLINGS)


# ------------------------------------------------------------------------------------------------ the network
# A layer is the object of the file, with matrices that can be applied. Shapes are checked where vectors meet them.


def weights(stored):
    """How many entries all matrices and vectors in a part of the file have, and those that are not zero."""
    if isinstance(stored, Matrix):
        return stored.height * stored.columns, stored.numbers
    if isinstance(stored, tuple):
        return 1, [stored] if stored[0] else []
    parts = stored.values() if isinstance(stored, dict) else stored if isinstance(stored, list) else ()
    found = [weights(part) for part in parts]
    return sum(count for count, _ in found), [w for _, numbers in found for w in numbers]


WIDTHS = {  # the size that counts as a layer's width
    "affine": lambda layer: layer["weight"].height,
    "threshold": lambda layer: layer["weight"].height,
    "residual": lambda layer: max(layer["weight1"].height, layer["weight1"].columns),
    "attention": lambda layer: max(layer["heads"][0]["value"].columns, sum(h["value"].height for h in layer["heads"])),
    "embedding": lambda layer: layer["table"].columns,
    "global-token": lambda layer: len(layer["stream"]),
    "pool": lambda layer: layer["width"],
    "flatten": lambda layer: layer["tokens"] * layer["width"],
}


def affine(weight, bias, z):
    return weight(z) if bias is None else total([weight(z), exactly(bias)])


def relu(z):
    return each(z, lambda x: max(x, 0), z.den)


def on_token(layer, z):
    """The layers that act on each token alone."""
    match layer["layer"]:
        case "affine":
            inner = affine(layer["weight"], layer["bias"], z)
            return relu(inner) if layer["relu"] else inner
        case "residual":
            hidden = relu(affine(layer["weight1"], layer["bias1"], z))
            return total([z, affine(layer["weight2"], layer["bias2"], hidden)])
        case "threshold":
            fired = each(affine(layer["weight"], layer["bias"], z), lambda x: int(x >= 0), 1)
            if fired.low != fired.high:
                raise Undecided("intervals do not decide a threshold")
            return fired
    table = layer["table"]  # embedding
    need(len(layer["strides"]) == len(z.low), "the tokens do not fit the embedding")
    BUDGET.charge(len(z.low) + table.columns)
    row, rest = divmod(sum(a * b for a, b in zip(layer["strides"], z.low, strict=True)), z.den)
    if rest or not 0 <= row < table.height:
        raise NoAnswer("a token is outside the embedding table")
    return table.row(row)


def on_row(layer, row):
    """Global token, pool, flatten."""
    width = len(layer["stream"]) if layer["layer"] == "global-token" else layer["width"]
    need(len(row[0].low) == width, f"a layer gives {len(row[0].low)} numbers, the next takes {width}")
    if layer["layer"] == "global-token":
        hub = [exactly(layer["stream"])]
        return hub + row if layer["place"] == "start" else row + hub
    if layer["layer"] == "pool":
        return [total(row)]
    if len(row) != layer["tokens"]:
        raise NoAnswer(f"the network reads exactly {layer['tokens']} tokens")
    return [joined(row)]


def attend(layer, row, wanted, bits):
    """Attention for the wanted tokens: z and, from each head, a mean over the allowed tokens."""
    found = [[row[k]] for k in wanted]
    for head in layer["heads"]:
        V = [tidy(head["output"](head["value"](z)), bits) for z in row]
        K = [head["key"](z) for z in row] if head["key"] else []
        means = {}
        for parts, k in zip(found, wanted, strict=True):
            keys = allowed(layer["pattern"], k, len(row))
            BUDGET.charge(len(keys) * (len(V[0].low) + 4 * head["key"].height if K else 1))
            if K:
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


def allowed(pattern, k, n):
    """Which tokens token k of n attends to."""
    if pattern == "full" or (pattern == "star-in" and k == n - 1):
        return tuple(range(n))
    if pattern == "causal":
        return tuple(range(k + 1))
    return (k, n - 1) if pattern == "star-out" and k < n - 1 else (k,)


class Network:
    """Layers, whose output is read, and how it becomes a class."""

    def __init__(self, stored):
        layers, self.read, self.readout = stored["layers"], stored["read"], stored["readout"]
        self.layers, kinds = layers, [layer["layer"] for layer in layers]
        pools = [place for place, kind in enumerate(kinds) if kind in ("pool", "flatten")]
        hubs = [place for place, kind in enumerate(kinds) if kind == "global-token"]
        mixing = [place for place, kind in enumerate(kinds) if kind == "attention"]
        stars = [place for place in mixing if layers[place]["pattern"].startswith("star")]
        need(layers and "embedding" not in kinds[1:], "a network needs layers, and only the first may be an embedding")
        need(kinds[0] != "embedding" or any(layers[0]["strides"]), "an embedding needs a stride that is not 0")
        need(bool(pools) == (self.read == "pooled"), "reading the pooled token and a pool or flatten layer go together")
        need(len(hubs) < 2 and all(hub < k for hub in hubs for k in pools), "one global token at most, before pooling")
        need(all(hubs and hubs[0] < k for k in stars), "a star pattern needs a global token before it")
        need(not stored["stages"] or sum(count for _, count in stored["stages"]) == len(layers), "stages do not fit")
        for layer in (layers[place] for place in mixing):
            need(layer["heads"], "attention needs heads")
            for part in [head[name] for head in layer["heads"] for name in ("key", "query")]:
                need((part is None) == (layer["kind"] == "uniform"), "uniform attention alone has no keys and queries")
        self.last = max([0 if kinds[0] == "embedding" else -1, *mixing, *pools, *hubs])  # needs every token
        self.longest = max((bits_of(w) for w in weights(layers)[1]), default=0)
        self.token = lru_cache(maxsize=1 << 12)(lambda place, z: on_token(layers[place], z))

    def ask(self, points):
        """Class indices of the tokens that are read, None for none."""
        BUDGET.hold(len(points) * max(WIDTHS[layer["layer"]](layer) for layer in self.layers))
        row = [exactly(point) for point in points]
        return refined(lambda bits: [self._class(z) for z in self._outputs(row, bits)], self.longest + SPARE_BITS)

    def _outputs(self, row, bits):
        """The row behind all layers; behind the last layer that mixes tokens only those that are read are left."""
        start, stop = 0, len(row)  # the row's own tokens, without a global one
        for place, layer in enumerate([None, *self.layers], start=-1):
            kind = layer["layer"] if layer else None
            if kind in ("global-token", "pool", "flatten"):
                row = on_row(layer, row)
                start, stop = int(layer.get("place") == "start"), len(row) - (layer.get("place") == "end")
            elif kind not in (None, "attention"):
                row = [self.token(place, z) for z in row]
            asked = range(len(row)) if place != self.last else range(start if self.read == "each" else stop - 1, stop)
            row = attend(layer, row, asked, bits) if kind == "attention" else [row[k] for k in asked]
            row = [tidy(z, bits) for z in row]
        return row

    def _class(self, z):
        """The class index of an output; None where it is no class."""
        classes, offset = self.readout["classes"], self.readout["offset"]
        need(len(z.low) == (1 if self.readout["decode"] == "value" else classes), "the outputs do not fit the readout")
        if self.readout["decode"] == "argmax":
            found = the_largest(z)
            return found[0] if len(found) == 1 else None
        first, last = -(-z.low[0] // z.den) - offset, z.high[0] // z.den - offset  # whole numbers
        if first > last or last < 0 or first >= classes:
            return None
        if z.low[0] != z.high[0]:
            raise Undecided("an interval cannot show that a number is whole")
        return first

    def size(self):
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
        bits, width = [bits_of(w) for w in numbers], max((WIDTHS[kinds[k]](self.layers[k]) for k in inner), default=1)
        counted = entries, len(bits), max(bits, default=0), sum(bits), width, sum(forward) + sum(attention)
        embedded = sum(weights(layer)[0] for layer in self.layers if layer["layer"] == "embedding")
        return dict(zip(SIZES, (*counted, sum(forward) + alone, sum(attention), embedded), strict=True))


# ------------------------------------------------------------------------------------------------ decoders
# A decoder gives a context (numbers of tokens) one logit for each token that may follow. Rows multiply from the left.


class Block:
    """One vector for a context, by attention or an average, a hidden layer, and logits."""

    def __init__(self, stored):
        self.stored, self.embedding, self.output = stored, stored["embedding"], stored["output"]
        self.heads, self.positions = stored["mixer"].get("heads"), stored["mixer"]["positions"]
        self.length = len(self.positions) if self.heads is None else self.positions.height
        self.vocabulary = self.embedding.height
        need(self.output and self.heads != [], "a decoder needs an output, and heads where it attends")

    def logits(self, context, bits):
        Z = [self.embedding.row(token) for token in context]
        if self.heads:
            Z = [total([z, self.positions.row(place)]) for place, z in enumerate(Z)]
            x = self.stored["mixer"]["output"](joined([self._attended(head, Z, bits) for head in self.heads]))
        else:
            u = exactly(self.positions)
            x = total([Vec(*[tuple(w * x for x in z.low)] * 2, z.den * u.den) for z, w in zip(Z, u.low, strict=False)])
        x = total([x, Z[-1]]) if self.stored["skip"] else x
        hidden = tidy(affine(self.stored["hidden"], self.stored["bias"], x), bits)
        z = activated(hidden, ACTIVATIONS[self.stored["activation"]], bits)
        for part in self.output:
            z = tidy(part(z), bits)
        need(len(z.low) == self.vocabulary, "the decoder gives another number of logits than it has tokens")
        return z

    def _attended(self, head, Z, bits):
        asked = head["query"](Z[-1])
        return head["value"](softmax_mean(Z, joined([inner_product(head["key"](z), asked) for z in Z]), bits))

    def size(self):
        heads, (entries, numbers) = sum(h["value"].height for h in self.heads or ()), weights(self.stored)
        width = max(self.embedding.columns, heads, self.stored["hidden"].height)
        counted = entries, len(numbers), 64, 64 * len(numbers), width, 1 + bool(self.heads), 1, int(bool(self.heads))
        return dict(zip(SIZES, (*counted, weights(self.embedding)[0]), strict=True))


class Table:
    """An exact network names the row of a table that has a context's logits."""

    def __init__(self, stored):
        self.network, self.codes, self.length = Network(stored["network"]), stored["codes"], stored["length"]
        self.padded, self.rows, self.columns = stored["padded"], stored["coordinates"], stored["columns"]
        self.vocabulary = len(self.codes)
        fits = self.network.read == "last" and self.network.readout["classes"] == self.rows.height
        fits = fits and self.columns.height == self.vocabulary >= max(self.codes, default=0)
        need(fits and self.rows.columns == self.columns.columns, "the network, its codes and the table do not fit")

    def logits(self, context, bits):
        codes, short, row = [self.codes[token] for token in context], self.length - len(context), None
        if min(codes) > 0 and (self.padded or not short):
            (row,) = self.network.ask([[(c, 0), (place, 0)] for place, c in enumerate([0] * short + codes)])
        return self.columns(exactly([(0, 0)] * self.rows.columns) if row is None else self.rows.row(row))

    def size(self):
        found, (entries, numbers) = self.network.size(), weights([self.rows, self.columns])
        added = {"parameters": entries, "nonzero": len(numbers), "total_bits": 64 * len(numbers), "depth": 1}
        found |= {name: found[name] + more for name, more in added.items()}
        found["max_bits"] = max(found["max_bits"], 64 if numbers else 0)
        return found | {"width": max(found["width"], self.rows.columns)}


class Decoder:
    """A decoder whose tokens have numbers of their own: those of the encoder's codes, and those of the classes."""

    def __init__(self, stored):
        inner, self.read, self.inputs, self.classes = (stored[k] for k in ("decoder", "read", "inputs", "classes"))
        self.inner = Table(inner) if "network" in inner else Block(inner)
        self.size = self.inner.size
        for given in (self.inputs, self.classes):
            distinct = len(set(given)) == len(given) > 0
            need(distinct and max(given) < self.inner.vocabulary, "inputs and classes must be distinct tokens")
        known = re.findall("[0-9a-f]{16}", stored["known"])
        need("".join(known) == stored["known"] and known == sorted(set(known)), "network.known is not in its one form")
        self.bits = SPARE_BITS + max([0, *(m.bit_length() + e for m, e in weights(inner)[1])])
        self.largest = cache(lambda context: refined(lambda bits: self._largest(context, bits), self.bits))

    def contexts(self, codes):
        """What is asked: the whole row, or each of its prefixes."""
        row = tuple(self.inputs[code - 1] for code in codes)
        return [row[: k + 1] for k in range(len(row))] if self.read == "each" else [row]

    def ask(self, codes):
        """The class of the largest logit behind each context; None if that token is not a class."""
        found = [self.largest(context) for context in self.contexts(codes)]
        return [self.classes.index(token) if token in self.classes else None for token in found]

    def _largest(self, context, bits):
        found = the_largest(self.inner.logits(context, bits))
        if len(found) > 1:
            raise Undecided("two logits are equal and the largest")
        return found[0]


# ------------------------------------------------------------------------------------------------ asking


class Memory:
    """A file that can be asked: cells become tokens, tokens input vectors, outputs labels."""

    def __init__(self, stored):
        self.stored, encoder = stored, stored["encoder"]
        self.cutting, self.classes = stored["tokens"], stored["classes"]
        self.decoder = Decoder(stored["network"]) if "decoder" in stored["network"] else None
        self.network = self.decoder or Network(stored["network"])
        self.task, self.positions, self.length = encoder["task"], encoder["positions"], encoder["length"]
        self.dimension, self.padded, self.symbols = encoder["dimension"], encoder["padded"], encoder["symbols"]
        self.pads, self.per_token = self.task in ("next-token", "seq-to-seq"), self.task in ("seq-to-seq", "causal")
        self.pad, self.distributions = encoder["pad_vector"], "gap" in stored["certificate"]
        self.codes = {identity(found): k for k, found in enumerate(self.symbols or (), start=1)}
        self.by_value = all(type(found) is float for found in self.symbols or ())
        pages = [found for found in self.symbols or () if type(found) is int]
        book = self.task == "causal" and self.positions and all(isinstance(name, str) for name in self.classes)
        self.has_pages = book and pages and pages == list(range(len(pages)))
        self._check()

    def _check(self):
        """Whether the parts of the file fit together."""
        vectors = self.symbols is None
        ordered = self.symbols and all(rank(a) < rank(b) for a, b in pairwise(self.symbols))
        need(vectors or (ordered and self.dimension == 1), "encoder.symbols must be sorted, distinct, of dimension 1")
        need(self.pads or not self.padded, f"the task {self.task} never pads")
        need(not (self.positions and self.task == "set"), "a set has no positions")
        need((self.pad is not None) == (self.padded and vectors), "encoder.pad_vector is for padded vectors alone")
        need(self.pad is None or len(self.pad) == self.dimension, "encoder.pad_vector has another dimension")
        if self.decoder:
            fits = len(self.symbols or ()) == len(self.decoder.inputs) and self.length == self.decoder.inner.length
            need(fits and self.task in ("next-token", "causal"), "the encoder does not fit the decoder")
        need(not self.distributions or (self.decoder and self.positions), "only a decoder with positions has a gap")
        count = len(self.decoder.classes) if self.decoder else self.network.readout["classes"]
        need(len({*map(identity, self.classes)}) == len(self.classes) == count, "the classes do not fit the network")
        need(self.per_token == (self.network.read == "each"), f"{self.task} is not read at {self.network.read}")
        BUDGET.hold(self.length * (self.dimension + 1) if self.padded else 0)

    def tokens(self, cell):
        """The tokens of a cell, of any number: those of a list, or of a text, cut as the file says."""
        found = self._cut(cell) if isinstance(cell, str) else cell if isinstance(cell, list) else [cell]
        return [token if isinstance(token, list) else convert(token, self.cutting["type"]) for token in found]

    def _cut(self, cell):
        kind = self.cutting["kind"]
        if cell.lstrip().startswith("[") and cell.rstrip().endswith("]") and not self.distributions:
            try:
                return parse_json(cell, "a cell", finite)  # a list is the tokens
            except Refused as error:
                if kind == "json":
                    raise error
        if kind in PIECES.split("|"):
            raise Undecided(f"cutting texts into {kind} pieces needs the library tokenizers; give lists of tokens")
        need(kind != "json" or self.distributions, f"{cell[:40]!r} is not a JSON list of tokens")
        cutters = {
            "bytes": lambda text: list(text.encode("utf-8", "surrogatepass")),
            "words": str.split,
            "wordpunct": re.compile(r"\w+|[^\w\s]+").findall,
            "uncased": lambda text: re.findall(r"\w+|[^\w\s]", text.lower()),
            "integers": lambda text: [convert(word, "int") for word in text.replace(",", " ").split()],
        }
        return cutters.get(kind, list)(cell)

    def points(self, row):
        """The tokens as input vectors, before padding and positions."""
        exact = self.pads and not self.padded
        if not (len(row) == self.length if exact else 1 <= len(row) <= self.length):
            raise NoAnswer(f"a row of {len(row)} tokens does not fit the file's {self.length}")
        return [self._point(token) for token in row]

    def _point(self, token):
        if self.symbols is not None:
            if self.by_value and type(token) in (int, float) and abs(token) < 1 << 1000 and float(token) == token:
                token = float(token) + 0.0
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

    def ask(self, row):
        """The answers to a row of tokens: one, or one per token; NoAnswer where the output is no class."""
        points = self.points(row)
        if self.decoder:
            found = self.decoder.ask([code for ((code, _),) in points])
        else:
            padding = [self.pad or [(0, 0)]] * (self.length - len(points) if self.pads else 0)
            row = [[*point, (place, 0)] if self.positions else point for place, point in enumerate(padding + points)]
            found = self.network.ask(row)[len(padding) if self.per_token else 0 :]
        return [NoAnswer if k is None else self.classes[k] for k in found]


def finite(written):
    need(math.isfinite(float(written)), f"{written[:40]} is too large a number")
    return float(written)


def convert(value, kind):
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

NEXT = object()  # in place of a label: every next token is one
SEQUENCES = ["sequence", "sequences", "tokens", "text", "input", "premise", "sentence", "name", "x"]
LABELS = ["label", "labels", "y", "target", "class", "output", "answer"]
DOCUMENTS = [
    "text", "story", "document", "doc", "content", "body", "sentence", "review", "premise",
    "tokens", "sequence", "input",
]  # fmt: skip


def read_table(path, header):
    """Rows of CSV, TSV, JSON Lines, or a text with a row on each line: where it stands, and its cells by column."""
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
        table = [(f"line {reader.line_num}", [cell or None for cell in cells]) for cells in reader if cells]
    except csv.Error as error:
        raise Refused(f"{path}, line {reader.line_num}: this is not CSV: {error}") from None
    need(table, f"{path} is empty")
    names = [(cell or "").strip() if header else f"column {k}" for k, cell in enumerate(table[0][1], start=1)]
    need(len(set(names)) == len(names), f"{path} has two columns of one name")
    for place, cells in table:
        need(len(cells) == len(names), f"{path}, {place} has another number of cells than the first line")
    return [(place, dict(zip(names, cells, strict=True))) for place, cells in table[int(header) :]]


def read_pages(path, memory):
    """A text as rows: a page's number and its characters, and as labels the character that follows each of them."""
    data = read_bytes(path)
    try:
        source = data.decode("latin-1" if memory.cutting["kind"] == "bytes" else "utf-8")
    except UnicodeDecodeError:
        source = data.decode("latin-1")
    found = []
    for page, start in enumerate(range(0, len(source), memory.length)):
        letters = list(source[start : start + memory.length])
        end = [""] if len(letters) < memory.length else []  # the end of the text is a class of its own
        found.append((f"page {page}", [page, *letters][: memory.length], letters + end))
    return found


def columns(names, memory, flags):
    """The columns of the sequence and of the label (none: next tokens). Which are asked is never left to the file."""

    def usual(words, taken):
        return [name for word in words for name in names if name.lower() == word and name not in taken][:1]

    causal, words = memory.task == "causal", DOCUMENTS if memory.distributions else SEQUENCES
    if memory.distributions and not causal:
        return ["context"], ["next"]
    target = [flags.label_column] if flags.label_column else []
    chosen = flags.sequence_column or usual(words, target)
    if memory.distributions:
        labelled = not flags.sequence_column and usual(LABELS, chosen)
        need(not labelled, "DATA has labels, which FILE is not asked: name --sequence-column if its texts alone count")
        return chosen or names[: len(names) == 1], []
    target = target or usual(LABELS, chosen)
    chosen = [name for name in names if name not in target] if chosen == ["*"] else chosen
    if len(names) == 2 and not causal:  # what is left over is clear
        chosen = chosen or [name for name in names if name not in target][:1]
        target = target or [name for name in names if name not in chosen][:1]
    return chosen, target


def read_cases(memory, flags):
    """The rows of DATA: where it stands, the cell of the sequence, the cell of the label; None: missing."""
    if flags.data.lower().endswith(".txt") and memory.has_pages:
        return read_pages(flags.data, memory)
    rows, then = read_table(flags.data, flags.header), memory.stored["selection"]
    need(rows, f"{flags.data} has no rows")
    chosen, target = columns(list(dict.fromkeys(name for _, row in rows for name in row)), memory, flags)
    said = flags.label_type or then["label_type"] == "auto" or memory.distributions
    need(said, f"FILE was made with --label-type {then['label_type']}: say it")
    need(chosen and (target or memory.task == "causal"), "name --sequence-column and --label-column")
    for place, row in rows:
        for name in chosen + target:
            need(name in row, f"{flags.data}, {place} has no column {name!r}")
    pick = (lambda row: row[chosen[0]]) if len(chosen) == 1 else (lambda row: [row[name] for name in chosen])
    return [(place, pick(row), row[target[0]] if target else NEXT) for place, row in rows]


def question(memory, cell, given, flags):
    """The tokens to ask and the labels to expect: one, one per token, or the next tokens; or why it is left out."""
    row, most = [] if cell is None else memory.tokens(cell), flags.max_length
    if memory.distributions:
        need(all(type(token) in (str, int) for token in row), "a document is a text, or a list of texts and integers")
        need(given is NEXT or isinstance(given, dict), "a context needs an object of texts and their weights as `next`")
        row, most = (row[:most], most) if given is NEXT else (row, None)  # documents are cut before contexts are formed
    if given is NEXT:
        row, labels = row[:-1] if row[1:] or not memory.distributions else row, row[1:]
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
            return "by --missing drop"
    if memory.distributions and not labels:
        return "a single token, which nothing follows"
    row, labels = (row or [None])[:most], labels[:most] if memory.per_token else labels
    most, filler = memory.cutting["max_length"], memory.cutting["pad"]  # the file cuts and fills rows
    row = row[:most] + ([filler] * (most - len(row)) if filler is not None else [])
    convertible = given is not NEXT and not memory.distributions
    return row, [convert(value, flags.label_type or "auto") for value in labels] if convertible else labels


# ------------------------------------------------------------------------------------------------ the verdict


def check(flags):
    """The verdict about every row of DATA, with counts."""
    BUDGET.limit, BUDGET.done = flags.max_work, 0
    given = [x for x in (flags.gap, flags.max_work, flags.max_rows, flags.max_length) if x is not None]
    need(all(0 < x < math.inf for x in given), "the numbers of flags must be above 0")
    memory = Memory(read_memory(flags.file))
    found, kept, left_out = {"agree": [], "differ": [], "undecided": []}, [], Counter()  # rows, in words
    for where, cell, given in read_cases(memory, flags):
        try:
            asked = question(memory, cell, given, flags)
        except Undecided as error:
            asked = error
        if isinstance(asked, str):
            left_out[asked] += 1
        else:
            kept.append((where, asked))
    if flags.max_rows is not None and len(kept) > flags.max_rows:
        left_out[f"beyond --max-rows {flags.max_rows}"] = len(kept) - flags.max_rows
    gap = (judge_gap if memory.distributions else judge_rows)(memory, kept[: flags.max_rows], flags, found, left_out)
    counts = {name: len(rows) for name, rows in found.items()}
    size, claim, recorded = memory.network.size(), memory.stored["claim"], memory.stored["certificate"]["size"]
    need(set(claim["bounds"]) <= set(size), "memory.claim.bounds names something that is not a size")
    broken = [f"{name} is {n}, recorded is {recorded[name]}" for name, n in size.items() if n != recorded[name]]
    over = [(name, most) for name, most in claim["bounds"].items() if size[name] > most]
    broken += [f"{name} is {size[name]}, promised is at most {most}" for name, most in over]
    promise = "broken by the sizes" if over else "kept by the sizes" if claim["bounds"] else "no sizes are promised"
    promise += "".join(f"; not checked: {name}" for name in claim["properties"])
    verdict = "refuted" if broken or counts["differ"] else PROVED if counts["agree"] else "undecided"
    verdict = "undecided" if counts["undecided"] and verdict == PROVED else verdict
    right = gap["words"] if gap else f"{counts['agree']} rows get their labels"
    return {
        **{"verdict": verdict, "reason": [*found["differ"][:1], *broken, *found["undecided"][:1], right][0]},
        **{"rows": sum(counts.values()) + left_out.total(), "asked": sum(counts.values()), **counts},
        **{"left_out": left_out.total(), "left_out_by": dict(left_out), "gap": gap, "size": size},
        "promise": f"{claim['paper']}, {claim['label']}: recorded, not derived again; {promise}",
    }


def judge_rows(memory, kept, flags, found, left_out):
    """Each row by itself: it agrees, differs or stays undecided, or --conflicts excuses it."""
    labels_of, disputes = {}, []  # what DATA says about equal rows
    for place, (where, asked) in enumerate(kept):
        if place == PROBE:
            BUDGET.expect(BUDGET.done * len(kept) // PROBE)
        try:
            if isinstance(asked, Undecided):
                raise asked
            answers = memory.ask(asked[0])
            key, expected, said = (identity(tuple(map(identity, part))) for part in (*asked, answers))
            labels_of.setdefault(key, set()).add(expected)
            words = f"{where}: the label is {spelled(asked[1])}, the file says {spelled(answers)}"
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


def spelled(values):
    try:
        return repr(values).replace(repr(NoAnswer), "nothing")
    except ValueError:
        return "an integer of thousands of digits"


def judge_gap(memory, kept, flags, found, left_out):
    """A memory of distributions: one statement about all rows together. Returns how large the gap is."""
    follows, rows, strange = {}, [], []  # context -> how often each token follows; where, and its contexts
    for where, asked in kept:
        try:
            if isinstance(asked, Undecided):
                raise Refused(f"{where}: {asked}")
            rows.append((where, count_followers(memory, where, *asked, follows)))
        except NoAnswer as error:
            strange.append(f"{where}: {error}")
    if strange:
        found["differ"], found["undecided"] = strange, [f"{where}: other rows differ" for where, _ in rows]
        return None
    try:
        sums, allowed, beyond = refined(lambda bits: gap_of(memory, follows, flags.gap, bits), memory.decoder.bits)
    except Undecided as error:
        found["undecided"] = [f"{where}: {error}" for where, _ in rows]
        return None
    low, high, entropy, _ = sums
    right = high <= allowed[0]
    words = (
        f"the gap is at {'most' if right else 'least'} {nats(high if right else low)}, {nats(allowed[0])} are allowed"
    )
    guilty = [bool(beyond & {*contexts}) for _, contexts in rows]
    for (where, _), differs in zip(rows, guilty if any(guilty) else [not right] * len(rows), strict=True):
        found["differ" if differs else "agree"].append(f"{where}: {words}")
    numbers = {"entropy": entropy, "lower": low, "upper": high, "allowed": allowed[0]}
    return {name: float(x) if abs(x) < 1e300 else None for name, x in numbers.items()} | {"words": words}


def count_followers(memory, where, row, labels, follows):
    """Adds what a row says about its contexts: a token that follows, or a distribution, which counts once."""
    contexts = memory.decoder.contexts([code for ((code, _),) in memory.points(row)])
    if len(contexts) != len(labels):
        raise NoAnswer(f"it has {len(labels)} labels, the file cuts rows to {len(contexts)} tokens")
    numbers = dict(zip(map(identity, memory.classes), memory.decoder.classes, strict=True))
    for context, given in zip(contexts, labels, strict=True):
        once = isinstance(given, dict)
        told = Counter()
        for name, w in given.items() if once else [(given, 1)]:
            need(type(w) in (int, float) and 0 <= w < 1e300, f"{where}: {str(w)[:40]} is not a weight")
            if identity(name) not in numbers:
                raise NoAnswer(f"it is followed by {str(name)[:40]!r}, which the file never says")
            told[numbers[identity(name)]] = Fraction(float(w))
        told = +told  # without zeros
        need(
            told and min(told.values()) >= Fraction(1e-290) * told.total(), f"{where}: weights are missing or too small"
        )
        need(not once or follows.get(context, told) == told, f"{where}: the same tokens have another distribution")
        follows[context] = told if once else follows.get(context, Counter()) + told
    return contexts


def gap_of(memory, follows, fraction, bits):
    """Sums over contexts, what they may be, and the contexts with more than their share of it if they are too large.

    Of a context: the gap Σ w·(log Σ e^logits - logit) - entropy, and the entropy Σ w·log(c/w), c = Σ w, both enclosed.
    """
    parts = {}
    for place, (context, told) in enumerate(follows.items()):
        if place == PROBE:
            BUDGET.expect(BUDGET.done * len(follows) // PROBE)
        logits, weight, loss, entropy = memory.decoder.inner.logits(context, bits), told.total(), [], []
        masses, top = shares(logits, bits), Fraction(max(rounded(logits, bits).high), 1 << bits)
        for end, opposite in ((0, logits.high), (1, logits.low)):
            mass = Fraction(sum(share[end] for share in masses), 1 << bits)
            spent = sum(w * Fraction(opposite[token], logits.den) for token, w in told.items())
            loss.append(weight * (top + logarithm(mass, bits)[end]) - spent)
            entropy.append(sum(w * logarithm(weight / w, bits)[end] for w in told.values() if w != weight))
        parts[context] = loss[0] - entropy[1], loss[1] - entropy[0], *entropy
    low, high, *entropy = sums = [sum(part[k] for part in parts.values()) for k in range(4)]
    total_weight, certain = sum(told.total() for told in follows.values()), all(len(t) == 1 for t in follows.values())
    allowed = [Fraction(fraction) * (total_weight if certain else end) for end in entropy]
    if low <= allowed[1] and high > allowed[0]:
        raise Undecided(f"the gap lies between {nats(low)} and {nats(high)}")
    too_large = {c for c, part in parts.items() if part[0] * total_weight > allowed[1] * follows[c].total()}
    return sums, allowed, too_large if low > allowed[1] else set()


def nats(x):
    return f"{float(x):.6g} nats" if abs(x) < 1e300 else "over 1e300 nats"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("file", metavar="FILE", help="a memory that byheart wrote")
    add("data", metavar="DATA", help=".csv, .tsv, .jsonl, or .txt for a memory of a text")
    add("--sequence-column", action="append", metavar="NAME", help="repeated: their cells are the tokens; * for all")
    add("--label-column", metavar="NAME", help="both are found by usual names unless given")
    add("--no-header", dest="header", action="store_false", help="the first line is a row")
    add("--label-type", choices=FIELDS["selection"]["label_type"].split("|"), help="auto: as DATA has them")
    add("--missing", choices=FIELDS["selection"]["missing"].split("|"), help="empty cells and nulls")
    add("--max-rows", type=int, metavar="N", help="ask the first N rows only")
    add("--max-length", type=int, metavar="N", help="the first N tokens and labels of a row only")
    add("--conflicts", choices=FIELDS["selection"]["conflicts"].split("|"), default="error")
    add("--gap", type=float, default=0.01, help="for distributions: the part of the entropy that is allowed")
    add("--max-work", type=int, default=Budget.limit, metavar="UNITS", help="some minutes, and a gigabyte")
    add("--json", action="store_true", help="print one JSON object")
    return parser


def shown(text):
    """For a terminal: control characters, and what it cannot show, as escapes."""
    known = sys.stdout.encoding or "utf-8"
    visible = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return visible.encode(known, "backslashreplace").decode(known)


def main():
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader that has gone ends this program as it ends others
    flags = arguments().parse_args()
    try:
        found = check(flags)
    except (Refused, MemoryError, RecursionError) as error:
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
