#!/usr/bin/env python3
"""A second checker for byheart's memories, written from docs/file-format.md. It needs Python 3.11 and nothing else.

    python check.py names.byheart names.csv
    python check.py names.byheart rows.jsonl --sequence-column first --label-column country --json

It asks the file every row of DATA as a user would, exactly, and compares each answer with DATA's own label, by type
and value. `answers proved` says that every row of DATA gets its label; the promise of the construction's theorem is
compared with the sizes counted here, but not derived again. Exit status: 0 answers proved; 1 refuted or undecided;
2 FILE or DATA is not usable, or needs more than the budget; 70 a defect of this program.
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
from collections.abc import Callable
from functools import lru_cache
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
    """Work is counted before it is done: 64 units a product, one more for each pair of 64-bit words in it, and as much
    as 64 products for whatever else a layer costs.
    """

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
# A form is a type, a set of texts, a range, [form of the items], (form, form) of a pair, {field: form}, or a function
# that refuses what it does not take.


def check_form(value: Any, form: Any, where: str) -> None:
    if isinstance(form, dict):
        exactly = isinstance(value, dict) and set(value) == set(form)
        need(exactly, f"{where} must be an object with the fields {', '.join(form)}, and no others")
        for name, part in form.items():
            check_form(value[name], part, f"{where}.{name}")
    elif isinstance(form, list | tuple):
        forms = form * (len(value) if isinstance(form, list) and isinstance(value, list) else 1)
        need(isinstance(value, list) and len(value) == len(forms), f"{where} must be a list of the right length")
        for item, part in zip(value, forms, strict=True):
            check_form(item, part, where)
    elif isinstance(form, set):
        need(isinstance(value, str) and value in form, f"{where}: {str(value)[:40]!r} is unknown")
    elif isinstance(form, range):
        need(type(value) is int and value in form, f"{where} must be an integer from {form[0]} to {form[-1]}")
    elif isinstance(form, type):
        need(type(value) is form, f"{where} must be of the type {form.__name__}")
    else:
        form(value, where)


def maybe(form: Any) -> Callable[[Any, str], None]:
    return lambda value, where: None if value is None else check_form(value, form, where)


def named(form: Any) -> Callable[[Any, str], None]:
    return lambda value, where: check_form(value, dict.fromkeys(value, form) if type(value) is dict else dict, where)


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
    need(4 * len(match[1].lstrip("-0x")) <= MOST_BITS, f"{where} has more than {MOST_BITS} bits")
    mantissa, exponent = int(match[1], 16), int(match[2] or 0)
    small = exponent >= 0 and mantissa.bit_length() + exponent <= 53
    need(abs(exponent) <= MOST_BITS, f"{where} has a power of two beyond {MOST_BITS}")
    need(mantissa & 1 and not small, f"{where}: {value[:40]!r} is not in its one written form")
    return mantissa, exponent


def hexadecimal(text: str) -> int:
    need(abs(int(text, 16)) >= SAFE, "a small integer is a plain number")
    return int(text, 16)


TAGS: dict[str, tuple[Any, Any]] = {  # how the content is read and written
    "integer": (hexadecimal, hex),
    "float": (float.fromhex, float.hex),
    "bytes": (bytes.fromhex, bytes.hex),
    "tuple": (lambda parts: tuple(stored_value(part) for part in parts), lambda found: None),
}


def stored_value(value: Any, where: str = "a value") -> Any:
    """A label or token: texts, small integers, true, false and null as they are, anything else tagged."""
    if value is None or isinstance(value, str | bool) or (type(value) is int and abs(value) < SAFE):
        return value
    try:
        ((tag, content),) = value.items()
        read, write = TAGS[tag]
        need(type(content) is (list if tag == "tuple" else str), "")
        found = read(content)
        need(tag == "tuple" or (write(found) == content and found == found), "")
        return found
    except (Refused, AttributeError, KeyError, ValueError, TypeError, OverflowError, RecursionError):
        raise Refused(f"{where}: {str(value)[:40]} is not a value of this format") from None


def symbol(value: Any, where: str = "a symbol") -> Any:
    found = stored_value(value, where)
    need(not isinstance(found, tuple | bytes) and found not in (math.inf, -math.inf), f"{where} is not a token")
    return found


def rank(token: Any) -> tuple[Any, ...]:
    """Symbols are sorted by type and then by value; -0.0 comes before 0.0."""
    place = [type(None), bool, int, float, str].index(type(token))
    return place, 0 if token is None else token, math.copysign(1, token) if place == 3 else 0


def same_key(value: Any) -> Any:
    """Equal for values of one type and value alone: 1, 1.0, True and "1" differ, and so do 0.0 and -0.0."""
    return (tuple, tuple(map(same_key, value))) if isinstance(value, tuple) else (type(value), repr(value))


def coordinate(value: Any, where: str = "a coordinate") -> Number:
    """A pair [mantissa, exponent] in lowest terms."""
    check_form(value, (lambda part, where: None, range(-(1 << 16), 1)), where)
    mantissa = stored_value({"integer": value[0]} if isinstance(value[0], str) else value[0], where)
    need(type(mantissa) is int and (value[1] == 0 or mantissa & 1), f"{where} is not in lowest terms")
    return mantissa, value[1]


def matrix(value: Any, where: str) -> None:
    check_form(value, {"columns": range(LONGEST + 1), "rows": [[(COUNT, number)]]}, where)
    for row in value["rows"]:
        ascending = all(a < b for a, b in pairwise([-1, *(j for j, _ in row), value["columns"]]))
        need(ascending and all(w != 0 for _, w in row), f"{where}: columns ascend inside it, zeros are not stored")


LAYERS: dict[str, dict[str, Any]] = {
    "affine": {"weight": matrix, "bias": maybe([number]), "relu": bool},
    "threshold": {"weight": matrix, "bias": [number]},
    "residual": {"weight1": matrix, "bias1": [number], "weight2": matrix, "bias2": [number]},
    "embedding": {"table": matrix, "strides": [COUNT]},
    "attention": {
        "kind": {"uniform", "hardmax", "softmax"},
        "pattern": {"full", "causal", "star-in", "star-out"},
        "heads": [{"value": matrix, "output": matrix, "key": maybe(matrix), "query": maybe(matrix)}],
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
KINDS = {"auto", "json", "characters", "bytes", "words", "wordpunct", "uncased", "integers"}
TYPES = {"auto", "str", "int", "float", "bool"}
PLAIN = {"model": None, "max_length": None, "pad": None, "type": "auto"}  # of tokens that are a name alone
TOKENS = {"kind": KINDS | PIECES, "model": maybe(str), "max_length": maybe(POSITIVE), "pad": symbol, "type": TYPES}
SIZES = ("parameters", "nonzero", "max_bits", "total_bits", "width", "depth", "blocks", "attention_layers")
MEMORY = {
    "construction": str,
    "options": named(lambda value, where: need(value is None or type(value) in (str, int, bool), f"{where} is odd")),
    "seed": int,
    "version": str,
    "network": {
        "layers": [layer],
        "read": {"last", "each", "pooled"},
        "readout": {"decode": {"value", "argmax"}, "classes": POSITIVE, "offset": SMALL},
        "stages": [(str, COUNT)],
    },
    "encoder": {
        "task": {"next-token", "seq-to-seq", "set", "causal"},
        "positions": bool,
        "length": POSITIVE,
        "symbols": maybe([symbol]),
        "dimension": POSITIVE,
        "padded": bool,
        "pad_vector": maybe([coordinate]),
    },
    "tokens": lambda value, where: check_form(value, KINDS if isinstance(value, str) else TOKENS, where),
    "selection": {
        **{"sequence_columns": [str], "label_column": maybe(str), "max_rows": maybe(COUNT), "label_type": TYPES},
        **{"conflicts": {"error", "first", "majority", "drop"}, "missing": {"error", "drop", "label"}},
    },
    "classes": [stored_value],
    "claim": {
        **{"paper": str, "label": str, "bounds": named(int), "formulas": named(str)},
        **{"assumptions": [str], "properties": [str]},
    },
    "certificate": {
        **{"verdict": {"proved", "refuted", "undecided"}, "reason": str, "fingerprint": str, "arithmetic": str},
        **dict.fromkeys(("rows", "asked", "agree", "differ", "labels", "contexts"), int),
        **{"left_out": named(int), "promised": named(int), "promise": str, "proofs": named(str)},
        "size": dict.fromkeys((*SIZES, "embedding_parameters"), int),
        "witness": maybe({"row": int, "position": maybe(int), "expected": int, "found": int}),
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
    need(not data.startswith(b"byheart decoder"), f"{path} is a decoder; this checker reads memories")
    need(data.isascii() and data.startswith(b'{"byheart":'), f"{path} is not a memory of byheart")
    document = parse_json(data.decode("ascii"), path)
    version, memory = document.get("byheart"), document.get("memory")
    need(type(version) is int and version == FORMAT, f"{path}: format version {version}; this checker reads {FORMAT}")
    check_form(document, {"byheart": int, "memory": dict, "sha256": str}, path)
    need(document["sha256"] == hashlib.sha256(canonical(memory)).hexdigest(), f"{path}: the checksum does not match")
    need(canonical(document) == data, f"{path} is not in canonical form: it was edited or damaged")
    check_form(memory, MEMORY, "memory")
    return memory


# ------------------------------------------------------------------------------------------------ the network
# A token's numbers are integers over a denominator that the whole row shares: one list of them, or two where softmax
# made them irrational, the lower and the upper ends of intervals. What is done to one list is done to both.

Token = list[list[int]]


class Row(NamedTuple):
    tokens: list[Token]
    den: int


def row_of(tokens: list[list[Number]]) -> Row:
    shift = max([0, *(-e for token in tokens for _, e in token)])
    return Row([[[m << e + shift for m, e in token]] for token in tokens], 1 << shift)


def tidy(row: Row, bits: int) -> Row:
    """Lowest terms where the row is exact; intervals are rounded outwards to multiples of 2^-bits."""
    tokens, den = row
    if len(tokens[0]) == 2:
        rounded = [[[(x << bits) // den for x in a], [-((-x << bits) // den) for x in b]] for a, b in tokens]
        return Row(rounded, 1 << bits)
    if den == 1:
        return row
    numerators = [x for (token,) in tokens for x in token]
    ones = den
    for x in numerators:
        ones |= x
    common = (ones & -ones) * math.gcd(den // (den & -den), *numerators)  # the power of two without long divisions
    return row if common == 1 else Row([[[x // common for x in token]] for (token,) in tokens], den // common)


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
        biases = [m << e + shift for m, e in added] or [0] * len(rows)
        self.rows = [([(j, m << e + shift) for j, (m, e) in row], b) for row, b in zip(rows, biases, strict=True)]

    def __call__(self, token: Token, den: int) -> Token:
        """W z + b over den·2^shift; the lower end takes lower ends where weights are positive, else upper ones."""
        words = 1 + max(x.bit_length() for end in (*token, [den]) for x in end) // 64
        self.budget.charge(len(self.numbers) + self.height + 64, self.words * words)
        self.budget.hold(self.height, 64 * words + self.longest, "the output of a layer")
        return [
            [sum([w * (a if w > 0 else b)[j] for j, w in row], bias * den) for row, bias in self.rows]
            for a, b in zip(token, token[::-1], strict=True)
        ]


class Layer:
    """One layer: the linear maps in it, and what it does."""

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
        names = ("value", "output", "key", "query")
        v, o, k, q = parts = [None if stored[n] is None else Linear(stored[n], None, self.budget) for n in names]
        scored = self.stored["kind"] != "uniform"
        need((k is not None) == (q is not None) == scored, "uniform attention, and no other, has no keys and queries")
        fits = v.shape == o.shape[::-1] and (not scored or (k.shape == q.shape and k.columns == v.columns))
        need(fits, "the matrices of a head do not fit")
        return parts

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

    def on_token(self, token: Token, den: int) -> Token:
        """Affine, threshold, residual, embedding; the result is over `self.den(den)`."""
        one, two = self.maps[0], self.maps[-1]
        if self.kind == "embedding":
            self.budget.charge(self.inward + self.outward)
            row, rest = divmod(sum(a * b for a, b in zip(self.stored["strides"], token[0], strict=True)), den)
            if rest or not 0 <= row < one.height:
                raise NoAnswer("a token is outside the embedding table")
            found = dict(one.rows[row][0])
            return [[found.get(j, 0) for j in range(one.columns)]]
        inner = one(token, den)
        if self.kind == "threshold":
            fired = [[int(x >= 0) for x in end] for end in inner]
            if fired[0] != fired[-1]:
                raise Undecided("intervals do not decide a threshold")
            return fired
        if self.kind == "affine" and not self.stored["relu"]:
            return inner
        hidden = [[max(x, 0) for x in end] for end in inner]
        if self.kind == "affine":
            return hidden
        added, shift = two(hidden, den << one.shift), one.shift + two.shift
        return [[(x << shift) + y for x, y in zip(*ends, strict=True)] for ends in zip(token, added, strict=True)]

    def den(self, den: int) -> int:
        if self.kind == "threshold":
            return 1
        return (1 if self.kind == "embedding" else den) << sum(part.shift for part in self.maps)

    def on_row(self, row: Row) -> Row:
        """Global token, pool, flatten."""
        tokens, den = row
        if self.kind == "global-token":
            hub = row_of([self.hub])
            whole = math.lcm(den, hub.den)
            token = [[x * (whole // hub.den) for x in hub.tokens[0][0]]] * len(tokens[0])
            tokens = [[[x * (whole // den) for x in end] for end in z] for z in tokens]
            return Row([token, *tokens] if self.stored["place"] == "start" else [*tokens, token], whole)
        if self.kind == "pool":
            return Row([[list(map(sum, zip(*ends, strict=True))) for ends in zip(*tokens, strict=True)]], den)
        if len(tokens) != self.stored["tokens"]:
            raise NoAnswer(f"the network reads exactly {self.stored['tokens']} tokens")
        return Row([[[x for end in ends for x in end] for ends in zip(*tokens, strict=True)]], den)

    def attend(self, row: Row, wanted: range, bits: int) -> Row:
        """Attention: z and, from each head, a mean. Parts are kept with their denominators and added at the end."""
        parts = [[(row.tokens[k], row.den)] for k in wanted]
        for value, output, key, query in self.heads:
            V = [output(value(z, row.den), row.den << value.shift) for z in row.tokens]
            den = row.den << value.shift + output.shift
            K = [key(z, row.den) for z in row.tokens] if key and key.numbers and query.numbers else None  # scores: 0
            before: list[int] = []
            total = [[0] * self.outward] * len(V[0])
            for part, k in zip(parts, wanted, strict=True):
                keys = allowed(self.stored["pattern"], k, len(V))
                self.budget.charge(len(keys) * self.outward)
                if K is not None:
                    self.budget.charge(4 * len(keys) * key.height)
                    asked = query(row.tokens[k], row.den)
                    scores = [inner_product(K[j], asked) for j in keys]
                    if self.stored["kind"] == "softmax" and any(score != (scores[0][0],) * 2 for score in scores):
                        self.budget.charge(len(keys) * bits, len(keys) * bits * bits // 64)
                        shares = softmax(scores, row.den**2 << key.shift + query.shift, bits)
                        part.append((weighted([V[j] for j in keys], shares, den, bits), 1 << bits))
                        continue
                    keys = largest(keys, scores)
                if keys[: len(before)] != before:
                    before, total = [], [[0] * self.outward] * len(V[0])
                for j in keys[len(before) :]:
                    total = [[x + y for x, y in zip(*ends, strict=True)] for ends in zip(total, V[j], strict=True)]
                before = keys
                part.append((total, den * len(keys)))
        whole = math.lcm(*(d for part in parts for _, d in part))
        count = max(len(token) for part in parts for token, _ in part)
        return Row([summed(part, whole, count) for part in parts], whole)


def summed(parts: list[tuple[Token, int]], den: int, count: int) -> Token:
    """The sum of tokens over different denominators, with `count` ends."""
    ends = [[[x * (den // d) for x in token[end % len(token)]] for token, d in parts] for end in range(count)]
    return [list(map(sum, zip(*end, strict=True))) for end in ends]


def allowed(pattern: str, k: int, n: int) -> list[int]:
    """Which tokens token k of n attends to."""
    if pattern == "full" or (pattern == "star-in" and k == n - 1):
        return list(range(n))
    if pattern == "causal":
        return list(range(k + 1))
    return [k, n - 1] if pattern == "star-out" and k < n - 1 else [k]


Ends = tuple[int, int]  # of an interval


def inner_product(a: Token, b: Token) -> Ends:
    four = [(w * y, w * z, x * y, x * z) for w, x, y, z in zip(a[0], a[-1], b[0], b[-1], strict=True)]
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


@lru_cache(maxsize=1 << 14)
def exponential(numerator: int, den: int, bits: int) -> Ends:
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


def weighted(V: list[Token], shares: list[Ends], den: int, bits: int) -> Token:
    """The mean of tokens (over den) by shares, over 2^bits."""
    least, most = sum(low for low, _ in shares), sum(high for _, high in shares)
    if least == 0:
        raise Undecided("the intervals of softmax stay too wide")
    low, high = [], []
    for c in range(len(V[0][0])):
        a = sum(v[0][c] * share[v[0][c] < 0] for v, share in zip(V, shares, strict=True))
        b = sum(v[-1][c] * share[v[-1][c] >= 0] for v, share in zip(V, shares, strict=True))
        low.append((a << bits) // (den * (most if a >= 0 else least)))
        high.append(-((-b << bits) // (den * (least if b >= 0 else most))))
    return [low, high]


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
        covered = sum(count for _, count in stored["stages"])
        need(covered == len(layers) or not stored["stages"], "the stages must cover every layer once")
        mixing = [k for k, kind in enumerate(kinds) if kind == "attention"] + pools + hubs
        self.last = max([0 if kinds[0] == "embedding" else -1, *mixing])  # the last layer that needs every token
        self.longest = max((bits_of(w) for part in layers for w in part.numbers), default=0)
        self.known: dict[Any, Token] = {}  # what equal tokens become
        self.held = 0  # words of it

    def classes(self, tokens: list[list[Number]]) -> list[int | None]:
        """Class indices of the tokens that are read, None for none; intervals get more bits until they decide."""
        self.budget.hold(len(tokens) * max(part.inward + part.outward for part in self.layers), 0, "a row")
        for doubling in range(DOUBLINGS + 1):
            try:
                row = self._outputs(row_of(tokens), (self.longest + SPARE_BITS) << doubling)
                return [self._class(token[0], token[-1], row.den) for token in row.tokens]
            except Undecided:
                if doubling == DOUBLINGS:
                    raise
        raise AssertionError

    def _outputs(self, row: Row, bits: int) -> Row:
        """The row behind all layers; behind the last layer that mixes tokens only those that are read are left."""
        start, stop = 0, len(row.tokens)  # the row's own tokens, without a global one
        for place, part in enumerate([*self.layers, None]):
            asked = range(start, stop) if self.read == "each" else range(stop - 1, stop)
            if place == self.last + 1 and (place == 0 or self.layers[place - 1].kind != "attention"):
                row = Row([row.tokens[k] for k in asked], row.den)
            if part is None:
                break
            if part.kind == "attention":
                row = part.attend(row, asked if place == self.last else range(len(row.tokens)), bits)
            elif part.maps:
                row = Row([self._token(part, token, row.den) for token in row.tokens], part.den(row.den))
            else:
                row = part.on_row(row)
                start = int(part.stored.get("place") == "start")
                stop = len(row.tokens) - (part.stored.get("place") == "end")
            row = tidy(row, bits)
        return row

    def _token(self, part: Layer, token: Token, den: int) -> Token:
        key = id(part), len(token), den, *token[0], *token[-1]
        if key not in self.known:
            self.known[key] = part.on_token(token, den)
            self.held += sum(2 + x.bit_length() // 64 for x in key) + part.outward * 8
            if self.held > self.budget.memory // 64:
                self.known, self.held = {key: self.known[key]}, 0
        return self.known[key]

    def _class(self, low: list[int], high: list[int], den: int) -> int | None:
        """The class index of an output; None where it is no class."""
        if self.readout["decode"] == "value":
            first, last = (x - self.readout["offset"] for x in (-(-low[0] // den), high[0] // den))  # whole numbers
            if first > last or last < 0 or first >= self.readout["classes"]:
                return None
            if low[0] != high[0]:
                raise Undecided("an interval cannot show that a number is whole")
            return first
        best = max(range(len(low)), key=low.__getitem__)
        rivals = [k for k in range(len(low)) if k != best and high[k] >= low[best]]
        if rivals and any(low[k] != high[k] for k in (best, *rivals)):
            raise Undecided("intervals do not decide which output is the largest")
        return None if rivals else best

    def size(self) -> dict[str, int]:
        """The sizes of the network, counted as the page says."""
        layers = self.layers
        start, stop = int(layers[0].kind == "flatten"), len(layers)
        if start < stop and (layers[start].kind == "embedding" or layers[start].stored.get("relu") is False):
            start += 1
            start += layers[start - 1].kind == "embedding" and start < stop and layers[start].kind == "flatten"
        inner = layers[start : stop - (stop > 1 and layers[-1].stored.get("relu") is False)]
        forward = [part.kind in ("affine", "threshold", "residual") for part in inner]
        attention = [part.kind == "attention" for part in inner]
        alone = sum(a and not f for a, f in zip(attention, [*forward[1:], False], strict=False))
        bits = [bits_of(w) for part in layers for w in part.numbers]
        width = max((part.width for part in inner), default=1)
        counted = (sum(part.entries for part in layers), len(bits), max(bits, default=0), sum(bits), width)
        depth, blocks = sum(forward) + sum(attention), sum(forward) + alone
        found = dict(zip(SIZES, (*counted, depth, blocks, sum(attention)), strict=True))
        return found | {"embedding_parameters": sum(part.entries for part in layers if part.kind == "embedding")}


# ------------------------------------------------------------------------------------------------ asking


class Memory:
    """A file that can be asked."""

    def __init__(self, stored: dict[str, Any], budget: Budget) -> None:
        encoder, tokens = stored["encoder"], stored["tokens"]
        self.stored, self.budget, self.network = stored, budget, Network(stored["network"], budget)
        self.task, self.positions, self.length = encoder["task"], encoder["positions"], encoder["length"]
        self.dimension, self.padded = encoder["dimension"], encoder["padded"]
        self.pads, self.per_token = self.task in ("next-token", "seq-to-seq"), self.task in ("seq-to-seq", "causal")
        self.classes = [stored_value(value) for value in stored["classes"]]
        self.symbols = None if encoder["symbols"] is None else [symbol(value) for value in encoder["symbols"]]
        self.codes = {same_key(found): k for k, found in enumerate(self.symbols or (), start=1)}
        self.pad = encoder["pad_vector"] and [coordinate(value) for value in encoder["pad_vector"]]
        self.cutting: dict[str, Any] = {"kind": tokens, **PLAIN} if isinstance(tokens, str) else tokens
        self.filler, self.most = symbol(self.cutting["pad"]), self.cutting["max_length"]
        self._check()

    def _check(self) -> None:
        """Whether the parts of the file fit together."""
        network, cutting, vectors = self.network, self.cutting, self.symbols is None
        ordered = self.symbols and all(rank(a) < rank(b) for a, b in pairwise(self.symbols))
        need(vectors or ordered, "encoder.symbols must be sorted and distinct")
        need(vectors or self.dimension == 1, "the dimension of symbols is 1")
        need(self.pads or not self.padded, f"the task {self.task} never pads")
        need(not (self.positions and self.task == "set"), "a set has no positions")
        need((self.pad is not None) == (self.padded and vectors), "encoder.pad_vector is for padded vectors alone")
        need(self.pad is None or len(self.pad) == self.dimension, "encoder.pad_vector has another dimension")
        need(network.layers[0].inward == self.dimension + self.positions, "the tokens do not fit the first layer")
        need((cutting["model"] is None) == (cutting["kind"] in KINDS), "tokens.model is for trained tokenizers alone")
        need(self.filler is None or self.most is not None, "tokens.pad needs tokens.max_length")
        need(cutting != {"kind": cutting["kind"]} | PLAIN or self.stored["tokens"] in KINDS, "tokens must be a name")
        distinct = len(set(map(same_key, self.classes)))
        need(distinct == len(self.classes) == network.readout["classes"], "the classes do not fit the network")
        need(self.per_token == (network.read == "each"), f"the task {self.task} is not read at {network.read}")
        self.budget.hold(self.length * (self.dimension + 1) if self.padded else 0, 0, "a padded row")

    def tokens(self, cell: Any) -> list[Any]:
        """The tokens of a cell, of any number: those of a list, or of a text, cut as the file says."""
        found = self._cut(cell) if isinstance(cell, str) else cell if isinstance(cell, list) else [cell]
        kind = self.cutting["type"]
        return [token if isinstance(token, list) else convert(token, kind, NoAnswer) for token in found]

    def _cut(self, cell: str) -> list[Any]:
        kind = self.cutting["kind"]
        if cell.lstrip().startswith("[") and cell.rstrip().endswith("]"):  # a JSON list is always the tokens
            try:
                return parse_json(cell, "a cell", finite)
            except Refused as error:
                if kind == "json":
                    raise NoAnswer(str(error)) from None
        if kind in PIECES:
            raise Undecided(f"cutting texts into {kind} pieces needs the library tokenizers; give lists of tokens")
        if kind == "json":
            raise NoAnswer("the cell is not a JSON list of tokens")
        cutters: dict[str, Callable[[str], list[Any]]] = {
            "bytes": lambda text: list(text.encode("utf-8", "surrogatepass")),
            "words": re.compile(r"\S+").findall,
            "wordpunct": re.compile(r"\w+|[^\w\s]+").findall,
            "uncased": lambda text: re.findall(r"\w+|[^\w\s]", text.lower()),
            "integers": lambda text: [convert(word, "int", NoAnswer) for word in text.replace(",", " ").split()],
        }
        return cutters.get(kind, list)(cell)

    def points(self, row: list[Any]) -> list[list[Number]]:
        """The tokens as vectors, before padding and positions."""
        exactly = self.pads and not self.padded
        if not (len(row) == self.length if exactly else 1 <= len(row) <= self.length):
            raise NoAnswer(f"a row of {len(row)} tokens does not fit the file's {self.length}")
        return [self._point(token) for token in row]

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

    def ask(self, points: list[list[Number]]) -> list[Any]:
        """The answers to a row: one, or one per token; NoAnswer where the output is no class."""
        padding = [self.pad or [(0, 0)]] * (self.length - len(points) if self.pads else 0)
        row = [[*point, (place, 0)] if self.positions else point for place, point in enumerate(padding + points)]
        found = self.network.classes(row)
        return [
            NoAnswer if k is None else self.classes[k] for k in (found[len(padding) :] if self.per_token else found)
        ]


def finite(written: str) -> float:
    need(math.isfinite(float(written)), f"{written[:40]} is too large a number")
    return float(written)


def convert(value: Any, kind: str, error: type[Exception] = Refused) -> Any:
    """A value as the type that a user asked for; `auto` and null leave it as it is."""
    if kind == "auto" or value is None or type(value).__name__ == kind:
        return value
    written = value if isinstance(value, str) else json.dumps(value) if isinstance(value, int | float) else "?"
    if kind == "str" and written != "?":
        return str(value)
    if kind == "int" and (
        re.fullmatch(r"[+-]?[0-9]{1,3999}", written) or (type(value) is float and value.is_integer())
    ):
        return int(value)
    if kind == "float" and re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", written):
        number = float(written)
        if math.isfinite(number) and (isinstance(value, str) or int(number) == value):
            return number
    if kind == "bool" and type(value) is not float and written.lower() in ("true", "false", "1", "0"):
        return written.lower() in ("true", "1")
    raise error(f"{written[:40]!r} cannot be taken as {kind}")


# ------------------------------------------------------------------------------------------------ the data

Case = tuple[str, Any, Any]  # where it stands, the cell of the sequence, the cell of the label; None: missing
NEXT = object()  # in place of a label: every next token is one


def read_table(path: str, header: bool) -> tuple[list[str], list[tuple[str, dict[str, Any]]]]:
    """Column names, and for every row its place in the file and its cells: CSV, TSV or JSON Lines, in UTF-8."""
    try:
        source = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    ending = path.lower()
    if ending.endswith((".jsonl", ".ndjson")) or (source[:1] == "{" and not ending.endswith((".csv", ".tsv"))):
        lines = [(f"line {k}", line) for k, line in enumerate(source.split("\n"), start=1) if line.strip()]
        rows = [(place, parse_json(line, f"{path}, {place}", finite)) for place, line in lines]
        need(all(isinstance(row, dict) for _, row in rows), f"{path}: every line must be a JSON object")
        return list(dict.fromkeys(name for _, row in rows for name in row)), rows
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
    uneven = [place for place, cells in table if len(cells) != width]
    need(not uneven, f"{path}, {(uneven or [0])[0]} has another number of cells than the first line")
    rows = [(place, [cell or None for cell in cells]) for place, cells in table[int(header) :]]  # empty: missing
    return names, [(place, dict(zip(names, cells, strict=True))) for place, cells in rows]


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


SEQUENCES = ("sequence", "sequences", "tokens", "text", "input", "premise", "sentence", "name", "x")
LABELS = ("label", "labels", "y", "target", "class", "output", "answer")
NUMBERING = ("", "id", "index", "row", "nr", "no", "#", "unnamed: 0")  # columns that say nothing about their row


def guess(names: list[str], usual: tuple[str, ...], others: tuple[str, ...], taken: list[str]) -> list[str]:
    """A column of a usual name, else the first that has no usual name of the other role; one that numbers rows last."""
    free = [name for name in names if name not in taken]
    known = [name for word in usual for name in free if name.lower() == word]
    rest = [name for name in free if name.lower() not in others]
    return (known or sorted(rest, key=lambda name: len(names) > 2 and name.lower() in NUMBERING))[:1]


def read_cases(memory: Memory, flags: argparse.Namespace) -> list[Case]:
    """The rows of DATA. Which columns are asked is never left to the file."""
    need(not flags.data.lower().endswith((".json", ".gz", ".zst", ".parquet", ".arrow")), "give CSV or JSON Lines")
    if flags.data.lower().endswith(".txt"):
        return read_pages(flags.data, memory)
    names, rows = read_table(flags.data, flags.header)
    target = [flags.label_column] if flags.label_column else []
    if flags.sequence_column == ["*"]:
        target = target or guess(names, LABELS, (), [])[:1] or names[-1:]
    chosen = flags.sequence_column or guess(names, SEQUENCES, LABELS, target)
    chosen = [name for name in names if name not in target] if chosen == ["*"] else chosen
    usual = [name for name in names if name.lower() in LABELS and name not in chosen]
    target = target or (guess(names, LABELS, SEQUENCES, chosen) if usual or memory.task != "causal" else [])
    then = memory.stored["selection"]
    need(
        flags.label_type or then["label_type"] == "auto",
        f"FILE was made with --label-type {then['label_type']}: say it",
    )
    made_of = then["sequence_columns"], [then["label_column"]] if then["label_column"] else []
    told = flags.sequence_column and (flags.label_column or not made_of[1])
    need(told or not made_of[0] or made_of == (chosen, target), f"name the columns: FILE was made of {made_of}")
    need(chosen and (target or memory.task == "causal"), "name the columns: --sequence-column and --label-column")
    for name in chosen + target:
        lacking = [place for place, row in rows if name not in row]
        need(name in names and not lacking, f"{flags.data}, {(lacking or [''])[0]} has no column {name!r}")
    pick = (lambda row: row[chosen[0]]) if len(chosen) == 1 else (lambda row: [row[name] for name in chosen])
    return [(place, pick(row), row[target[0]] if target else NEXT) for place, row in rows]


def question(memory: Memory, cell: Any, given: Any, flags: argparse.Namespace) -> tuple[list[Any], list[Any]] | None:
    """The tokens to ask and the labels to expect: one, one per token, or the next tokens; None: dropped as missing."""
    row = [] if cell is None else memory.tokens(cell)
    if given is NEXT:
        row, labels = row[:-1], row[1:]
    elif memory.per_token and given is not None:
        labels = parse_json(given, "a label", finite) if isinstance(given, str) else given
        need(isinstance(labels, list), f"{memory.task} takes a list with one label per token, not {str(given)[:40]!r}")
    else:
        labels = [given]
    if not row or None in row or None in labels:
        policy = flags.missing or memory.stored["selection"]["missing"]  # of the file's: one that leaves no row out
        need(policy == "label" or flags.missing == "drop", "a value is missing: say --missing drop or --missing label")
        if policy == "drop":
            return None
    row, labels = (row or [None])[: flags.max_length], labels[: flags.max_length] if memory.per_token else labels
    row = row[: memory.most]
    row += [memory.filler] * (memory.most - len(row)) if memory.filler is not None else []
    return row, labels if given is NEXT else [convert(value, flags.label_type or "auto") for value in labels]


# ------------------------------------------------------------------------------------------------ the verdict


def contexts(memory: Memory, points: list[Any]) -> list[Any]:
    """What each label of a row belongs to: rows with equal contexts get equal answers from any network."""
    keys = [tuple(point) for point in points]
    if memory.task == "set":
        return [tuple(sorted(keys))]
    bag = (lambda part: part) if memory.positions else (lambda part: tuple(sorted(part)))
    if memory.task == "causal":
        return [(key, bag(tuple(keys[: k + 1]))) for k, key in enumerate(keys)]
    places = enumerate(keys) if memory.task == "seq-to-seq" else [(0, keys[-1])]
    return [(k if memory.positions else 0, key, bag(tuple(keys))) for k, key in places]


def outcomes(memory: Memory, cases: list[Case], flags: argparse.Namespace) -> tuple[dict[str, list[str]], Counter[str]]:
    """Rows that agree, differ or stay undecided, in words, and how many were left out by which flag."""
    found: dict[str, list[str]] = {"agree": [], "differ": [], "undecided": []}
    left_out: Counter[str] = Counter()
    labels_of: dict[Any, set[Any]] = {}  # what DATA says about equal inputs
    disputes = []
    for place, (where, cell, given) in enumerate(cases[: flags.max_rows]):
        if place == PROBE:
            memory.budget.expect(memory.budget.done * min(len(cases), flags.max_rows or len(cases)) // PROBE)
        try:
            asked = question(memory, cell, given, flags)
            if asked is None:
                left_out["by --missing drop"] += 1
                continue
            points = memory.points(asked[0])
            answers = memory.ask(points)
            keys = contexts(memory, points) if flags.conflicts != "error" else []
            expected, said = [*map(same_key, asked[1])], [*map(same_key, answers)]
            for key, value in zip(keys, expected, strict=False):
                labels_of.setdefault(key, set()).add(value)
            if expected == said:
                found["agree"].append(where)
            else:
                words = f"{where}: the label is {asked[1]}, the file says {answers}".replace(repr(NoAnswer), "nothing")
                disputes.append((words, len(expected) == len(said), [*zip(keys, expected, said, strict=False)]))
        except NoAnswer as error:
            found["differ"].append(f"{where}: {error}")
        except Undecided as error:
            found["undecided"].append(f"{where}: {error}")
    for words, whole, places in disputes:  # another row with an equal input may have the label that the file gives
        wrong = [(labels_of[key], answer) for key, label, answer in places if label != answer]
        torn = all(len(labels) > 1 and (flags.conflicts == "drop" or answer in labels) for labels, answer in wrong)
        if flags.conflicts != "error" and whole and torn:
            left_out[f"by --conflicts {flags.conflicts}"] += 1
        else:
            found["differ"].append(words)
    if flags.max_rows is not None and len(cases) > flags.max_rows:
        left_out[f"beyond --max-rows {flags.max_rows}"] = len(cases) - flags.max_rows
    return found, left_out


def check(flags: argparse.Namespace) -> dict[str, Any]:
    """The verdict about every row of DATA, with counts."""
    memory = Memory(read_memory(flags.file), Budget(flags.max_work, flags.max_memory))
    cases = read_cases(memory, flags)
    found, left_out = outcomes(memory, cases, flags)
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
    reasons = [*found["differ"][:1], *broken, *found["undecided"][:1], f"{counts['agree']} rows get their labels"]
    return {
        "verdict": verdict,
        "reason": reasons[0],
        "rows": len(cases),
        "asked": sum(counts.values()),
        **counts,
        "left_out": sum(left_out.values()),
        "left_out_by": dict(left_out),
        "size": size,
        "promise": f"{claim['paper']}, {claim['label']}: recorded, not derived again; {kept}",
    }


def whole(written: str) -> int:
    if not written.isdecimal() or int(written) < 1:
        raise argparse.ArgumentTypeError("a whole number from 1 on")
    return int(written)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE", help="a memory that byheart wrote")
    parser.add_argument("data", metavar="DATA", help=".csv, .tsv, .jsonl, or .txt for a memory of a text")
    parser.add_argument(
        "--sequence-column", action="append", metavar="NAME", help="repeated: their cells are the tokens"
    )
    parser.add_argument("--label-column", metavar="NAME", help="both are guessed by usual names unless given")
    parser.add_argument("--no-header", dest="header", action="store_false", help="the first line is a row")
    parser.add_argument("--label-type", choices=sorted(TYPES), help="auto: as DATA has them")
    parser.add_argument("--missing", choices=["error", "drop", "label"], help="empty cells and nulls")
    parser.add_argument("--max-rows", type=whole, metavar="N", help="ask the first N rows only")
    parser.add_argument("--max-length", type=whole, metavar="N", help="the first N tokens and labels of a row only")
    parser.add_argument("--conflicts", choices=["error", "first", "majority", "drop"], default="error")
    parser.add_argument("--max-work", type=whole, default=40_000_000_000, metavar="UNITS", help="some minutes")
    parser.add_argument("--max-memory", type=whole, default=1 << 30, metavar="BYTES", help="for numbers")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def main() -> int:
    flags = arguments().parse_args()
    try:
        found = check(flags)
        counts = ", ".join(f"{found[name]} {name}" for name in ("rows", "asked", "agree", "differ", "undecided"))
        why = ", ".join(f"{count} {reason}" for reason, count in found["left_out_by"].items()) or "none"
        lines = f"{found['verdict']}: {found['reason']}\n{counts}; left out: {why}\npromise: {found['promise']}"
        known = sys.stdout.encoding or "utf-8"  # what it cannot show is written as an escape
        print((json.dumps(found) if flags.json else lines).encode(known, "backslashreplace").decode(known))
    except (Refused, MemoryError) as error:
        print(f"check.py: {str(error) or 'there is not enough memory'}", file=sys.stderr)
        return 2
    except Exception:
        traceback.print_exc()
        return 70
    return 0 if found["verdict"] == PROVED else 1


if __name__ == "__main__":
    sys.exit(main())
