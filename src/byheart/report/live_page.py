"""The live page: a Transformer built and queried in the browser, from rows that a reader can change.

The page contains JavaScript that builds a small memory (build.js), evaluates it with integers of any length (exact.js),
draws every step (draw.js, steps.js) and exports it as a file in byheart's format (file.js). This module adds networks
that byheart built for the given rows, and curves of sizes over N.

>>> page = explain(["cat", "act"], ["animal", "verb"])
>>> "download the memory" in page, "http" in page
(True, False)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape

from byheart.build import recipe
from byheart.data.task import Task
from byheart.data.tokens.tokenizer import AUTO
from byheart.data.wording import written
from byheart.errors import ByheartError, DataError, OptionError
from byheart.files import write_atomically
from byheart.memory.memorize import memorize
from byheart.memory.memory import Memory
from byheart.memory.memory_file import to_json
from byheart.memory.size_rows import worst_case_bounds
from byheart.report.article import article_parts, linear_parameters
from byheart.report.page import as_question, live, script_safe, unfollowed
from byheart.report.stage_words import WORDS
from byheart.theory import lower_bound
from byheart.theory.guarantees import compact as budget
from byheart.theory.guarantees import guarantee
from byheart.version import __version__

FIVE = (("cat", "animal"), ("act", "verb"), ("tea", "drink"), ("eat", "verb"), ("ate", "verb"))
LIMITS = {"rows": 300, "length": 24, "classes": 32, "label": 60}  # of the page's own builder
CUTS = {AUTO: "characters", "characters": "characters", "words": "words"}  # tokenized as byheart does
THEOREM = "ks25"
ALPHABET, LETTERS, CLASSES = "abcdefghijklmnopqrstuvwxyz", 5, 2  # of the random words whose sizes are plotted over N
BUILT = 200  # rows up to which the page builds such words itself
DECADES, PER_DECADE, START = 6, 16, 178


def explain(
    sequences: Any = None,
    labels: Sequence[Any] | None = None,
    *,
    output: str | Path | None = None,
    construction: str = "compact",
    seed: int = 0,
    progress: Any = False,
    **options: Any,
) -> str:
    """Write one self-contained page on which a Transformer is built and evaluated step by step.

    Args:
        sequences: Texts with one label each, a table of `byheart.read`, or a frame as for `memorize`. None: five words.
        labels: One label per text; None where `sequences` has labels.
        output: A file for the page; None: the page is only returned.
        construction: The construction of byheart's own memory, which is shown beside the one that the browser builds.
        seed: Equal seeds give equal weights.
        progress: Whether to show progress.
        **options: Options of the construction.

    Returns:
        The page as HTML.

    Raises:
        DataError: If the rows cannot be memorized.

    >>> "<html" in explain(["sun", "moon"], ["day", "night"], construction="ks25")
    True
    """
    building: dict[str, Any] = {"construction": construction, "seed": seed, "progress": progress, **options}
    if hasattr(sequences, "__len__"):
        check_size("rows", len(sequences))  # before anything long begins
    memory = five_words(building) if sequences is None else memorize(sequences, labels, **building)
    page = render(memory)
    if output is not None:
        write_atomically(Path(output), page.encode("utf-8"))
    return page


def five_words(building: dict[str, Any]) -> Memory:
    """The memory of the five words; without fingerprints, which the sizes of the theorems do not have.

    >>> five_words({"construction": "compact", "progress": False}).options["abstain_bits"]
    0
    """
    words, labels = (list(part) for part in zip(*FIVE, strict=True))
    can_abstain = any(option.name == "abstain_bits" for option in recipe(building["construction"]).options)
    return memorize(words, labels, **({"abstain_bits": 0} if can_abstain else {}) | building)


def render(memory: Memory) -> str:
    """The page for a memory that has its data."""
    rows = page_rows(memory)
    growth = curves()
    given = {
        "rows": rows,
        "kind": CUTS[memory.tokens.kind],
        "limits": LIMITS,
        "words": WORDS,
        "networks": _networks(memory),
        "growth": growth,
        "terms": _terms(memory),
    }
    environment = Environment(loader=PackageLoader("byheart.report"), autoescape=select_autoescape(default=True))
    text = json.dumps(given, separators=(",", ":"))
    return environment.get_template("explain.html.jinja").render(
        given=script_safe(text), growth=growth, kind=given["kind"], **article_parts(), version=__version__
    )


def page_rows(memory: Memory) -> list[dict[str, str]]:
    """Return the rows as a user types them on the page; raise a DataError for rows that the page cannot process."""
    dataset = memory.dataset
    if dataset is None:
        raise DataError("the page needs the rows: memorize them, or give DATA")
    if memory.task is not Task.NEXT_TOKEN or not memory.encoder.positions:
        raise OptionError("the live page is about one label per row with positions on; `byheart report` shows the rest")
    if memory.tokens.kind not in CUTS or memory.tokens.max_length is not None or memory.encoder.symbols is None:
        raise DataError("the live page needs texts of characters or words; `byheart report` shows any memory")
    for name, size in {"rows": dataset.N, "length": dataset.n, "classes": dataset.C}.items():
        check_size(name, size)
    decoded = memory.encoder.decode(dataset.inputs)
    found = []
    for row, label in zip(decoded, dataset.label_values(), strict=True):
        text, name = as_question(memory, row), written(label)
        if text.startswith("[") or name != name.strip() or not name or len(name) > LIMITS["label"]:
            raise DataError(
                f"the row {text[:60]} with the label {name[:60]!r} cannot be typed on the live page; "
                "`byheart report` shows any memory"
            )
        found.append({"word": text, "label": name})
    if len({row["label"] for row in found}) != dataset.C:
        raise DataError("two labels of different types read alike, such as 1 and '1'; give them one type")
    return found


def check_size(name: str, size: int) -> None:
    """Raise a DataError if the page's own builder does not accept this size."""
    if size > LIMITS[name]:
        what = {"rows": "rows", "length": "tokens in a row", "classes": "labels"}[name]
        raise DataError(
            f"the data has {size:,} {what}, the live page accepts {LIMITS[name]}; select a part with --max-rows, "
            "or show all of it with `byheart report`"
        )


