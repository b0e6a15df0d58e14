#!/usr/bin/env python3
"""A second checker for byheart's memories, written from docs/file-format.md. It needs Python 3.11 and nothing else.

    python check.py names.byheart names.csv
    python check.py names.byheart rows.jsonl --sequence-column first --label-column country --json

It asks the file every row of DATA as a user would, exactly, and compares each answer with DATA's own label, by type
and value. `answers proved` says that every row of DATA gets its label; the promise of the construction's theorem is
compared with the sizes counted here, but not derived again. Exit status: 0 answers proved; 1 refuted or undecided;
2 FILE or DATA is not usable, or needs more than the budget; 3 a defect of this program.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import math
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

FORMAT = 1
SAFE = 1 << 53  # integers below are plain JSON numbers
MOST_BITS = 1 << 22  # of one weight
LONGEST = 1 << 24  # tokens of a row
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
    """Work is counted before it is done: 64 units a product, and one more for each pair of 64-bit words in it."""

    def __init__(self, work: int, memory: int) -> None:
        self.work, self.memory, self.done = work, memory, 0

    def charge(self, products: int, words: int = 0) -> None:
        self.done += 64 * products + words
        self.expect(self.done)

    def expect(self, work: int) -> None:
        need(work <= self.work, f"about {work:,} units of work are needed, the limit is {self.work:,}: see --max-work")

    def hold(self, numbers: int, bits: int, what: str) -> None:
        size = numbers * (64 + bits // 8)  # bytes; a small Python integer and its place in a list take about 64
        need(size <= self.memory, f"{what} needs {size:,} bytes, the limit is {self.memory:,}: see --max-memory")


# ------------------------------------------------------------------------------------------------ the format
# A form is a type, a set of values, [form of the items], {field: form}, (form of the first, form of the second) of a
# pair, or a function that refuses what it does not take. `Maybe(form)` also takes null, `Named(form)` any field names.


class Maybe(NamedTuple):
    form: Any


class Named(NamedTuple):
    form: Any


def check_form(value: Any, form: Any, where: str) -> None:
    if isinstance(form, Maybe):
        if value is not None:
            check_form(value, form.form, where)
    elif isinstance(form, Named):
        need(isinstance(value, dict), f"{where} must be an object")
        check_form(value, dict.fromkeys(value, form.form), where)
    elif isinstance(form, dict):
        exactly = isinstance(value, dict) and set(value) == set(form)
        need(exactly, f"{where} must be an object with the fields {', '.join(form)}, and no others")
        for name, part in form.items():
            check_form(value[name], part, f"{where}.{name}")
    elif isinstance(form, list | tuple):
        fits = isinstance(value, list) and (isinstance(form, list) or len(value) == len(form))
        need(fits, f"{where} must be a list" + (f" of {len(form)}" if isinstance(form, tuple) else ""))
        for item, part in zip(value, form * len(value) if isinstance(form, list) else form, strict=True):
            check_form(item, part, where)
    elif isinstance(form, set):
        need(isinstance(value, str) and value in form, f"{where}: {str(value)[:40]!r} is unknown")
    elif isinstance(form, range):
        need(type(value) is int and value in form, f"{where} must be an integer from {form[0]} to {form[-1]}")
    elif isinstance(form, type):
        need(type(value) is form, f"{where} must be of the type {form.__name__}")
    else:
        form(value, where)


COUNT, SMALL, POSITIVE = range(SAFE), range(1 - SAFE, SAFE), range(1, LONGEST + 1)
Number = tuple[int, int]  # (mantissa, exponent): mantissa·2^exponent
HEXADECIMAL = re.compile(r"(-?0x[1-9a-f][0-9a-f]*)(?:p(-?[1-9][0-9]{0,6}))?")


def number(value: Any, where: str = "a number") -> Number:
    """A weight in its one written form: the mantissa of a text is odd, and the number is not a small integer."""
    if type(value) is int and abs(value) < SAFE:
        return value, 0
    match = HEXADECIMAL.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise Refused(f"{where}: {str(value)[:40]!r} is not a number of this format")
    need(4 * len(match[1]) <= MOST_BITS + 12, f"{where} has more than {MOST_BITS} bits")
    mantissa, exponent = int(match[1], 16), int(match[2] or 0)
    small = exponent >= 0 and mantissa.bit_length() + exponent <= 53
    need(abs(exponent) <= MOST_BITS, f"{where} has a power of two beyond {MOST_BITS}")
    need(mantissa & 1 and not small, f"{where}: {value[:40]!r} is not in its one written form")
    return mantissa, exponent


def symbol(value: Any, where: str = "a symbol") -> int | str:
    """A text, or an integer; one beyond 2^53 is {"integer": hexadecimal text}."""
    if isinstance(value, dict):
        check_form(value, {"integer": str}, where)
        return whole(value["integer"], where)
    check_form(value, str if isinstance(value, str) else SMALL, where)
    return value


def whole(value: Any, where: str) -> int:
    if isinstance(value, str):
        need(re.fullmatch(r"-?0x[1-9a-f][0-9a-f]*", value), f"{where}: {value[:40]!r} is not hexadecimal")
        need(abs(int(value, 16)) >= SAFE, f"{where}: {value[:40]} is not in its one written form")
        return int(value, 16)
    check_form(value, SMALL, where)
    return value


def coordinate(value: Any, where: str = "a coordinate") -> Number:
    """A pair [mantissa, exponent] in lowest terms."""
    check_form(value, (whole, range(-(1 << 16), 1)), where)
    need(value[1] == 0 or whole(value[0], where) & 1, f"{where} is not in lowest terms")
    return whole(value[0], where), value[1]


def label(value: Any, where: str = "classes") -> Any:
    """A class: texts and small integers as they are, anything else tagged with its type."""
    if not isinstance(value, dict):
        return symbol(value, where)
    ((kind, content),) = value.items() if len(value) == 1 else [("", None)]
    tags: dict[str, tuple[Any, Any]] = {
        "int": (lambda t: int(t, 16), hex),
        "float": (float.fromhex, float.hex),
        "bytes": (bytes.fromhex, bytes.hex),
        "bool": (bool, bool),
        "none": (lambda t: None, lambda found: True),
        "tuple": (lambda parts: tuple(map(label, parts)), lambda found: content),
    }
    try:
        read, write = tags[kind]
        found = read(content)
        same = type(write(found)) is type(content) and write(found) == content
    except (KeyError, ValueError, TypeError, OverflowError, RecursionError):
        same = False
    need(same, f"{where}: {str(value)[:40]} is not a label of this format")
    return found


def matrix(value: Any, where: str) -> None:
    check_form(value, {"columns": range(LONGEST + 1), "rows": [[(COUNT, number)]]}, where)
    for row in value["rows"]:
        places = [-1, *(j for j, _ in row), value["columns"]]
        need(all(a < b for a, b in pairwise(places)), f"{where}: columns must ascend, inside the matrix")
        need(all(w != 0 for _, w in row), f"{where}: zeros are not stored")


LAYERS: dict[str, dict[str, Any]] = {
    "affine": {"weight": matrix, "bias": Maybe([number]), "relu": bool},
    "threshold": {"weight": matrix, "bias": [number]},
    "residual": {"weight1": matrix, "bias1": [number], "weight2": matrix, "bias2": [number]},
    "embedding": {"table": matrix, "strides": [COUNT]},
    "attention": {
        "kind": {"uniform", "hardmax", "softmax"},
        "pattern": {"full", "causal", "star-in", "star-out"},
        "heads": [{"value": matrix, "output": matrix, "key": Maybe(matrix), "query": Maybe(matrix)}],
    },
    "pool": {"width": POSITIVE},
    "flatten": {"tokens": POSITIVE, "width": POSITIVE},
    "global-token": {"stream": [number], "place": {"start", "end"}},
}


def layer(value: Any, where: str) -> None:
    kind = value.get("layer") if isinstance(value, dict) else None
    check_form(kind, set(LAYERS), f"{where}.layer")
    check_form(value, {"layer": str} | LAYERS[kind], where)


PIECES = {"bpe", "wordpiece", "unigram", "file"}
KINDS = {"auto", "json", "characters", "bytes", "words", "wordpunct", "integers"} | PIECES
TOKENS = {"kind": KINDS, "model": Maybe(str), "max_length": Maybe(POSITIVE), "pad": Maybe(symbol)}
SIZES = "parameters nonzero max_bits total_bits width depth blocks attention_layers embedding_parameters".split()
MEMORY = {
    "construction": str,
    "options": Named(lambda value, where: None),
    "seed": int,
    "network": {
        "layers": [layer],
        "read": {"last", "each", "pooled"},
        "readout": {"decode": {"value", "argmax"}, "classes": POSITIVE, "offset": SMALL},
        "stages": [(str, POSITIVE)],
    },
    "encoder": {
        "task": {"next-token", "seq-to-seq", "set", "causal"},
        "positions": bool,
        "length": POSITIVE,
        "symbols": Maybe([symbol]),
        "dimension": POSITIVE,
        "padded": bool,
        "pad_vector": Maybe([coordinate]),
    },
    "tokens": lambda value, where: check_form(value, KINDS - PIECES if isinstance(value, str) else TOKENS, where),
    "selection": {
        "sequence_columns": [str],
        "label_column": Maybe(str),
        "max_rows": Maybe(COUNT),
        "conflicts": {"error", "first", "majority", "drop"},
    },
    "classes": [label],
    "claim": {
        "paper": str,
        "label": str,
        "bounds": Named(int),
        "formulas": Named(str),
        "assumptions": [str],
        "properties": [str],
    },
    "certificate": {
        "verdict": {"proved", "refuted", "undecided"},
        "reason": str,
        **dict.fromkeys(("rows", "labels", "contexts"), COUNT),
        "fingerprint": str,
        "size": dict.fromkeys(SIZES, int),
        "promised": Named(int),
        "arithmetic": str,
        "witness": Maybe({"row": COUNT, "position": Maybe(COUNT), "expected": SMALL, "found": SMALL}),
        "proofs": Named(str),
    },
    "notes": [str],
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
    version = document.get("byheart")
    need(type(version) is int and version == FORMAT, f"{path}: format version {version}; this checker reads {FORMAT}")
    check_form(document, {"byheart": int, "memory": dict, "sha256": str}, path)
    memory = document["memory"]
    need(document["sha256"] == hashlib.sha256(canonical(memory)).hexdigest(), f"{path}: the checksum does not match")
    need(canonical(document) == data, f"{path} is not in canonical form: it was edited or damaged")
    check_form(memory, MEMORY, "memory")
    return memory


# ------------------------------------------------------------------------------------------------ exact arithmetic


class Stream(NamedTuple):
    """A token's numbers: number i lies between low[i]/den and high[i]/den. It is exact where `high is low`."""

    low: list[int]
    high: list[int]
    den: int

    def words(self) -> int:
        return 1 + max(x.bit_length() for part in (self.low, self.high, [self.den]) for x in part) // 64


