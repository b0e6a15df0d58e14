#!/usr/bin/env python3
"""A second checker for byheart's memories, written from docs/file-format.md. It needs Python 3.11 and nothing else.

    python check.py names.byheart names.csv
    python check.py names.byheart rows.jsonl --sequence-column first --label-column country --json

It evaluates every row of DATA as a user would and compares each answer with DATA's own label, by type and value;
numbers are exact, or known to within a bound. `answers proved` means that every row of DATA gets its label, or that the
gap of a memory of distributions is as small as --gap asks. The recorded guarantee is compared with the sizes counted
here, but not derived again. Exit status: 0 answers proved; 1 refuted or undecided; 2 FILE or DATA is not usable, or
needs more than the budget; 70 a defect of this program.

The sections: the format, numbers, the network, decoders, asking, the data, the verdict, distributions.
"""

from __future__ import annotations

import argparse
import csv
import decimal
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
from functools import cache, lru_cache, reduce
from itertools import pairwise
from operator import or_
from typing import NamedTuple

FORMAT, PROVED = 3, "answers proved"
SAFE = 1 << 53  # integers below are plain JSON numbers
MOST_BITS, LONGEST = 1 << 22, 1 << 24  # of a weight; tokens of a row
SPARE_BITS, DOUBLINGS = 96, 4  # of numbers that are not rational
DEEPEST = 20  # tuples in tuples
PROBE = 16  # rows after which the work of all rows is estimated


class Refused(Exception):
    """FILE or DATA is not usable, or needs more than the budget: exit status 2."""


class Undecided(Exception):
    """A number is not known well enough for one answer, or another library is needed to ask the row."""


class NoAnswer(Exception):
    """The file gives this row no answer."""


def need(condition, message):
    if not condition:
        raise Refused(message)


class Budget:
    """Files are not trusted: work and memory are counted before they are spent."""

    limit, done, kept = 40_000_000_000, 0, 0  # some minutes

    def charge(self, products, words=0):
        """64 units for a product, one more for each pair of 64-bit words in it."""
        self.done += 64 * products + words
        self.expect(self.done)

    def hold(self, numbers, bits=0):
        """At the default limit a row may take about a gigabyte."""
        self.expect(4096 * numbers + 4 * bits)

    def keep(self, numbers, bits):
        """All matrices together, which stay, may take as much."""
        self.kept += 4096 * numbers + 4 * bits
        self.expect(self.kept)

    def expect(self, work):
        fits = work <= self.limit
        need(fits, f"about {work:,} units of work are needed, the limit is {self.limit:,}: see --max-work")


BUDGET = Budget()

# ------------------------------------------------------------------------------------------------ the format
# Objects and their fields, as the page has them. A form is the name of an object or of a reader below; a|b is one of
# these texts, [form] a list, (form,form) a pair, {form} an object with any names, form? may be null.

OBJECTS = """
file: byheart=int memory=memory sha256=text
memory: construction=text options={option} seed=int version=text notes=[text] network=network tokens=tokens
    classes=[label] encoder=encoder selection=selection claim=claim certificate=certificate
encoder: task=next-token|seq-to-seq|set|causal positions=bool length=positive symbols=[symbol]? dimension=positive
    padded=bool pad_vector=[coordinate]?
cutting: kind=text model=text? max_length=positive? pad=symbol type=auto|str|int|float|bool
selection: sequence_columns=[text] label_column=text? max_rows=rows? conflicts=error|first|majority|drop
    label_type=auto|str|int|float|bool missing=error|drop|label header=bool? encoding=text?
claim: paper=KS25|M24|V22|P21|K23|KS24|MA24|B88|N65|byheart label=text bounds={int} formulas={text}
    assumptions=[text] properties=[text]
record: verdict=proved|refuted|undecided reason=text fingerprint=text arithmetic=text guarantee=text rows=int
    asked=int agree=int differ=int labels=int contexts=int left_out={int} guaranteed={int} proofs={text} size=size
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
affine layer: layer=text weight=matrix bias=[number]? relu=bool
threshold layer: layer=text weight=matrix bias=[number]
residual layer: layer=text weight1=matrix bias1=[number] weight2=matrix bias2=[number]
embedding layer: layer=text table=matrix strides=[count]
attention layer: layer=text kind=uniform|hardmax|softmax pattern=full|causal|star-in|star-out heads=[head]
head: value=matrix output=matrix key=matrix? query=matrix?
pool layer: layer=text width=positive
flatten layer: layer=text tokens=positive width=positive
global-token layer: layer=text stream=[number] place=start|end
decoder: decoder=inner inputs=[count] classes=[count] read=last|each known=text
block: embedding=doubles mixer=mixer skip=bool hidden=from_left bias=[double] activation=tanh|sigmoid|arctan|gelu
    output=[from_left]
average mixer: kind=text positions=[double]
attention mixer: kind=text positions=doubles heads=[decoder_head] output=from_left
decoder_head: key=from_left query=from_left value=from_left
table: network=layers codes=[count] length=positive padded=bool coordinates=doubles columns=from_left
"""
FIELDS = {
    name: dict(field.split("=") for field in fields.split())
    for name, fields in (entry.split(":") for entry in re.split(r"\n(?=\S)", OBJECTS.strip()))
}
FIELDS["record of a gap"] = FIELDS["record"] | {"gap": "gap"}
FIELDS["from_left"] = FIELDS["doubles"]  # rows multiply these matrices from the left
VARIANTS = {  # objects that have one of several forms
    "layer": lambda value: f"{value.get('layer')} layer",
    "certificate": lambda value: "record of a gap" if "gap" in value else "record",
    "network": lambda value: "decoder" if "decoder" in value else "layers",
    "inner": lambda value: "table" if "network" in value else "block",
    "mixer": lambda value: f"{value.get('kind')} mixer",
}


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
    if "|" in form:
        need(isinstance(value, str) and value in form.split("|"), f"{where}: {str(value)[:40]!r} is unknown")
        return value
    if form in READERS:
        return READERS[form](value, where)
    need(isinstance(value, dict), f"{where} must be an object")
    if form[0] == "{":
        need(not any(map(HALF.search, value)), f"{where}: a name holds half of a surrogate pair")
        return {name: parse(item, form[1:-1], f"{where}.{name[:40]}") for name, item in value.items()}
    form = VARIANTS[form](value) if form in VARIANTS else form
    need(form in FIELDS, f"{where}: a {form[:40]} is unknown")
    fields = FIELDS[form]
    need(set(value) == set(fields), f"{where} must have the fields {', '.join(fields)}, and no others")
    found = {name: parse(value[name], part, f"{where}.{name}") for name, part in fields.items()}
    return Matrix(found, where, turned=form == "from_left") if set(fields) == {"columns", "rows"} else found