def _networks(memory: Memory) -> list[dict[str, Any]]:
    """Build byheart's own networks for the same rows: the requested one, and that of the theorem."""
    found = [_network(memory, f"byheart’s {memory.construction}")]
    if memory.construction != THEOREM:
        try:
            other = memorize(*_rows(memory), construction=THEOREM, progress=False)
        except ByheartError:
            return found  # rows for which the theorem's network cannot be built
        found.append(_network(other, "Theorem 4.1’s network"))
    return found


def _rows(memory: Memory) -> tuple[Any, Any]:
    assert memory.dataset is not None
    return memory.encoder.decode(memory.dataset.inputs), memory.dataset.label_values()


def _network(memory: Memory, title: str) -> dict[str, Any]:
    body = live(memory, to_json(memory))
    size = memory.size
    reason = unfollowed(memory, len(json.dumps(body)))
    if reason:
        raise OptionError(f"the page cannot follow this network: {reason}; try the construction compact")
    counted = memory.certificate.count_words
    return {
        "name": memory.construction,
        "title": title,
        "parameters": size.parameters,
        "verdict": memory.certificate.verdict.value,
        "about": f"Built by byheart for the given rows ({memory.claim.ref}), {memory.certificate.verdict.value}: "
        f"{counted}. {size.parameters:,} parameters, {size.depth} layers, longest weight {size.max_bits} bits.",
        "live": body,
    }


def _terms(memory: Memory) -> dict[str, Any]:
    """Return the data from which the page computes the budget of its memory, taken from the budgeting code."""
    assert memory.dataset is not None
    claim = guarantee("compact", memory.dataset, {"head": "logits"})
    assert claim is not None
    return {
        "root": budget.ROOT,
        "rest": budget.REST,
        "spare": budget.SPARE,
        "long": budget.LONG,
        "id_bit": budget.ID_BIT,
        "trap_classes": budget.TRAP_CLASSES,
        "hash_spread": budget.HASH_SPREAD,
        "cell_loss": budget.CELL_LOSS,
        "version": __version__,
        "claim": {name: value for name, value in claim.as_dict().items() if name != "bounds"},
    }


@lru_cache(maxsize=1)
def curves() -> dict[str, Any]:
    """Sizes over N for random words of five letters: compact's budget, linear, lower bound, at the slider's stops."""
    grid = sorted({round(10 ** (k / PER_DECADE)) for k in range(4, DECADES * PER_DECADE + 1)})
    facts = [_facts(N) for N in grid]
    least = [worst_case_bounds(lower_bound(N=N, n=LETTERS, d=2, C=CLASSES).bounds)["parameters"].value for N in grid]
    series = [
        ("one bend per row", "linear", [linear_parameters(N) for N in grid],
         "grows like N: E_in 3, attention 2, a unit of 3 for each row and a bias, E_out 2", True),
        ("compact", "root", [budget.compact_budget(f, head="logits") for f in facts],
         "grows like √N: its budget, known before anything is built", True),
    ]  # fmt: skip
    words = "with fewer, a chain of layers fails on some labelling of N rows of equal tokens (KS25, Lemma B.4)"
    floor = ("lower bound", "lower", least, words, False)
    named = [
        {"name": name, "kind": kind, "values": values, "words": words, "scale": scale}
        for name, kind, values, words, scale in (*series, floor)
    ]
    start = min(range(len(grid)), key=lambda k: abs(grid[k] - START))
    return {
        "grid": grid,
        "series": named,
        "n": LETTERS,
        "C": CLASSES,
        "alphabet": ALPHABET,
        "built": BUILT,
        "start": start,
    }


def _facts(N: int) -> budget.CompactFacts:
    """Of N random words of five letters."""
    letters = len(ALPHABET)
    return budget.CompactFacts(
        contexts=N,
        classes=CLASSES,
        sum_bits=LETTERS.bit_length(),
        inputs=2,
        token_bits=letters.bit_length() + (letters + 1).bit_length(),
        tokens=min(letters, N) * LETTERS,
    )
