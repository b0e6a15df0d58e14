"""KS25 in one scroll: an article with moving figures about Theorem 4.1, for the live page and the docs' front page.

The article follows one network from letters to a label. Every number in it comes from that network, which byheart
builds and certifies here, and the page evaluates with integers of any length (exact.js). The sizes in its second half
come from `byheart.theory`, and from networks that were built once (`BUILT`).

    >>> found = story()
    >>> found["phi"]["n"], found["sums"]
    (3, [1, 1, 2, 3, 4])
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import exp, log
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape

from byheart.build.ks25.construction import Contents, contents_of, finished, memories_of, transformer
from byheart.build.ks25.layers import averaging
from byheart.build.ks25.memorizer import Fields
from byheart.build.ks25.parts import BuildStyle, ContextKeys, KeyLookup, needed
from byheart.build.ks25.residual_memorizer import STREAM
from byheart.certify import certify
from byheart.errors import BuildError
from byheart.ir.layers import Kind
from byheart.memory.memorize import memorize
from byheart.memory.memory import Memory
from byheart.memory.memory_file import to_json
from byheart.memory.size_rows import worst_case_bounds
from byheart.progress import SILENT
from byheart.report.page import live, script_safe
from byheart.theory import lower_bound, theorems
from byheart.version import __version__

# Five words that Theorem 4.1 covers. tar and rat have the same letters and end differently, and every letter with a
# number is needed: without it two sums collide.
WORDS = (("tar", "thing"), ("rat", "animal"), ("oat", "plant"), ("net", "thing"), ("ant", "animal"))
# The construction would choose groups of one key and a line with fractions. Groups of two show the comparison, and
# x + 2·sum − 10 separates the five contexts as well and can be checked by hand.
PER_GROUP = 2
KEY_WEIGHTS, KEY_BIAS = {"x": 1, "id": 2}, -10

UNITS = 14  # hidden units of a block, at most: the width of Theorem 4.1
LETTERS, COORDINATES, CLASSES, ALPHABET = 5, 2, 2, 26
FARTHEST = ALPHABET**2 + (LETTERS - 1) ** 2  # r², of the last letter at the last position
FIRST_DECADE, LAST_DECADE, PER_DECADE = 1, 10, 8

# Parameters of networks that were built for N random words of five letters and two labels (numpy's generator, seed 0),
# by experiments/one_scroll.py. Networks of up to 10,000 words were also certified.
BUILT: dict[str, dict[int, int]] = {
    "ks25": {
        10: 3_601,
        30: 5_652,
        100: 9_627,
        300: 16_164,
        1_000: 28_052,
        3_000: 46_402,
        10_000: 87_721,
        30_000: 155_610,
        100_000: 288_898,
    },
    "compact": {10: 13, 30: 34, 100: 60, 300: 112, 1_000: 183, 3_000: 309, 10_000: 542},
}


@dataclass(frozen=True, eq=False)
class Example:
    """The article's network as a memory, and the parts that it was built from."""

    memory: Memory
    contents: Contents
    label: KeyLookup
    layers: tuple[int, ...]  # of every stage


@lru_cache(maxsize=1)
def example() -> Example:
    """Build and certify the article's network.

    Raises:
        BuildError: if the network is not proved.
    """
    words, labels = [word for word, _ in WORDS], [label for _, label in WORDS]
    memory = memorize(words, labels, construction="ks25", positions=False, progress=False)
    dataset = memory.dataset
    assert dataset is not None
    style = BuildStyle.of("residual", "measured", memory.seed)
    contents = _with_short_keys(contents_of(dataset, style, SILENT))

    def in_pairs(keys: Sequence[int], classes: Sequence[int]) -> Fields:
        return Fields(PER_GROUP, *needed(style, keys, classes)[1:])

    token, label = memories_of(contents, label=in_pairs)
    stages = transformer(contents, token, label, (averaging(style, Kind.UNIFORM, dataset.n),))
    network = finished(dataset, stages)
    certificate = certify(network, dataset, None, unchecked="groups of two are chosen for the page", excused=True)
    if certificate.verdict != "proved":
        raise BuildError(f"the article's network is {certificate.verdict}: {certificate.reason}")
    memory = replace(memory, network=network, certificate=certificate)
    return Example(memory, contents, label, tuple(len(layers) for _, layers in stages))


@lru_cache(maxsize=1)
def story() -> dict[str, Any]:
    """Describe the parts of the article's network.

    Returns:
        What the page needs: words, labels, the line, φ, sums, the context keys, the groups with their words of bits,
        where the label memory begins, and the network itself.
    """
    found = example()
    memory, contents, label = found.memory, found.contents, found.label
    symbols = [str(symbol) for symbol in memory.encoder.symbols or ()]
    phi = dict(zip(symbols, contents.code.labels, strict=True))
    return {
        "rows": [{"word": word, "label": name} for word, name in WORDS],
        "line": dict(zip(symbols, contents.code.line.floors, strict=True)),
        "phi": phi,
        "sums": [sum(phi[letter] for letter in word) for word, _ in WORDS],
        "weights": KEY_WEIGHTS,
        "bias": KEY_BIAS,
        "keys": _keys_of_rows(contents),
        "fields": {"entries": PER_GROUP, "key": label.fields.key_bits, "label": label.fields.label_bits},
        "groups": [
            {"first": group.first, "last": group.last, "u": group.key_word, "w": group.label_word}
            for piece in label.pieces
            for group in piece.groups
        ],
        "stream": list(STREAM),
        "attention": sum(found.layers[:2]),
        "memory": {"start": sum(found.layers[:3]), "layers": found.layers[3]},
        "live": live(memory, to_json(memory)),
    }