HALF = re.compile("[\ud800-\udfff]")  # not Unicode text: only labels and tokens may hold it


def of_type(*kinds, least=-math.inf, most=math.inf):
    def read(value, where):
        fits = type(value) in kinds and (type(value) is not int or least <= value <= most)
        need(fits, f"{where}: {str(value)[:40]!r} is of another type, or outside its range")
        need(type(value) is not str or not HALF.search(value), f"{where} holds half of a surrogate pair")
        return value

    return read


def number(value, where, double=False):
    """A weight as (mantissa, exponent). In its one written form: small integers as they are, else odd mantissas."""
    if type(value) is int and abs(value) < SAFE:
        return value, 0
    match = re.fullmatch(r"(-?0x[1-9a-f][0-9a-f]*)(?:p(-?[1-9][0-9]{0,6}))?", value) if type(value) is str else None
    need(match, f"{where}: {str(value)[:40]!r} is not a number of this format")
    mantissa, exponent = int(match[1], 16), int(match[2] or 0)
    bits, top = mantissa.bit_length(), mantissa.bit_length() + exponent
    need(bits <= MOST_BITS >= abs(exponent), f"{where}: a mantissa or a power of two is beyond {MOST_BITS} bits")
    need(mantissa & 1 and (exponent < 0 or top > 53), f"{where}: {value[:40]!r} is not in its one written form")
    is_double = bits <= 53 and exponent >= -1074 and top <= 1024
    need(is_double or not double, f"{where}: {value[:40]!r} is not a float64 number")
    return mantissa, exponent


TAGS = {  # how the content of a tagged value is read and written
    "integer": (lambda written: int(written, 16), hex),
    "float": (float.fromhex, float.hex),
    "bytes": (bytes.fromhex, bytes.hex),
}


def label(value, where, depth=0):
    """Texts, small integers, true, false and null as they are, anything else tagged and in its one spelling."""
    if value is None or isinstance(value, str | bool) or (type(value) is int and abs(value) < SAFE):
        return value
    try:
        ((tag, content),) = value.items()
        if tag == "tuple" and isinstance(content, list) and depth < DEEPEST:
            return tuple(label(part, where, depth + 1) for part in content)
        read, write = TAGS[tag]
        found = read(content)
        if write(found) == content and found == found and (tag != "integer" or abs(found) >= SAFE):
            return found
    except (AttributeError, KeyError, ValueError, TypeError, OverflowError):
        pass  # not an object with one known tag, or nothing that can be read
    raise Refused(f"{where}: {str(value)[:40]!r} is not a value of this format")


def symbol(value, where):
    found = label(value, where)
    need(not isinstance(found, tuple | bytes) and found not in (math.inf, -math.inf), f"{where} is not a token")
    return found


def coordinate(value, where):
    """A number as a pair [mantissa, exponent] in lowest terms."""
    need(isinstance(value, list) and len(value) == 2, f"{where} must be a pair")
    mantissa, exponent = label({"integer": value[0]} if isinstance(value[0], str) else value[0], where), value[1]
    need(type(mantissa) is type(exponent) is int and -(1 << 16) <= exponent <= 0, f"{where} must be two integers")
    need(exponent == 0 or mantissa & 1, f"{where} is not in lowest terms")
    return mantissa, exponent


KINDS, PIECES = "auto|json|characters|bytes|words|wordpunct|uncased|integers", "bpe|wordpiece|unigram|file"
PLAIN = {"model": None, "max_length": None, "pad": None, "type": "auto"}  # of tokens that are a name alone


def tokens(value, where):
    """How texts are tokenized: an object, or the name of a kind where that is enough."""
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
    **{"rows": of_type(int, least=1, most=SAFE), "label": label, "symbol": symbol, "coordinate": coordinate},
    **{"number": number, "double": lambda value, where: number(value, where, double=True), "tokens": tokens},
}


def parse_json(source, where, floats=None):
    """JSON without duplicate keys and without NaN; without fractions unless `floats` reads them."""

    def once(pairs):
        need(len(dict(pairs)) == len(pairs), f"{where}: a key occurs twice in one object")
        return dict(pairs)

    def refuse(written):
        raise Refused(f"{where}: the number {written[:40]} cannot occur here")

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
# Weights are rational, and so is everything but softmax and the activations of decoders. Those are computed to within
# a bound, which is carried along: a vector has one radius, and each of its numbers is at most that far from the truth.


class Vec(NamedTuple):
    """Integers over one denominator, each to within `radius`, also over it; exact where that is 0."""

    numbers: tuple[int, ...]
    den: int
    radius: int = 0


def size_of(z):
    return sum(x.bit_length() for x in z.numbers) + z.den.bit_length()


def held(vectors):
    """A list of the vectors, as long as memory allows it."""
    found, bits = [], 0
    for z in vectors:
        found.append(z)
        bits += size_of(z)
        BUDGET.hold(0, bits)
    return found


def exactly(weights):
    shift = max([0, *(-e for _, e in weights)])
    BUDGET.hold(0, len(weights) * (shift + max([0, *map(bits_of, weights)])))
    return Vec(tuple(m << e + shift for m, e in weights), 1 << shift)