def exact(numerators: list[int], den: int = 1) -> Stream:
    return Stream(numerators, numerators, den)


def stream_of(numbers: list[Number]) -> Stream:
    shift = max([0, *(-e for _, e in numbers)])
    return exact([m << e + shift for m, e in numbers], 1 << shift)


def tidy(s: Stream, bits: int) -> Stream:
    """Lowest terms where the stream is exact; otherwise rounded outwards to multiples of 2^-bits."""
    if s.high is not s.low:
        return Stream([(x << bits) // s.den for x in s.low], [-((-x << bits) // s.den) for x in s.high], 1 << bits)
    common = math.gcd(s.den, *s.low) if s.den > 1 else 1
    return s if common == 1 else exact([x // common for x in s.low], s.den // common)


def each_end(change: Callable[[list[int]], list[int]], s: Stream, den: int) -> Stream:
    low = change(s.low)
    return Stream(low, low if s.high is s.low else change(s.high), den)


def over(s: Stream, den: int) -> Stream:
    """The same stream over a multiple of its denominator."""
    factor = den // s.den
    return s if factor == 1 else each_end(lambda end: [x * factor for x in end], s, den)


def aligned(streams: list[Stream]) -> list[Stream]:
    den = math.lcm(*(s.den for s in streams))
    return [over(s, den) for s in streams]


def plus(a: Stream, b: Stream) -> Stream:
    a, b = aligned([a, b])
    low = [x + y for x, y in zip(a.low, b.low, strict=True)]
    both = a.high is a.low and b.high is b.low
    return Stream(low, low if both else [x + y for x, y in zip(a.high, b.high, strict=True)], a.den)


def relu(s: Stream) -> Stream:
    return each_end(lambda end: [max(x, 0) for x in end], s, s.den)


def bits_of(value: Number) -> int:
    """Binary digits of |value|, whole and fractional part together."""
    mantissa, exponent = value
    return max(mantissa.bit_length() + exponent, 0) + max(-exponent, 0) if mantissa else 0


class Linear:
    """z -> W z + b; the weights are integers over 2^shift. A bias of None is stored nowhere."""

    def __init__(self, stored: Any, bias: list[Any] | None, budget: Budget) -> None:
        rows = [[(j, number(w)) for j, w in row] for row in stored["rows"]]
        added = [number(b) for b in bias or []]
        need(bias is None or len(added) == len(rows), "a bias does not fit its matrix")
        self.shape = self.height, self.columns = len(rows), stored["columns"]
        self.entries = self.height * self.columns + len(added)
        self.numbers = [w for row in rows for _, w in row] + [b for b in added if b[0]]
        shift = self.shift = max([0, *(-e for _, e in self.numbers)])
        sizes = [bits_of(w) + shift for w in self.numbers]
        budget.hold(1, sum(sizes), "a matrix")
        self.longest, self.words, self.budget = max(sizes, default=0), sum(1 + k // 64 for k in sizes), budget
        self.rows = [[(j, m << e + shift) for j, (m, e) in row] for row in rows]
        self.bias = [m << e + shift for m, e in added] or [0] * self.height

    def __call__(self, s: Stream) -> Stream:
        words = s.words()
        self.budget.charge(len(self.numbers) + self.height, self.words * words)
        self.budget.hold(self.height, 64 * words + self.longest, "the output of a layer")
        found = [
            [sum([w * (a if w > 0 else b)[j] for j, w in row], c * s.den) for row, c in zip(self.rows, self.bias)]
            for a, b in ([(s.low, s.high)] if s.high is s.low else [(s.low, s.high), (s.high, s.low)])
        ]
        return Stream(found[0], found[-1], s.den << self.shift)


@lru_cache(maxsize=1 << 14)
def exponential(numerator: int, den: int, bits: int) -> tuple[int, int]:
    """Integers below and above 2^bits·e^-x, for x = numerator/den >= 0.

    e^y for y = x/2^halvings <= 1/2 is a sum of positive terms: cut down they stay below, rounded up they stay above,
    and what follows a term is less than the term. Squaring that as often gives e^x, dividing gives e^-x.
    """
    if numerator > bits * den:  # e^-x < 2^-bits
        return 0, 1
    halvings = (numerator // den).bit_length() + 1
    one = bits + 3 * halvings + 32
    y = (numerator << one - halvings) // den
    low = high = low_term = high_term = 1 << one
    count = 0
    while high_term > 1:
        count += 1
        low_term = low_term * y // (count << one)
        high_term = -(-high_term * (y + 1) // (count << one))
        low, high = low + low_term, high + high_term
    high += 1
    for _ in range(halvings):
        low, high = low * low >> one, -(-high * high >> one)
    return (1 << one + bits) // high, -(-(1 << one + bits) // low)


# ------------------------------------------------------------------------------------------------ the network


class Layer:
    """One layer: the linear maps in it, and the numbers of a token in front of it and behind it."""

    def __init__(self, stored: dict[str, Any], budget: Budget) -> None:
        self.kind, self.stored, self.budget = stored["layer"], stored, budget
        names = (("weight", "bias"), ("weight1", "bias1"), ("weight2", "bias2"), ("table", ""))
        self.maps = [Linear(stored[one], stored.get(two), budget) for one, two in names if one in stored]
        self.heads = [self._head(head) for head in stored.get("heads", [])]
        self.maps += [part for head in self.heads for part in head if part]
        self.hub = [number(x) for x in stored.get("stream", [])]
        self.numbers = [w for part in self.maps for w in part.numbers] + [x for x in self.hub if x[0]]
        self.entries = sum(part.entries for part in self.maps) + len(self.hub)
        self.inward, self.outward, self.width = self._widths()

    def _head(self, stored: dict[str, Any]) -> list[Any]:
        """Value, output, key and query; the latter two are None where attention is uniform."""
        v, o, k, q = (m and Linear(m, None, self.budget) for m in map(stored.get, ("value", "output", "key", "query")))
        scored = self.stored["kind"] != "uniform"
        need((k is not None) == (q is not None) == scored, "uniform attention, and no other, has no keys and queries")
        fits = v.shape == o.shape[::-1] and (not scored or (k.shape == q.shape and k.columns == v.columns))
        need(fits, "the matrices of a head do not fit")
        return [v, o, k, q]

    def _widths(self) -> tuple[int, int, int]:
        """Numbers of a token in front of the layer and behind it, and KS25's max(m, sH, q)."""
        if self.kind == "residual":
            one, two = self.maps
            need(one.shape == two.shape[::-1], "the matrices of a residual layer do not fit")
            return one.columns, one.columns, max(one.shape)
        if self.kind == "embedding":
            need(any(self.stored["strides"]), "an embedding needs a stride that is not 0")
            return len(self.stored["strides"]), self.maps[0].columns, self.maps[0].columns
        if self.kind == "attention":
            widths = {v.columns for v, *_ in self.heads}
            need(len(widths) == 1, "attention needs heads, all on one stream")
            return (*widths, *widths, max(*widths, sum(v.height for v, *_ in self.heads)))
        if self.maps:
            return self.maps[0].columns, self.maps[0].height, self.maps[0].height
        width = self.stored.get("width", len(self.hub))
        return (width, *[width * self.stored.get("tokens", 1)] * 2)

    def on_token(self, s: Stream, bits: int) -> Stream:
        """Affine, threshold, residual, embedding."""
        if self.kind == "embedding":
            table = self.maps[0]
            row, rest = divmod(sum(a * b for a, b in zip(self.stored["strides"], s.low, strict=True)), s.den)
            if rest or not 0 <= row < table.height:
                raise NoAnswer("a token is outside the embedding table")
            found = dict(table.rows[row])
            return tidy(exact([found.get(j, 0) for j in range(table.columns)], 1 << table.shift), bits)
        inner = self.maps[0](s)
        if self.kind == "residual":
            return tidy(plus(s, self.maps[1](tidy(relu(inner), bits))), bits)
        if self.kind == "threshold":
            if any(a < 0 <= b for a, b in zip(inner.low, inner.high, strict=True)):
                raise Undecided("intervals do not decide a threshold")
            return exact([int(x >= 0) for x in inner.low])
        return tidy(relu(inner) if self.stored["relu"] else inner, bits)

    def on_row(self, Z: list[Stream], bits: int) -> list[Stream]:
        """Global token, pool, flatten."""
        if self.kind == "global-token":
            hub = [stream_of(self.hub)]
            return hub + Z if self.stored["place"] == "start" else Z + hub
        if self.kind == "pool":
            total = Z[0]
            for z in Z[1:]:
                total = plus(total, z)
            return [tidy(total, bits)]
        if len(Z) != self.stored["tokens"]:
            raise NoAnswer(f"the network reads exactly {self.stored['tokens']} tokens")
        Z = aligned(Z)
        low, high = [x for z in Z for x in z.low], [x for z in Z for x in z.high]
        return [Stream(low, low if low == high else high, Z[0].den)]

    def attend(self, Z: list[Stream], wanted: range, bits: int) -> list[Stream]:
        """Attention: the wanted tokens receive a mean from each head."""
        new = list(Z)
        for value, output, key, query in self.heads:
            V = aligned([tidy(output(tidy(value(z), bits)), bits) for z in Z])
            scored = key is not None and key.numbers and query.numbers  # otherwise all scores are 0
            K = aligned([key(z) for z in Z]) if scored else []
            before, total = [], exact([0] * self.outward, V[0].den)
            for k in wanted:
                keys = allowed(self.stored["pattern"], k, len(Z))
                self.budget.charge(len(keys) * (self.outward + 4 * len(K[0].low if K else [])), len(keys) * V[0].words())
                if scored:
                    question = query(Z[k])
                    scores = [inner_product(K[j], question) for j in keys]
                    if self.stored["kind"] == "softmax" and any(score != (scores[0][0],) * 2 for score in scores):
                        self.budget.charge(len(keys) * bits, len(keys) * bits * bits // 64)
                        shares = softmax(scores, K[0].den * question.den, bits)
                        new[k] = tidy(plus(new[k], weighted([V[j] for j in keys], shares, bits)), bits)
                        continue
                    keys = largest(keys, scores)
                if keys[: len(before)] != before:
                    before, total = [], exact([0] * self.outward, V[0].den)
                for j in keys[len(before) :]:
                    total = plus(total, V[j])
                before = keys
                new[k] = tidy(plus(new[k], total._replace(den=total.den * len(keys))), bits)
        return new


def allowed(pattern: str, k: int, n: int) -> list[int]:
    """Which tokens token k of n attends to."""
    if pattern == "full" or (pattern == "star-in" and k == n - 1):
        return list(range(n))
    if pattern == "causal":
        return list(range(k + 1))
    return [k, n - 1] if pattern == "star-out" and k < n - 1 else [k]


Ends = tuple[int, int]  # of an interval: integers over a denominator that is known beside it


def inner_product(a: Stream, b: Stream) -> Ends:
    four = [(w * y, w * z, x * y, x * z) for w, x, y, z in zip(a.low, a.high, b.low, b.high, strict=True)]
    return sum(map(min, four)), sum(map(max, four))


def largest(keys: list[int], scores: list[Ends]) -> list[int]:
    """The keys whose scores are the largest."""
    best = max(low for low, _ in scores)
    if len(scores) > 1 and any(low != high and high >= best for low, high in scores):
        raise Undecided("intervals do not decide which score is the largest")
    return [j for j, (low, _) in zip(keys, scores, strict=True) if low == best]


def softmax(scores: list[Ends], den: int, bits: int) -> list[Ends]:
    """e^(score - top) over 2^bits; scores are over den."""
    top = max(high for _, high in scores)
    return [(exponential(top - low, den, bits)[0], exponential(top - high, den, bits)[1]) for low, high in scores]


def weighted(V: list[Stream], shares: list[Ends], bits: int) -> Stream:
    """The mean of streams (over one denominator) by shares."""
    least, most = sum(low for low, _ in shares), sum(high for _, high in shares)
    if least == 0:
        raise Undecided("the intervals of softmax stay too wide")
    low, high = [], []
    for c in range(len(V[0].low)):
        a = sum(v.low[c] * share[v.low[c] < 0] for v, share in zip(V, shares, strict=True))
        b = sum(v.high[c] * share[v.high[c] >= 0] for v, share in zip(V, shares, strict=True))
        low.append((a << bits) // (V[0].den * (most if a >= 0 else least)))
        high.append(-((-b << bits) // (V[0].den * (least if b >= 0 else most))))
    return Stream(low, high, 1 << bits)


class Network:
    """Layers that fit together, whose output is read, and how it becomes a class."""

    def __init__(self, stored: dict[str, Any], budget: Budget) -> None:
        layers = self.layers = [Layer(part, budget) for part in stored["layers"]]
        self.read, self.readout, self.budget = stored["read"], stored["readout"], budget
        kinds = [part.kind for part in layers]
        need(layers and "embedding" not in kinds[1:], "a network needs layers, and only the first may be an embedding")
        for one, two in pairwise(layers):
            need(one.outward == two.inward, f"{one.kind} gives {one.outward} numbers, {two.kind} takes {two.inward}")
        pools = [place for place, kind in enumerate(kinds) if kind in ("pool", "flatten")]
        hubs = [place for place, kind in enumerate(kinds) if kind == "global-token"]
        stars = [place for place, part in enumerate(layers) if part.stored.get("pattern", "").startswith("star")]
        need(bool(pools) == (self.read == "pooled"), "reading the pooled token and a pool or flatten layer go together")
        need(len(hubs) < 2 and all(hub < k for hub in hubs for k in pools), "one global token at most, before pooling")
        need(all(hubs and hubs[0] < k for k in stars), "a star pattern needs a global token before it")
        outputs = 1 if self.readout["decode"] == "value" else self.readout["classes"]
        need(layers[-1].outward == outputs, "the outputs do not fit the readout")
        need(sum(n for _, n in stored["stages"]) in (len(layers), 0), "the stages must cover every layer once")
        self.last = max([0, *(k for k, kind in enumerate(kinds) if kind == "attention"), *pools, *hubs])
        self.longest = max((bits_of(w) for part in layers for w in part.numbers), default=0)
        self.known: dict[Any, Stream] = {}  # what equal tokens become
        self.held = 0  # words of it

    def classes(self, row: list[list[Number]]) -> list[int | None]:
        """Class indices of the tokens that are read, None for none; intervals get more bits until they decide."""
        self.budget.hold(len(row) * max(part.inward for part in self.layers), 0, "a row")
        for doubling in range(DOUBLINGS + 1):
            try:
                bits = (self.longest + SPARE_BITS) << doubling
                return [self._class(s) for s in self._outputs([stream_of(token) for token in row], bits)]
            except Undecided:
                if doubling == DOUBLINGS:
                    raise
        raise AssertionError

    def _outputs(self, Z: list[Stream], bits: int) -> list[Stream]:
        start, stop = 0, len(Z)  # the row's own tokens, without a global one
        for place, part in enumerate(self.layers):
            if part.kind in ("global-token", "pool", "flatten"):
                Z = part.on_row(Z, bits)
                start = int(part.stored.get("place") == "start")
                stop = len(Z) - (part.stored.get("place") == "end")
            asked = range(start, stop) if self.read == "each" else range(stop - 1, stop)
            wanted = asked if place >= self.last else range(len(Z))  # at the end nobody looks at the others
            if part.kind == "attention":
                Z = part.attend(Z, wanted, bits)
            elif part.maps:
                Z = [self._token(part, z, bits) if k in wanted else z for k, z in enumerate(Z)]
        return [Z[k] for k in asked]

    def _token(self, part: Layer, s: Stream, bits: int) -> Stream:
        key = id(part), s.den, *s.low
        if s.high is not s.low or key not in self.known:
            found = part.on_token(s, bits)
            if s.high is not s.low:
                return found
            self.held += len(key) * s.words() + len(found.low) * found.words()
            if self.held > self.budget.memory // 64:
                self.known, self.held = {}, 0
            self.known[key] = found
        return self.known[key]

    def _class(self, s: Stream) -> int | None:
        """The class index of an output; None where it is no class."""
        if self.readout["decode"] == "value":
            first = -(-s.low[0] // s.den) - self.readout["offset"]  # whole numbers inside the interval: first to last
            last = s.high[0] // s.den - self.readout["offset"]
            if first > last or last < 0 or first >= self.readout["classes"]:
                return None
            if s.low[0] != s.high[0]:
                raise Undecided("an interval cannot show that a number is whole")
            return first
        best = max(range(len(s.low)), key=s.low.__getitem__)
        rivals = [k for k in range(len(s.low)) if k != best and s.high[k] >= s.low[best]]
        if rivals and any(s.low[k] != s.high[k] for k in (best, *rivals)):
            raise Undecided("intervals do not decide which output is the largest")
        return None if rivals else best


def measure(layers: list[Layer]) -> dict[str, int]:
    """The sizes of a network, counted as the page says."""
    start, stop = int(layers[0].kind == "flatten"), len(layers)
    if start < stop and (layers[start].kind == "embedding" or layers[start].stored.get("relu") is False):
        start += 1
        start += layers[start - 1].kind == "embedding" and start < stop and layers[start].kind == "flatten"
    stop -= stop > 1 and layers[-1].stored.get("relu") is False
    inner = layers[start:stop]
    forward = [part.kind in ("affine", "threshold", "residual") for part in inner]
    attention = [part.kind == "attention" for part in inner]
    bits = [bits_of(w) for part in layers for w in part.numbers]
    return {
        "parameters": sum(part.entries for part in layers),
        "nonzero": len(bits),
        "max_bits": max(bits, default=0),
        "total_bits": sum(bits),
        "width": max((part.width for part in inner), default=1),
        "depth": sum(forward) + sum(attention),
        "blocks": sum(forward) + sum(a and not f for a, f in zip(attention, [*forward[1:], False], strict=False)),
        "attention_layers": sum(attention),
        "embedding_parameters": sum(part.entries for part in layers if part.kind == "embedding"),
    }


# ------------------------------------------------------------------------------------------------ asking


class Memory:
    """A file that can be asked."""

    def __init__(self, stored: dict[str, Any], budget: Budget) -> None:
        encoder, tokens = stored["encoder"], stored["tokens"]
        self.task, self.length = encoder["task"], encoder["length"]
        self.network = Network(stored["network"], budget)
        self.classes = [label(value) for value in stored["classes"]]
        self.positions, self.padded, self.dimension = encoder["positions"], encoder["padded"], encoder["dimension"]
        self.pads, self.per_token = self.task in ("next-token", "seq-to-seq"), self.task in ("seq-to-seq", "causal")
        self.symbols = None if encoder["symbols"] is None else [symbol(value) for value in encoder["symbols"]]
        self.codes = {same_key(found): k for k, found in enumerate(self.symbols or (), start=1)}
        pad = encoder["pad_vector"]
        self.pad = [(0, 0)] if self.symbols is not None else pad and [coordinate(value) for value in pad]
        named = {"kind": tokens, "max_length": None, "pad": None} if isinstance(tokens, str) else tokens
        self.kind, self.max_length = named["kind"], named["max_length"]
        self.filler = None if named["pad"] is None else symbol(named["pad"])
        self._check(named)

    def _check(self, tokens: dict[str, Any]) -> None:
        """Whether the parts of the file fit together."""
        network, readout = self.network, self.network.readout
        if self.symbols is not None:
            keys = [(isinstance(found, str), found) for found in self.symbols]
            need(keys and all(a < b for a, b in pairwise(keys)), "encoder.symbols must be sorted and distinct")
            need(self.dimension == 1, "the dimension of symbols is 1")
        need(self.pads or not self.padded, f"the task {self.task} never pads")
        need(not (self.positions and self.task == "set"), "a set has no positions")
        vectors = self.padded and self.symbols is None
        need((self.pad is not None) == (vectors or self.symbols is not None), "pad_vector is for padded vectors alone")
        need(self.pad is None or len(self.pad) == self.dimension, "pad_vector has another dimension")
        need(network.layers[0].inward == self.dimension + self.positions, "the tokens do not fit the first layer")
        need((tokens.get("model") is not None) == (self.kind in PIECES), "tokens.model is for trained tokenizers alone")
        need(self.filler is None or self.max_length is not None, "tokens.pad needs tokens.max_length")
        distinct = len(set(map(same_key, self.classes)))
        need(distinct == len(self.classes) == readout["classes"], "the classes do not fit the network")
        need(self.per_token == (network.read == "each"), f"the task {self.task} is not read at {network.read}")

    def tokens(self, cell: Any) -> list[Any]:
        """The tokens of a cell: those of a list (also one written as JSON text), or of a text, cut as the file says."""
        if isinstance(cell, str):
            cell = self._listed(cell) or self._cut(cell)
        row = cell if isinstance(cell, list) else [cell]
        if self.max_length is not None:
            fill = [self.filler] * (self.max_length - len(row)) if self.filler is not None else []
            row = [*row[: self.max_length], *fill]
        return row

    def _listed(self, cell: str) -> list[Any] | None:
        if cell.lstrip().startswith("[") and cell.rstrip().endswith("]"):
            try:
                return parse_json(cell, "a cell", finite)
            except Refused as error:
                if self.kind == "json":
                    raise NoAnswer(str(error)) from None
        return None

    def _cut(self, cell: str) -> list[Any]:
        if self.kind in PIECES:
            raise Undecided(f"cutting texts into {self.kind} pieces needs the library tokenizers; give lists of tokens")
        if self.kind == "json":
            raise NoAnswer("the cell is not a JSON list of tokens")
        if self.kind == "bytes":
            return list(cell.encode("utf-8", "surrogatepass"))
        if self.kind == "words":
            return cell.split()
        if self.kind == "wordpunct":
            return re.findall(r"\w+|[^\w\s]+", cell)
        if self.kind == "integers":
            words = cell.replace(",", " ").split()
            if not all(re.fullmatch(r"[+-]?[0-9]{1,4000}", word) for word in words):
                raise NoAnswer("a token is not an integer")
            return [int(word) for word in words]
        return list(cell)

    def encode(self, row: list[Any]) -> list[list[Number]]:
        """The input vectors of a row of tokens."""
        exactly = self.pads and not self.padded
        if not (len(row) == self.length if exactly else 1 <= len(row) <= self.length):
            raise NoAnswer(f"a row of {len(row)} tokens does not fit the file's {self.length}")
        points = [self._point(token) for token in row]
        if self.pads:
            points = [self.pad] * (self.length - len(row)) + points
        return [[*point, (place, 0)] for place, point in enumerate(points)] if self.positions else points

    def _point(self, token: Any) -> list[Number]:
        if self.symbols is not None:
            if (code := self.codes.get(same_key(token))) is None:
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

    def ask(self, row: list[Any]) -> list[Any]:
        """The answers to a row of tokens: one, or one per token; NoAnswer where the output is no class."""
        found = self.network.classes(self.encode(row))
        found = found[len(found) - len(row) :] if self.per_token else found  # padding comes first and is not asked
        return [NoAnswer if k is None else self.classes[k] for k in found]


def same_key(value: Any) -> Any:
    """Equal for values of one type and value alone: 1, 1.0, True and "1" differ, and so do 0.0 and -0.0."""
    return (tuple, tuple(map(same_key, value))) if isinstance(value, tuple) else (type(value), repr(value))


def finite(written: str) -> float:
    need(math.isfinite(float(written)), f"{written[:40]} is too large a number")
    return float(written)


# ------------------------------------------------------------------------------------------------ the data


def read_table(path: str, header: bool) -> tuple[list[str], list[tuple[str, dict[str, Any]]]]:
    """Column names, and for every row its place in the file and its cells: CSV, TSV or JSON Lines, in UTF-8."""
    try:
        source = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    if path.endswith((".jsonl", ".ndjson")) or (not path.endswith((".csv", ".tsv")) and source.lstrip()[:1] == "{"):
        lines = [(f"line {k}", line) for k, line in enumerate(source.split("\n"), start=1) if line.strip()]
        rows = [(place, parse_json(line, f"{path}, {place}", finite)) for place, line in lines]
        need(all(isinstance(row, dict) for _, row in rows), f"{path}: every line must be a JSON object")
        return list(dict.fromkeys(name for _, row in rows for name in row)), rows
    first = source.lstrip("\r\n").split("\n", 1)[0]
    bare = re.sub(r'"[^"]*"', "", first)
    separator = "\t" if path.endswith(".tsv") else max(",;\t|", key=bare.count)
    csv.field_size_limit(1 << 26)
    reader = csv.reader(io.StringIO(source, newline=""), delimiter=separator, strict=True)
    try:
        table = [(f"line {reader.line_num}", cells) for cells in reader if cells]
    except csv.Error as error:
        raise Refused(f"{path}, line {reader.line_num}: this is not CSV: {error}") from None
    need(table, f"{path} is empty")
    width = len(table[0][1])
    names = [name.strip() for name in table[0][1]] if header else [f"column {k}" for k in range(1, width + 1)]
    need(len(set(names)) == width, f"{path} has two columns of one name")
    for place, cells in table:
        need(len(cells) == width, f"{path}, {place} has {len(cells)} cells, the first line has {width}")
    return names, [(place, dict(zip(names, cells))) for place, cells in table[int(header) :]]


def pages(path: str, memory: Memory) -> list[tuple[str, list[Any], list[Any]]]:
    """A text as rows: a page's number and its characters, and as labels the character that follows each of them."""
    data = read_bytes(path)
    try:
        source = data.decode("latin-1" if memory.kind == "bytes" else "utf-8")
    except UnicodeDecodeError:
        source = data.decode("latin-1")
    rows = []
    for number, start in enumerate(range(0, len(source), memory.length)):
        page = source[start : start + memory.length]
        short = [""] if len(page) < memory.length else []  # the end of the text is a class of its own
        rows.append((f"page {number}", [number, *page][: memory.length], [*page, *short]))
    return rows


def cases(path: str, stored: dict[str, Any], memory: Memory, flags: Any) -> Iterator[tuple[str, Any, Any]]:
    """(place, tokens or an error, labels) of every row of DATA."""
    if path.endswith(".txt"):
        yield from pages(path, memory)
        return
    names, rows = read_table(path, flags.header)
    chosen = flags.sequence_column or stored["selection"]["sequence_columns"]
    target = flags.label_column or stored["selection"]["label_column"]
    need(chosen, "the file does not say which column holds the sequences: name it with --sequence-column")
    need(target or memory.task == "causal", "the file does not say which column holds the labels: see --label-column")
    chosen = [name for name in names if name != target] if chosen == ["*"] else chosen
    for name in (*chosen, *([target] if target else [])):
        need(name in names, f"{path} has no column {name!r}; it has {', '.join(names)[:200]}")
    for place, row in rows:
        for name in (*chosen, *([target] if target else [])):
            need(name in row, f"{path}, {place} lacks {name!r}")
        yield place, row[chosen[0]] if len(chosen) == 1 else [row[name] for name in chosen], row[target] if target else None


def wanted_labels(memory: Memory, row: list[Any], given: Any) -> tuple[list[Any], list[Any]]:
    """The tokens to ask and the labels to expect: one label, one per token, or every next token."""
    if not memory.per_token:
        return row, [given]
    if given is None:  # causal without a label column
        return row[:-1], row[1:]
    found = parse_json(given, "a label cell", finite) if isinstance(given, str) else given
    need(isinstance(found, list), f"the task {memory.task} takes a list with one label per token, not {str(given)[:40]!r}")
    return row, found


def check(file: str, data: str, flags: Any) -> dict[str, Any]:
    """The verdict about every row of DATA, with counts."""
    budget = Budget(flags.max_work, flags.max_memory)
    stored = read_memory(file)
    memory = Memory(stored, budget)
    rows = list(cases(data, stored, memory, flags))
    counts, left_out, first, unsure = Counter[str](), Counter[str](), "", ""
    for number, (place, cell, given) in enumerate(rows):
        if number == PROBE:
            budget.expect(budget.done * len(rows) // PROBE)
        try:
            row, expected = wanted_labels(memory, memory.tokens(cell), given)
            found = memory.ask(row)
        except NoAnswer as error:
            outcome, why = "differ", str(error)
        except Undecided as error:
            outcome, why = "undecided", str(error)
        else:
            same = list(map(same_key, found)) == list(map(same_key, expected))
            outcome, why = ("agree", "") if same else ("differ", f"the label is {expected}, the file says {found}")
        counts[outcome] += 1
        first = first or (f"{place}: {why}" if outcome == "differ" else "")
        unsure = unsure or (f"{place}: {why}" if outcome == "undecided" else "")
    sizes, recorded = measure(memory.network.layers), stored["certificate"]["size"]
    broken = [f"{name} is {sizes[name]}, recorded is {recorded[name]}" for name in SIZES if sizes[name] != recorded[name]]
    for name, bound in stored["claim"]["bounds"].items():
        need(name in sizes, f"memory.claim.bounds: {name[:40]!r} is not a size")
        broken += [f"{name} is {sizes[name]}, promised is {bound} at most"] if sizes[name] > bound else []
    asked = counts["agree"] + counts["differ"]
    verdict = "refuted" if first or broken else "undecided" if unsure or not rows else "answers proved"
    return {
        "verdict": verdict,
        "reason": first or "; ".join(broken) or unsure or f"every row of {data} gets its label",
        "rows": len(rows),
        "asked": asked,
        "agree": counts["agree"],
        "differ": counts["differ"],
        "left_out": dict(left_out),
        "size": sizes,
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("data", metavar="DATA")
    parser.add_argument("--sequence-column", action="append", metavar="NAME")
    parser.add_argument("--label-column", metavar="NAME")
    parser.add_argument("--no-header", dest="header", action="store_false")
    parser.add_argument("--max-work", type=int, default=40_000_000_000, metavar="UNITS")
    parser.add_argument("--max-memory", type=int, default=1 << 30, metavar="BYTES")
    parser.add_argument("--json", action="store_true")
    flags = parser.parse_args(arguments)
    try:
        found = check(flags.file, flags.data, flags)
    except Refused as error:
        print(f"check.py: {error}", file=sys.stderr)
        return 2
    except Exception:
        traceback.print_exc()
        return 3
    print(json.dumps(found) if flags.json else f"{found['verdict']}: {found['reason']}")
    return 0 if found["verdict"] == "answers proved" else 1


if __name__ == "__main__":
    sys.exit(main())