def _with_short_keys(contents: Contents) -> Contents:
    """The same contents with the article's line for contexts; a BuildError if it does not separate them."""
    found, code = contents.dataset.contexts, contents.code
    ids = code.sums[found.multiset].tolist()
    at = [code.line.floors[point] for point in found.point.tolist()]
    keys = tuple(KEY_WEIGHTS["x"] * x + KEY_WEIGHTS["id"] * s + KEY_BIAS for x, s in zip(at, ids, strict=True))
    if min(keys) < 2 or any(later - earlier < 2 for earlier, later in pairwise(sorted(keys))):
        raise BuildError(f"the article's keys {keys} must be at least 2, and 2 apart")
    return replace(contents, keys=ContextKeys(KEY_WEIGHTS, KEY_BIAS, keys))


def _keys_of_rows(contents: Contents) -> list[int]:
    """The key of each row's last token."""
    found = contents.dataset.contexts
    by_row = dict(zip(found.row.tolist(), contents.keys.keys, strict=True))
    return [by_row[row] for row in range(len(WORDS))]


def guarantee(N: int) -> theorems.Setting:
    """Return the parameters of Theorem 4.1 for N sequences of five tokens: N, n, d, C, r and δ.

    A token is a point (letter, position) of the plane. There are only 26^5 words, but a disc of this radius has room
    for more than 2,000 points that are 1 apart, so that sequences do not run out before N = 10^16.
    """
    return theorems.worst_case(N=N, n=LETTERS, d=COORDINATES, C=CLASSES, r_squared=FARTHEST)


def guaranteed_parameters(N: int) -> int:
    """Parameters that Theorem B.1 guarantees for N sequences, blocks with skip connections.

    >>> guaranteed_parameters(10**6)
    14838425
    """
    return theorems.transformer(guarantee(N), form="residual").parameters


def linear_parameters(N: int) -> int:
    """Parameters of a network with one bend per row: 3 per row, and 8 for its ends."""
    return 3 * N + 8


def crossing() -> int:
    """Return the smallest N from which on the guarantee is below one bend per row.

    Both sides grow, and the quotient of guarantee and N falls, up to steps of rounding; the bisection's result is
    checked on both sides.

    >>> N = crossing()
    >>> guaranteed_parameters(N) < linear_parameters(N), guaranteed_parameters(N - 1) < linear_parameters(N - 1)
    (True, False)
    """
    low: int = 10**FIRST_DECADE
    high: int = 10**LAST_DECADE
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if guaranteed_parameters(middle) < linear_parameters(middle) else (middle, high)
    return high


def built_crossing() -> dict[str, int] | None:
    """Return where built networks of `ks25` fall below one bend per row; None if no build is below it.

    `at` is interpolated on logarithmic axes between the builds `before` and `after`.
    """
    sizes = BUILT["ks25"]
    for before, after in pairwise(sorted(sizes)):
        over = log(sizes[before] / linear_parameters(before))
        under = log(sizes[after] / linear_parameters(after))
        if over >= 0 > under:
            share = over / (over - under)
            at = round(exp(log(before) + share * log(after / before)))
            return {"at": at, "before": before, "after": after}
    return None


@lru_cache(maxsize=1)
def sizes() -> dict[str, Any]:
    """Sizes over N for the theorem's sliders: the key length, and every curve at the same stops."""
    grid = sorted(
        {round(10 ** (k / PER_DECADE)) for k in range(FIRST_DECADE * PER_DECADE, LAST_DECADE * PER_DECADE + 1)}
    )
    least = [
        worst_case_bounds(lower_bound(N=N, n=LETTERS, d=COORDINATES, C=CLASSES).bounds)["parameters"].value
        for N in grid
    ]
    settings = [guarantee(N) for N in grid]
    return {
        "grid": grid,
        "bits": [max(setting.attended.key_bits, 3) for setting in settings],
        "linear": [linear_parameters(N) for N in grid],
        "theorem": [guaranteed_parameters(N) for N in grid],
        "lower": least,
        "built": {name: sorted(found.items()) for name, found in BUILT.items()},
        "crossing": crossing(),
        "built_crossing": built_crossing(),
        "n": LETTERS,
        "C": CLASSES,
        "r_squared": FARTHEST,
    }


def article_parts() -> dict[str, Any]:
    """Return the template's variables: the JSON, safe inside a script element, and the numbers in the text."""
    data = script_safe(json.dumps({"story": story(), "sizes": sizes()}, separators=(",", ":")))
    block = {"stream": len(STREAM), "units": UNITS, "block_parameters": 2 * len(STREAM) * UNITS + UNITS + len(STREAM)}
    return {"article": data, "per_group": PER_GROUP, "sizes": sizes(), **block}


def one_scroll() -> str:
    """Return the article as a self-contained page that needs no server.

    >>> page = one_scroll()
    >>> "Why √N parameters suffice" in page, "http" in page
    (True, False)
    """
    environment = Environment(loader=PackageLoader("byheart.report"), autoescape=select_autoescape(default=True))
    return environment.get_template("one_scroll.html.jinja").render(**article_parts(), version=__version__)