def rounded(z, bits):
    """To multiples of 2^-bits."""
    return Vec(tuple((x << bits) // z.den for x in z.numbers), 1 << bits, -(-(z.radius << bits) // z.den) + 1)


def tidy(z, bits):
    """Exact numbers without common factors of 2, others rounded."""
    if z.radius:
        return rounded(z, bits)
    ones = reduce(or_, z.numbers, z.den)
    shift = (ones & -ones).bit_length() - 1
    return Vec(tuple(x >> shift for x in z.numbers), z.den >> shift) if shift else z


def alike(parts):
    """The vectors over one denominator."""
    den = math.lcm(*(part.den for part in parts))
    factors = [den // part.den for part in parts]
    return [Vec(tuple(x * f for x in z.numbers), den, z.radius * f) for z, f in zip(parts, factors, strict=True)]


def joined(parts):
    parts = alike(parts)
    return Vec(tuple(x for part in parts for x in part.numbers), parts[0].den, max(part.radius for part in parts))


def total(parts):
    need(len({len(part.numbers) for part in parts}) == 1, "vectors of different widths are added")
    parts = alike(parts)
    added = tuple(map(sum, zip(*(part.numbers for part in parts), strict=True)))
    return Vec(added, parts[0].den, sum(part.radius for part in parts))


def product(a, b):
    """The inner product, as a vector of one number."""
    need(len(a.numbers) == len(b.numbers), "a key and a query have different widths")
    pairs, r, s = list(zip(a.numbers, b.numbers, strict=True)), a.radius, b.radius
    error = sum(abs(x) * s + abs(y) * r + r * s for x, y in pairs) if r or s else 0
    return Vec((sum(x * y for x, y in pairs),), a.den * b.den, error)


def bits_of(weight):
    """Binary digits of |weight|, whole and fractional part together."""
    mantissa, exponent = weight
    return max(mantissa.bit_length() + exponent, 0) + max(-exponent, 0) if mantissa else 0


class Matrix:
    """z -> W z; the weights are integers over 2^shift. Zeros are not stored."""

    def __init__(self, stored, where, turned):
        rows, columns = stored["rows"], stored["columns"]
        for row in rows:
            ascending = all(a < b for a, b in pairwise([-1, *(j for j, _ in row), columns]))
            need(ascending and all(w[0] for _, w in row), f"{where}: columns ascend, zeros are not stored")
        if turned:
            BUDGET.keep(columns, 0)
            places = [[] for _ in range(columns)]
            for k, j, w in ((k, j, w) for k, row in enumerate(rows) for j, w in row):
                places[j].append((k, w))
            columns, rows = len(rows), places
        self.height, self.columns, self.weights = len(rows), columns, [w for row in rows for _, w in row]
        shift = self.shift = max([0, *(-e for _, e in self.weights)])
        sizes = [bits_of(w) + shift for w in self.weights]
        BUDGET.keep(0, sum(sizes))
        self.longest, self.words = max(sizes, default=0), sum(1 + size // 64 for size in sizes)
        self.rows = [[(j, m << e + shift) for j, (m, e) in row] for row in rows]
        self.norm = max((sum(abs(w) for _, w in row) for row in self.rows), default=0)

    def __call__(self, z):
        need(len(z.numbers) == self.columns, f"a layer gives {len(z.numbers)} numbers, the next takes {self.columns}")
        words = 1 + max(x.bit_length() for x in (*z.numbers, z.den, z.radius)) // 64
        BUDGET.charge(len(self.weights) + self.height + 64, self.words * words)
        BUDGET.hold(self.height, self.height * (64 * words + self.longest))
        found = tuple(sum([w * z.numbers[j] for j, w in row]) for row in self.rows)
        return Vec(found, z.den << self.shift, z.radius * self.norm)

    def row(self, k):
        cells = dict(self.rows[k])
        return Vec(tuple(cells.get(j, 0) for j in range(self.columns)), 1 << self.shift)


# The functions below take and give integers over 2^bits. Python's decimal module rounds exp and ln correctly, to as
# many digits as requested; 30 extra digits leave an error below 2 when the result is truncated to an integer.


@cache
def decimals(bits):
    return decimal.Context(prec=bits // 3 + 30, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)


@lru_cache(maxsize=1 << 14)
def exponential(x, bits):
    """e^-x for x >= 0."""
    if x > bits << bits:
        return 0  # e^-x < 2^-bits
    context, one = decimals(bits), decimal.Decimal(1 << bits)
    return int(context.multiply(one, context.exp(context.divide(decimal.Decimal(-x), one))))


def logarithm(x, bits):
    """log x, for a fraction x > 0."""
    context = decimals(bits)
    ratio = context.divide(decimal.Decimal(x.numerator), decimal.Decimal(x.denominator))
    return int(context.multiply(decimal.Decimal(1 << bits), context.ln(ratio)))


def sigmoid(x, bits):
    one, power = 1 << bits, exponential(abs(x), bits)
    return (one if x >= 0 else power) * one // (one + power)


def tanh(x, bits):
    return 2 * sigmoid(2 * x, bits) - (1 << bits)


@lru_cache(maxsize=1 << 14)
def arctan(x, bits):
    """Euler's x/(1+x²)·(1 + 2/3·Y + 2·4/(3·5)·Y² + …), Y = x²/(1+x²) <= 1/2; beyond 1 it is π/2 - arctan 1/x."""
    one = 1 << bits
    if x < 0:
        return -arctan(-x, bits)
    if x > one:
        return 2 * arctan(one, bits) - arctan(one * one // x, bits)
    term, found, n = x * one * one // (one * one + x * x), 0, 0
    while term:  # at most half of the one before, and so at most 2 too small
        found, n = found + term, n + 1
        term = term * 2 * n * x * x // ((2 * n + 1) * (one * one + x * x))
    return found


def gelu(x, bits):
    """x·Φ(x) with Φ(x) = 1/2 + (x - x³/(2·3) + x⁵/(2²·2!·5) - …)/√(2π)."""
    square = x * x >> 2 * bits
    if square > 2 * bits:
        return max(x, 0)  # because |x|·(1 - Φ(|x|)) < e^(-x²/2) < 2^-bits
    one = bits + 2 * square + 32  # terms grow up to e^(x²/2) before they fall
    y, term, found, n = x * x << one >> 2 * bits, abs(x) << one - bits, 0, 0
    while term:
        found, n = found + (-1) ** n * (term // (2 * n + 1)), n + 1
        term = term * y // (2 * n << one)
    normal = (found << one) // math.isqrt(8 * arctan(1 << one, one) << one)
    return x * ((1 << one - 1) + (normal if x > 0 else -normal)) >> one


ACTIVATIONS = {"tanh": tanh, "sigmoid": sigmoid, "arctan": arctan, "gelu": gelu}
GUARD = 32  # more bits for the activations, which are off by a few units for each of their terms


def activated(z, name, bits):
    """An activation of every number: none of them changes more than twice as fast as its argument."""
    BUDGET.charge(len(z.numbers) * bits, len(z.numbers) * bits * bits // 64)
    z, fine = rounded(z, bits), bits + GUARD
    found = tuple(ACTIVATIONS[name](x << GUARD, fine) >> GUARD for x in z.numbers)
    return Vec(found, 1 << bits, 2 * z.radius + 2)


def shares(z, bits):
    """e^(number - largest number) for numbers over 2^bits, each to within 2."""
    BUDGET.charge(len(z.numbers) * bits, len(z.numbers) * bits * bits // 64)
    return [exponential(max(z.numbers) - x, bits) for x in z.numbers]


def softmax_mean(V, scores, bits):
    """The mean of the vectors V, weighted by softmax of the scores.

    Weights that sum to 1 may be off by t in all: that moves the mean by at most t times the spread of the vectors.
    Scores off by r change each weight by a factor of at most e^2r, so t <= e^2r - 1 <= 4r where 4r <= 1, and t <= 1
    anyway; shares off by 2/2^bits each, of which the largest is 1, add 4/2^bits for each of them.
    """
    scores, everything, width = rounded(scores, bits), rounded(joined(V), bits), len(V[0].numbers)
    weights, columns = shares(scores, bits), [everything.numbers[c::width] for c in range(width)]
    spread = max((max(column) - min(column) for column in columns), default=0) + 2 * everything.radius
    off = min(1 << bits, 4 * scores.radius) + 4 * len(V)
    mean = tuple(sum(v * w for v, w in zip(column, weights, strict=True)) // sum(weights) for column in columns)
    return Vec(mean, 1 << bits, everything.radius + (spread * off >> bits) + 2)


def the_largest(z):
    """The places of the largest numbers."""
    best = max(z.numbers)
    found = [k for k, x in enumerate(z.numbers) if x >= best - 2 * z.radius]
    if z.radius and len(found) > 1:
        raise Undecided("it stays open which number is the largest")
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


def weights_of(stored):
    """How many entries all matrices and vectors in a part of the file have, and those that are not zero."""
    if isinstance(stored, Matrix):
        return stored.height * stored.columns, stored.weights
    if isinstance(stored, tuple):
        return 1, [stored] if stored[0] else []
    parts = stored.values() if isinstance(stored, dict) else stored if isinstance(stored, list) else ()
    found = [weights_of(part) for part in parts]
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
    return z._replace(numbers=tuple(max(x, 0) for x in z.numbers))


def on_token(layer, z):
    """The layers that act on each token alone."""
    match layer["layer"]:
        case "affine":
            y = affine(layer["weight"], layer["bias"], z)
            return relu(y) if layer["relu"] else y
        case "residual":
            hidden = relu(affine(layer["weight1"], layer["bias1"], z))
            return total([z, affine(layer["weight2"], layer["bias2"], hidden)])
        case "threshold":
            y = affine(layer["weight"], layer["bias"], z)
            if any(-y.radius <= x < y.radius for x in y.numbers):
                raise Undecided("it stays open whether a number reaches a threshold")
            return Vec(tuple(int(x >= 0) for x in y.numbers), 1)
    table, strides = layer["table"], layer["strides"]  # embedding
    need(len(strides) == len(z.numbers), "the tokens do not fit the embedding")
    BUDGET.charge(len(z.numbers) + table.columns)
    row, rest = divmod(sum(a * b for a, b in zip(strides, z.numbers, strict=True)), z.den)
    if rest or not 0 <= row < table.height:
        raise NoAnswer("a token is outside the embedding table")
    return table.row(row)


def on_row(layer, row):
    """Global token, pool, flatten."""
    width, given = len(layer["stream"]) if "stream" in layer else layer["width"], len(row[0].numbers)
    need(given == width, f"a layer gives {given} numbers, the next takes {width}")
    if layer["layer"] == "global-token":
        hub = [exactly(layer["stream"])]
        return hub + row if layer["place"] == "start" else row + hub
    if layer["layer"] == "pool":
        return [total(row)]
    if len(row) != layer["tokens"]:
        raise NoAnswer(f"the network reads exactly {layer['tokens']} tokens")
    return [joined(row)]


def allowed(pattern, k, n):
    """Which tokens token k of n attends to."""
    if pattern == "full" or (pattern == "star-in" and k == n - 1):
        return tuple(range(n))
    if pattern == "causal":
        return tuple(range(k + 1))
    return (k, n - 1) if pattern == "star-out" and k < n - 1 else (k,)


def attend(layer, row, wanted, bits):
    """Attention for the wanted tokens: z and, from each head, a mean over the allowed tokens."""
    found = {k: [row[k]] for k in wanted}
    for head in layer["heads"]:
        V = held(tidy(head["output"](head["value"](z)), bits) for z in row)
        K = held(head["key"](z) for z in row) if head["key"] else None
        last, mean = None, None  # tokens that attend alike are adjacent
        for k, parts in found.items():
            keys = allowed(layer["pattern"], k, len(row))
            BUDGET.charge(len(keys) * (len(V[0].numbers) + 4 * head["key"].height if K else 1))
            if K:
                query = head["query"](row[k])
                scores = joined([product(K[j], query) for j in keys])
                if layer["kind"] == "softmax" and (scores.radius or len(set(scores.numbers)) > 1):
                    parts.append(softmax_mean([V[j] for j in keys], scores, bits))
                    continue
                keys = tuple(keys[place] for place in the_largest(scores))
            if keys != last:
                BUDGET.charge(len(keys) * len(V[0].numbers))
                added, last = total([V[j] for j in keys]), keys
                mean = added._replace(den=added.den * len(keys))
            parts.append(mean)
    return held(total(parts) for parts in found.values())


class Network:
    """Layers, whose output is read, and how it becomes a class."""

    def __init__(self, stored):
        self.layers, self.read, self.readout = layers, _, _ = stored["layers"], stored["read"], stored["readout"]
        kinds = self.kinds = [layer["layer"] for layer in layers]
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
        self.bits = SPARE_BITS + max((bits_of(w) for w in weights_of(layers)[1]), default=0)
        self.known = {}  # what small vectors become

    def ask(self, points):
        """Class indices of the tokens that are read, None for none."""
        BUDGET.hold(len(points) * max(WIDTHS[layer["layer"]](layer) for layer in self.layers))
        row = [exactly(point) for point in points]
        return refined(lambda bits: [self._class(z) for z in self._outputs(row, bits)], self.bits)

    def _token(self, place, z):
        if (found := self.known.get((place, z))) is None:
            found = on_token(self.layers[place], z)
            if size_of(z) + size_of(found) < 1 << 14 and len(self.known) < 1 << 14:
                self.known[place, z] = found
        return found

    def _outputs(self, row, bits):
        """The row after all layers; after the last layer that mixes tokens only those that are read are left."""
        start, stop = 0, len(row)  # the row's own tokens, without a global one
        for place, layer in enumerate([{"layer": "none"}, *self.layers], start=-1):
            kind = layer["layer"]
            if kind in ("global-token", "pool", "flatten"):
                row = on_row(layer, row)
                start, stop = int(layer.get("place") == "start"), len(row) - (layer.get("place") == "end")
            elif kind not in ("none", "attention"):
                row = held(self._token(place, z) for z in row)
            asked = range(len(row)) if place != self.last else range(start if self.read == "each" else stop - 1, stop)
            row = attend(layer, row, asked, bits) if kind == "attention" else [row[k] for k in asked]
            row = held(tidy(z, bits) for z in row)
        return row

    def _class(self, z):
        """The class index of an output; None where it is no class."""
        decode, classes, offset = (self.readout[name] for name in ("decode", "classes", "offset"))
        need(len(z.numbers) == (1 if decode == "value" else classes), "the outputs do not fit the readout")
        if decode == "argmax":
            found = the_largest(z)
            return found[0] if len(found) == 1 else None
        if z.radius:
            raise Undecided("a number that is not exact cannot be shown to be whole")
        index, rest = divmod(z.numbers[0] - offset * z.den, z.den)
        return index if rest == 0 and 0 <= index < classes else None

    def size(self):
        """The sizes of the network, counted as the page defines."""
        kinds, linear = self.kinds, [layer.get("relu") is False for layer in self.layers]
        first, last = int(kinds[0] == "flatten"), len(kinds)
        if first < last and (kinds[first] == "embedding" or linear[first]):
            first += 2 if kinds[first : first + 2] == ["embedding", "flatten"] else 1
        inner = range(first, last - (last > 1 and linear[-1]))
        forward = [kinds[k] in ("affine", "threshold", "residual") for k in inner]
        attention = [kinds[k] == "attention" for k in inner]
        alone = sum(a and not f for a, f in zip(attention, [*forward[1:], False], strict=False))
        entries, weights = weights_of(self.layers)
        bits, width = [bits_of(w) for w in weights], max((WIDTHS[kinds[k]](self.layers[k]) for k in inner), default=1)
        counted = entries, len(bits), max(bits, default=0), sum(bits), width, sum(forward) + sum(attention)
        embedded = sum(weights_of(layer)[0] for layer in self.layers if layer["layer"] == "embedding")
        return dict(zip(FIELDS["size"], (*counted, sum(forward) + alone, sum(attention), embedded), strict=True))


# ------------------------------------------------------------------------------------------------ decoders
# A decoder gives a context (numbers of tokens) one logit for each token that may follow. Rows multiply from the left.


class Decoder:
    """Tokens have their own numbers: those of the encoder's codes (`inputs`), and those of the classes."""

    def __init__(self, stored):
        inner = self.inner = stored["decoder"]
        self.read, self.inputs, self.classes = (stored[name] for name in ("read", "inputs", "classes"))
        self.table = Network(inner["network"]) if "network" in inner else None
        if self.table:
            rows, columns, codes = inner["coordinates"], inner["columns"], inner["codes"]
            self.length, self.vocabulary = inner["length"], len(codes)
            fits = self.table.read == "last" and self.table.readout["classes"] == rows.height
            fits = fits and columns.height == self.vocabulary >= max(codes, default=0)
            need(fits and rows.columns == columns.columns, "the network, its codes and the table do not fit")
        else:
            positions, self.vocabulary = inner["mixer"]["positions"], inner["embedding"].height
            self.length = positions.height if isinstance(positions, Matrix) else len(positions)
            need(inner["output"] and inner["mixer"].get("heads") != [], "a decoder needs an output and its heads")
        for given in (self.inputs, self.classes):
            distinct = len(set(given)) == len(given) > 0
            need(distinct and max(given) < self.vocabulary, "inputs and classes must be distinct tokens")
        known = re.findall("[0-9a-f]{16}", stored["known"])
        need("".join(known) == stored["known"] and known == sorted(set(known)), "network.known is not in its one form")
        self.bits = SPARE_BITS + max([0, *(m.bit_length() + e for m, e in weights_of(inner)[1])])
        self.largest = cache(lambda context: refined(lambda bits: self._largest(context, bits), self.bits))

    def contexts(self, codes):
        """The queries: the whole row, or each of its prefixes."""
        row = tuple(self.inputs[code - 1] for code in codes)
        return [row[: k + 1] for k in range(len(row))] if self.read == "each" else [row]

    def ask(self, points):
        """The class of the largest logit after each context; None if that token is not a class."""
        found = [self.largest(context) for context in self.contexts([code for ((code, _),) in points])]
        return [self.classes.index(token) if token in self.classes else None for token in found]

    def _largest(self, context, bits):
        found = the_largest(self.logits(context, bits))
        if len(found) > 1:
            raise Undecided("two logits are equal and the largest")
        return found[0]

    def logits(self, context, bits):
        z = self._looked_up(context) if self.table else self._computed(context, bits)
        need(len(z.numbers) == self.vocabulary, "the decoder gives another number of logits than it has tokens")
        return z

    def _looked_up(self, context):
        """An exact network names the row of a table that has the context's logits."""
        table, row, short = self.inner["coordinates"], None, self.length - len(context)
        codes = [0] * short + [self.inner["codes"][token] for token in context]
        if min(codes[short:]) > 0 and (self.inner["padded"] or not short):
            (row,) = self.table.ask([[(code, 0), (place, 0)] for place, code in enumerate(codes)])
        return self.inner["columns"](exactly([(0, 0)] * table.columns) if row is None else table.row(row))

    def _computed(self, context, bits):
        """One vector for the context, by attention or an average, a hidden layer, and logits."""
        inner, mixer = self.inner, self.inner["mixer"]
        Z = [inner["embedding"].row(token) for token in context]
        if "heads" in mixer:
            Z = [total([z, mixer["positions"].row(place)]) for place, z in enumerate(Z)]
            means = []
            for head in mixer["heads"]:
                query = head["query"](Z[-1])
                means.append(head["value"](softmax_mean(Z, joined([product(head["key"](z), query) for z in Z]), bits)))
            x = mixer["output"](joined(means))
        else:
            u = exactly(mixer["positions"])
            x = total([Vec(tuple(w * x for x in z.numbers), z.den * u.den) for z, w in zip(Z, u.numbers, strict=False)])
        x = total([x, Z[-1]]) if inner["skip"] else x
        z = activated(tidy(affine(inner["hidden"], inner["bias"], x), bits), inner["activation"], bits)
        for part in inner["output"]:
            z = tidy(part(z), bits)
        return z

    def size(self):
        inner, heads = self.inner, [] if self.table else self.inner["mixer"].get("heads", [])
        if self.table:
            found, (entries, weights) = self.table.size(), weights_of([inner["coordinates"], inner["columns"]])
            added = {"parameters": entries, "nonzero": len(weights), "total_bits": 64 * len(weights), "depth": 1}
            largest = {"max_bits": 64 if weights else 0, "width": inner["coordinates"].columns}
            found |= {name: found[name] + more for name, more in added.items()}
            return found | {name: max(found[name], most) for name, most in largest.items()}
        entries, weights = weights_of(inner)
        width = max(inner["embedding"].columns, inner["hidden"].height, sum(head["value"].height for head in heads))
        counted = entries, len(weights), 64, 64 * len(weights), width, 1 + bool(heads), 1, int(bool(heads))
        return dict(zip(FIELDS["size"], (*counted, weights_of(inner["embedding"])[0]), strict=True))


# ------------------------------------------------------------------------------------------------ asking


def identity(value):
    """Equal for values of one type and value alone: 1, 1.0, True and "1" differ, and so do 0.0 and -0.0."""
    if isinstance(value, tuple | list):
        return type(value), tuple(map(identity, value))
    return type(value), value.hex() if isinstance(value, float) else value


def rank(token):
    """Symbols are sorted by type and then by value; -0.0 comes before 0.0."""
    place = [type(None), bool, int, float, str].index(type(token))
    return place, 0 if token is None else token, math.copysign(1, token) if place == 3 else 0


class Memory:
    """A file that can be queried: cells become tokens, tokens input vectors, outputs labels."""

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
            fits = len(self.symbols or ()) == len(self.decoder.inputs) and self.length == self.decoder.length
            need(fits and self.task in ("next-token", "causal"), "the encoder does not fit the decoder")
        need(not self.distributions or (self.decoder and self.positions), "only a decoder with positions has a gap")
        count = len(self.decoder.classes) if self.decoder else self.network.readout["classes"]
        need(len({*map(identity, self.classes)}) == len(self.classes) == count, "the classes do not fit the network")
        need(self.per_token == (self.network.read == "each"), f"{self.task} is not read at {self.network.read}")
        BUDGET.hold(self.length * (self.dimension + 1) if self.padded else 0)

    def tokens(self, cell):
        """The tokens of a cell, of any number: those of a list, or of a text, tokenized as the file records."""
        found = self._cut(cell) if isinstance(cell, str) else cell if isinstance(cell, list) else [cell]
        for token in found:
            fits = all(type(x) in (int, float) for x in token) if isinstance(token, list) else type(token) is not dict
            need(fits, f"{str(token)[:40]} is not a token: a text, a number, true, false, null or a list of numbers")
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
        points, padding = self.points(row), []
        if not self.decoder:
            padding = [self.pad or [(0, 0)]] * (self.length - len(points) if self.pads else 0)
            points = [[*point, (place, 0)] if self.positions else point for place, point in enumerate(padding + points)]
        found = self.network.ask(points)[len(padding) if self.per_token else 0 :]
        return [NoAnswer if k is None else self.classes[k] for k in found]


def finite(written):
    need(math.isfinite(float(written)), f"{written[:40]} is too large a number")
    return float(written)


def convert(value, kind):
    """A value as the type that a user requested; `auto` and null leave it as it is."""
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
TEXTS = ["sequence", "sequences", "tokens", "text", "premise", "sentence"]  # the whole input, beside other columns
LABELS = ["label", "labels", "y", "target", "class", "output", "answer"]
DOCUMENTS = ["text", "story", "document", "doc", "content", "body", "sentence", "review", "premise"]
DOCUMENTS += ["tokens", "sequence", "input"]


def read_table(path, header):
    """Rows of CSV, TSV, JSON Lines, or a text with a row on each line: its place, and its cells by column."""
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
        end = [""] if len(letters) < memory.length else []  # the end of the text is a separate class
        found.append((f"page {page}", [page, *letters][: memory.length], letters + end))
    return found


def columns(names, memory, flags):
    """The columns of the sequence and of the label (none: next tokens): the user's, else those of the file, unless DATA
    has labels in another column or the label is the input; else usual names."""

    def usual(words, taken):
        return [name for word in words for name in names if name.lower() == word and name not in taken][:1]

    if memory.distributions and memory.task != "causal":
        return ["context"], ["next"]
    then = memory.stored["selection"]
    target = [flags.label_column] if flags.label_column else []
    if then["sequence_columns"] and not memory.distributions:
        recorded = [then["label_column"]] if then["label_column"] is not None else []
        clear = target or (usual(LABELS, []) in ([], recorded) and not {*recorded} & {*then["sequence_columns"]})
        need(clear, "DATA has labels in another column than FILE, or FILE echoes its input: name both columns")
        chosen = flags.sequence_column or then["sequence_columns"]
        target = target or recorded
        return [name for name in names if name not in target] if chosen == ["*"] else chosen, target
    known = DOCUMENTS if memory.distributions else SEQUENCES if memory.task == "causal" or len(names) == 2 else TEXTS
    chosen = flags.sequence_column or then["sequence_columns"] or usual(known, target or usual(LABELS, []))
    if memory.distributions:
        labelled = not flags.sequence_column and usual(LABELS, chosen)
        need(not labelled, "DATA has labels, which FILE lacks: name --sequence-column if its texts alone count")
        return chosen or names[: len(names) == 1], []
    target = target or usual(LABELS, chosen)
    chosen = [name for name in names if name not in target] if chosen == ["*"] else chosen
    if len(names) == 2 and memory.task != "causal":  # what is left over is clear
        chosen = chosen or [name for name in names if name not in target][:1]
        target = target or [name for name in names if name not in chosen][:1]
    need(chosen and (target or memory.task == "causal"), "name --sequence-column and --label-column")
    return chosen, target


def read_cases(memory, flags):
    """The rows of DATA: their place, the cell of the sequence, the cell of the label; None: missing."""
    if flags.data.lower().endswith(".txt") and memory.has_pages:
        return read_pages(flags.data, memory)
    then = memory.stored["selection"]
    said = flags.label_type or then["label_type"] == "auto" or memory.distributions
    need(said, f"FILE was built with --label-type {then['label_type']}: give it")
    need(not then["encoding"], "FILE records an encoding, and this checker reads UTF-8 alone")
    names = [name for name in (*then["sequence_columns"], then["label_column"]) if name is not None]
    bare = bool(names) and all(re.fullmatch("column [1-9][0-9]*", name) for name in names)  # there was no header
    rows = read_table(flags.data, flags.header and then["header"] is not False and not bare)
    need(rows, f"{flags.data} has no rows")
    chosen, target = columns(list(dict.fromkeys(name for _, row in rows for name in row)), memory, flags)
    for place, row in rows:
        for name in chosen + target:
            need(name in row, f"{flags.data}, {place} has no column {name!r}")
    pick = (lambda row: row[chosen[0]]) if len(chosen) == 1 else (lambda row: [row[name] for name in chosen])
    return [(place, pick(row), row[target[0]] if target else NEXT) for place, row in rows]


def question(memory, cell, given, flags):
    """The tokens to query and the labels to expect: one, one per token, or the next tokens; or why it is skipped."""
    row, most = [] if cell is None else memory.tokens(cell), flags.max_length
    if memory.distributions:
        need(all(type(token) in (str, int) for token in row), "a document is a text, or a list of texts and integers")
        need(given is NEXT or isinstance(given, dict), "a context needs an object of texts and their weights as `next`")
        row, most = (row[:most], most) if given is NEXT else (row, None)  # documents are split first
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
        need(policy == "label" or flags.missing == "drop", "a value is missing: give --missing drop or --missing label")
        if policy == "drop":
            return "by --missing drop"
        need(given is not None or not memory.per_token, "a row has no labels at all: give one, or null, for each token")
    if memory.distributions and not labels:
        return "a single token, which nothing follows"
    single = memory.distributions or not any(isinstance(value, list | dict) for value in labels)
    need(single, "a label is a text, a number, true, false or null, not a list or an object")
    row, labels = (row or [None])[:most], labels[:most] if memory.per_token else labels
    most, filler = memory.cutting["max_length"], memory.cutting["pad"]  # the file truncates and pads rows
    row = row[:most] + ([filler] * (most - len(row)) if filler is not None else [])
    convertible = given is not NEXT and not memory.distributions
    return row, [convert(value, flags.label_type or "auto") for value in labels] if convertible else labels


# ------------------------------------------------------------------------------------------------ the verdict


def check(flags):
    """The verdict about every row of DATA, with counts."""
    BUDGET.limit, BUDGET.done, BUDGET.kept = flags.max_work, 0, 0
    numbers = [x for x in (flags.gap, flags.max_work, flags.max_rows, flags.max_length) if x is not None]
    need(all(0 < x < math.inf for x in numbers), "the numbers of flags must be above 0")
    memory = Memory(read_memory(flags.file))
    kept, left_out = [], Counter()
    for where, cell, given in read_cases(memory, flags):
        try:
            asked = question(memory, cell, given, flags)
        except Undecided as error:
            asked = error
        if isinstance(asked, str):
            left_out[asked] += 1
        else:
            kept.append((where, asked))
    need(kept, "no row is left to ask")
    if flags.max_rows is not None and len(kept) > flags.max_rows:
        left_out[f"beyond --max-rows {flags.max_rows}"] = len(kept) - flags.max_rows
    found = {"agree": [], "differ": [], "undecided": []}  # rows, in words
    gap = (judge_gap if memory.distributions else judge_rows)(memory, kept[: flags.max_rows], flags, found, left_out)
    counts = {name: len(rows) for name, rows in found.items()}
    size, broken, guarantee = judge_guarantee(memory)
    verdict = "refuted" if broken or counts["differ"] else PROVED if counts["agree"] else "undecided"
    verdict = "undecided" if counts["undecided"] and verdict == PROVED else verdict
    right = gap["words"] if gap else f"{counts['agree']} rows get their labels"
    return {
        **{"verdict": verdict, "reason": [*found["differ"][:1], *broken, *found["undecided"][:1], right][0]},
        **{"rows": sum(counts.values()) + left_out.total(), "asked": sum(counts.values()), **counts},
        **{
            "left_out": left_out.total(),
            "left_out_by": dict(left_out),
            "gap": gap,
            "size": size,
            "guarantee": guarantee,
        },
    }


def judge_guarantee(memory):
    """The sizes, where they are not as recorded and guaranteed, and words about that."""
    size, claim, recorded = memory.network.size(), memory.stored["claim"], memory.stored["certificate"]["size"]
    need(set(claim["bounds"]) <= set(size), "memory.claim.bounds names something that is not a size")
    broken = [f"{name} is {n}, recorded is {recorded[name]}" for name, n in size.items() if n != recorded[name]]
    over = [(name, most) for name, most in claim["bounds"].items() if size[name] > most]
    broken += [f"{name} is {size[name]}, guaranteed is at most {most}" for name, most in over]
    kept = "broken by the sizes" if over else "kept by the sizes" if claim["bounds"] else "no sizes are guaranteed"
    unchecked = "".join(f"; not checked: {name}" for name in claim["properties"])
    return size, broken, f"{claim['paper']}, {claim['label']}: recorded, not derived again; {kept}{unchecked}"


def judge_rows(memory, kept, flags, found, left_out):
    """Each row by itself: it agrees, differs or stays undecided, or --conflicts excuses it."""
    labels_of, disputes = {}, []  # the labels of equal rows in DATA
    for place, (where, asked) in enumerate(kept):
        if place == PROBE:
            BUDGET.expect(BUDGET.done * len(kept) // PROBE)
        try:
            if isinstance(asked, Undecided):
                raise asked
            key, expected = map(identity, asked)
            labels_of.setdefault(key, set()).add(expected)
            answers = memory.ask(asked[0])
            if identity(answers) == expected:
                found["agree"].append(where)
            else:
                words = f"{where}: the label is {spelled(asked[1])}, the file returns {spelled(answers)}"
                disputes.append((words, key, identity(answers)))
        except NoAnswer as error:
            disputes.append((f"{where}: {error}", key, None))
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


# ------------------------------------------------------------------------------------------------ distributions
# A memory of distributions: one statement about all rows together. After a context, tokens follow with weights w of
# the sum c. The file's answers cost Σ w·(log Σ e^logits - logit), the entropy is Σ w·log(c/w), and the gap is what the
# cost is above the entropy.


def judge_gap(memory, kept, flags, found, left_out):
    """Sorts the rows by whether the gap is as small as is allowed. Returns how large it is."""
    follows, rows, strange = {}, [], []  # context -> the weight of each token that follows; where, and its contexts
    for where, asked in kept:
        try:
            need(not isinstance(asked, Undecided), f"{where}: {asked}")
            rows.append((where, count_followers(memory, where, *asked, follows)))
        except NoAnswer as error:
            strange.append(f"{where}: {error}")
    try:
        if strange:
            raise Undecided("other rows differ")
        gap, beyond = refined(lambda bits: gap_of(memory, follows, flags.gap, bits), memory.decoder.bits)
    except Undecided as error:
        found["differ"], found["undecided"] = strange, [f"{where}: {error}" for where, _ in rows]
        return None
    low, high, entropy, allowed = gap
    words = f"at most {nats(high)}" if high <= allowed else f"at least {nats(low)}"
    words = f"the gap is {words}, {nats(allowed)} are allowed"
    guilty = [bool(beyond & {*contexts}) for _, contexts in rows]
    for (where, _), differs in zip(rows, guilty if any(guilty) else [high > allowed] * len(rows), strict=True):
        found["differ" if differs else "agree"].append(f"{where}: {words}")
    numbers = {"entropy": entropy, "lower": low, "upper": high, "allowed": allowed}
    return {name: float(x) if abs(x) < 1e300 else None for name, x in numbers.items()} | {"words": words}


def count_followers(memory, where, row, labels, follows):
    """Adds a row's contexts: a token that follows, or a distribution, which counts once."""
    contexts = memory.decoder.contexts([code for ((code, _),) in memory.points(row)])
    if len(contexts) != len(labels):
        raise NoAnswer(f"it has {len(labels)} labels, the file truncates rows to {len(contexts)} tokens")
    numbers = dict(zip(map(identity, memory.classes), memory.decoder.classes, strict=True))
    for context, given in zip(contexts, labels, strict=True):
        once, told = isinstance(given, dict), Counter()
        for name, w in given.items() if once else [(given, 1)]:
            need(type(w) in (int, float) and 0 <= w < 1e300, f"{where}: {str(w)[:40]} is not a weight")
            if identity(name) not in numbers:
                raise NoAnswer(f"it is followed by {str(name)[:40]!r}, which the file never returns")
            told[numbers[identity(name)]] = Fraction(float(w))
        told = +told  # without zeros
        enough = told and min(told.values()) >= Fraction(1e-290) * told.total()
        need(enough, f"{where}: weights are missing or too small")
        need(not once or follows.get(context, told) == told, f"{where}: the same tokens have another distribution")
        follows[context] = told if once else follows.get(context, Counter()) + told
    return contexts


def gap_of(memory, follows, fraction, bits):
    """The gap's ends, the entropy, the allowed gap; and the contexts with more than their share if it is too large."""
    one, gaps, entropies = 1 << bits, {}, {}  # of each context: a number, and how far it may be off
    for place, (context, told) in enumerate(follows.items()):
        if place == PROBE:
            BUDGET.expect(BUDGET.done * len(follows) // PROBE)
        z, c = rounded(memory.decoder.logits(context, bits), bits), told.total()
        mass = Fraction(sum(shares(z, bits)), one)  # at least 1, and off by 2 for each token at most
        cost = c * (max(z.numbers) + logarithm(mass, bits)) - sum(w * z.numbers[token] for token, w in told.items())
        entropies[context] = sum(w * logarithm(c / w, bits) for w in told.values()), 2 * c
        gaps[context] = cost - entropies[context][0], c * (2 * z.radius + 4 * len(z.numbers) + 4)
    gap, off = (sum(part[k] for part in gaps.values()) / one for k in (0, 1))
    entropy, doubt = (sum(part[k] for part in entropies.values()) / one for k in (0, 1))
    weight, certain = sum(told.total() for told in follows.values()), all(len(told) == 1 for told in follows.values())
    least, most = (Fraction(fraction) * (weight if certain else end) for end in (entropy - doubt, entropy + doubt))
    if gap - off <= most and gap + off > least:
        raise Undecided(f"the gap lies between {nats(gap - off)} and {nats(gap + off)}")
    shares_of = {context: most * one * follows[context].total() / weight for context in follows}
    beyond = {context for context, (x, r) in gaps.items() if x - r > shares_of[context]}
    return (gap - off, gap + off, entropy, least), beyond if gap - off > most else set()


def nats(x):
    return f"{float(x):.6g} nats" if abs(x) < 1e300 else "over 1e300 nats"


# ------------------------------------------------------------------------------------------------ the program


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("file", metavar="FILE", help="a memory that byheart wrote")
    add("data", metavar="DATA", help=".csv, .tsv, .jsonl, or .txt for a memory of a text")
    add("--sequence-column", action="append", metavar="NAME", help="repeated: their cells are the tokens; * for all")
    add("--label-column", metavar="NAME", help="both are those of FILE unless given")
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
    lines = [f"{found['verdict']}: {found['reason']}", f"{counts}; skipped: {why}", f"guarantee: {found['guarantee']}"]
    print(json.dumps(found) if flags.json else "\n".join(map(shown, lines)))
    return 0 if found["verdict"] == PROVED else 1


if __name__ == "__main__":
    sys.exit(main())
