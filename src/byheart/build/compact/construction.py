"""byheart's own construction: a whole Transformer whose stream is one number.

E_in · a few folds that hash the token · uniform attention · the label memory · E_out. Every part is checked on the
data while it is built, and the parameters stay within a budget that is known before (docs/compact.md).

Few contexts with two labels take another way: tokens to ids in whose order equal labels are adjacent, and a zigzag
over them. The cost of the label memory's folds that every memory needs (its guard and carries, some 50 parameters) is
more than a unit per run of labels costs up to about 200 contexts, and at any size where labels follow from the inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from math import lcm
from typing import Any

import numpy as np

from byheart.build._base import Construction, Option, register
from byheart.build.compact.codes import TokenLine
from byheart.build.compact.tokens import TokenHash, context_sums, hash_tokens, mean_count, needs_start
from byheart.build.fold import Effort, LabelMemory, Objective, StreamBlock, build_label_memory, smallest_head
from byheart.build.fold._trap_beam import trap_beam
from byheart.build.fold.plan import beam_for
from byheart.build.fold.traps import MOST_CLASSES
from byheart.build.fold.zigzag import Order, Zigzag, few_runs, zigzag
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.data.tokens.tokenizer import TokenTable
from byheart.data.values import key
from byheart.errors import BuildError, OptionError
from byheart.exact import dyadic
from byheart.exact.reflections import reflect
from byheart.executors import AnyExecutor
from byheart.ir.layers import Affine, Attention, GlobalToken, Head, Kind, Layer, Matrix, Pattern, Place, Pool
from byheart.ir.network import Decode, Network, Read, Readout
from byheart.ir.size import measure
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress
from byheart.theory.guarantees.compact import CompactFacts, compact_budget
from byheart.theory.guarantees.compact import compact as compact_guarantee

SAMPLE = 5_000  # contexts that are looked at first
SMALL = 110  # contexts up to which a search pays for all labels
HOPE = 1.4  # times the budget: the excess that annealing removes, starting from least squares
WORK = 5_000_000  # contexts times steps of one annealing
# Steps of the local search for few runs. Tuned by hand.
STEPS = 20_000
# Restarts of that search, by effort. Tuned by hand.
RESTARTS = {Effort.QUICK: 2, Effort.NORMAL: 4, Effort.HIGH: 24}
OUTPUT = 4  # parameters of E_out with two logits


@dataclass(frozen=True)
class ZigzagMemory:
    """A front that gives the ids, and the zigzag over them."""

    token: TokenHash
    zigzag: Zigzag

    @property
    def parameters(self) -> int:
        """Of hash, zigzag and output; E_in and attention are those of every compact memory."""
        return sum(block.parameters for block in self.token.blocks) + self.zigzag.parameters + OUTPUT


@implements(
    Ref("byheart", "zigzag"),
    statement="two labels in R runs along the ids are memorized by R - 2 units, and ids can be chosen to have few runs",
    test="tests/build/fold/test_zigzag.py",
)
def zigzag_memory(
    dataset: Dataset, token: TokenHash, effort: Effort, budget: int | None, seed: int
) -> ZigzagMemory | None:
    """A memory of fewer than `budget` parameters (hash, zigzag, output; None: however many), or None.

    Vectors may get new weights; symbols keep the numbers that `token` gives them, and only b is chosen.
    """
    labels = np.array(dataset.contexts.label, dtype=np.int64)
    if dataset.C != 2 or labels.min() == labels.max() or needs_start(dataset):
        return None
    own, total = features(dataset, token)
    if budget is not None and len(labels) > 2 * SAMPLE:  # a part has no more runs than the whole: no hope, no search
        part = slice(None, None, len(labels) // SAMPLE)
        few = few_runs(own[part], total[part], labels[part], steps=0, restarts=1, seed=seed)
        if few is None or 3 * few.runs > HOPE * budget:
            return None
    order = few_runs(own, total, labels, steps=0, restarts=1, seed=seed)
    small = len(labels) <= SMALL
    if not small and budget is not None and (order is None or 3 * order.runs > HOPE * budget):
        return None
    steps = min(STEPS, WORK // len(labels))
    order = few_runs(own, total, labels, steps=steps, restarts=RESTARTS[effort], seed=seed) or order
    if order is None:
        return None
    found = ZigzagMemory(_front(dataset, token, order), zigzag(order.ids, labels.tolist(), order.bits))
    return found if budget is None or found.parameters < budget else None


def features(dataset: Dataset, token: TokenHash) -> tuple[Any, Any]:
    """(own, total), (M, d): the id of a context is own·A + b·total·A, for weights A of the coordinates.

    Symbols have one coordinate, their hash.
    """
    vectors = dataset.encoder.symbols is None
    columns = dataset.inputs.points.numerators.T.tolist() if vectors else [token.codes.tolist()]
    kind = np.int64 if max(abs(v) for column in columns for v in column) * mean_count(dataset) < 2**50 else object
    own, total = [], []
    for column in columns:
        phi = np.array([*column, 0], dtype=kind)
        alone = context_sums(dataset, phi, 0, None)
        own.append(alone)
        total.append(context_sums(dataset, phi, 1, None) - alone)
    return np.stack(own, axis=1), np.stack(total, axis=1)


def _front(dataset: Dataset, token: TokenHash, order: Order) -> TokenHash:
    """The front that computes the ids of this order, divided by 2^bits."""
    times = dyadic(mean_count(dataset) * order.factor, -order.bits)
    if dataset.encoder.symbols is not None:
        return replace(token, factor=0, mean_factor=times)
    weights = tuple(w * dataset.inputs.points.denominator for w in order.weights)
    return replace(token, line=TokenLine(weights, 0, ()), scale=1, blocks=(), codes=(), factor=0, mean_factor=times)


THEOREM = Ref("byheart", "compact memory")
FEW_CLASSES = 8  # up to which traps are likely; their folds do not depend on the length of ids
WALK_BIT, TRAP_BIT = 2.0, 0.1  # parameters per bit of an id
REDRAW = 1_000_003  # between the seeds of draws
MOST_GAIN = 1.25  # times: the saving of the widest beam against the narrowest, by their rates
TRAP_CLASSES = 16  # up to which traps are taken for prefixes, whatever the length of ids
# Multiples of lcm(1, …, n), 1.44·n bits, distinguish prefixes, and a walk searches along all of them. Measured per
# prefix, bit and word of 44 bits: rows of 138 tokens took 60 processor seconds (1,242 prefixes, 100 labels), of 200
# tokens 92 (1,200).
WALK_SECONDS, WORD_BITS, WIDE_BEAM = 3e-5, 44, 200
# Predicted seconds of proving causal rows, beyond which the build is refused with the remedy.
MOST_SECONDS = 600.0
SHORT_SUMS = 200  # bits, rows of 138 tokens: up to here time is that of other tasks with as many contexts
HEADS = ("value", "logits", "sign")


OPTIONS = (
    Option("objective", str, "parameters", "the quantity to minimize", tuple(o.value for o in Objective)),
    Option("effort", str, "normal", "how wide to search: time is about proportional", tuple(e.value for e in Effort)),
    Option("abstain_bits", int, 0, "f: inputs off the data are refused except with probability 2^-f"),
    Option("head", str, None, "value: one number; logits: one per class; sign: two labels", HEADS, True),
    Option("attention", str, "uniform", "uniform, or softmax with zero scores: the same", ("uniform", "softmax")),
    Option("executor", AnyExecutor, None, "a concurrent.futures.Executor for the group solver", optional=True),
    Option("resume", str, None, "a file that keeps solved groups, so that an interrupted build resumes", optional=True),
)


def _plan(table: TokenTable, rows: int, classes: int, options: Mapping[str, Any]) -> int:
    """The budget for so many rows of symbols; no option changes which tokenization is smaller."""
    token_bits = (table.symbols + 1).bit_length() + table.length.bit_length()
    tokens = table.symbols * table.length
    return compact_budget(CompactFacts(rows, classes, table.length.bit_length(), 2, token_bits, tokens))


def _kernels() -> tuple[Any, ...]:
    return trap_beam(phases=False, long=False), reflect


@register(
    "compact",
    summary="a stream of one number: folds that trap, 5.4 (C = 2) to 6·sqrt(contexts·log2 C) parameters",
    formula="byheart compact",
    description="A stream of one number: folds at ever smaller thresholds trap a hashed id, and the trap, or the "
    "remaining value, is the label. The smallest network here; its weights are long integers. Use it by default.",
    ref=THEOREM,
    tasks=tuple(Task),
    options=OPTIONS,
    plan=_plan,
    kernels=_kernels,
)
@implements(
    THEOREM,
    statement="m groups of ids and L folds memorize the contexts with d + 1 + 4F + 2 + (3m + 1 + 4L) + E_out "
    "parameters, within a budget c1·sqrt(contexts·log2 C) + c2·(length of ids) + c3 that is known before",
    test="tests/build/compact/test_compact.py",
)
def build_compact(
    dataset: Dataset,
    *,
    seed: int = 0,
    progress: Progress = SILENT,
    objective: str = "parameters",
    effort: str = "normal",
    abstain_bits: int = 0,
    head: str | None = None,
    attention: str = "uniform",
    executor: Executor | None = None,
    resume: str | None = None,
) -> Construction:
    """Tokens to ids, ids to labels. With `abstain_bits` most ids off the data get no label."""
    _check(dataset, abstain_bits, head, objective, effort)
    token, ids = _hashed(dataset, objective, abstain_bits, head, seed, progress)
    labels, price = dataset.contexts.label.tolist(), _bit_price(dataset, abstain_bits, head)
    head = head or _best_head(dataset, ids, labels, abstain_bits, objective, effort)
    if price != _bit_price(dataset, abstain_bits, head):  # as if this head had been requested
        token, ids = _hashed(dataset, objective, abstain_bits, head, seed, progress)
    options = {
        "objective": objective,
        "effort": effort,
        "abstain_bits": abstain_bits,
        "head": head,
        "attention": attention,
    }
    claim = compact_guarantee(dataset, options)
    # a memory above the budget is sampled again with its hash, then with more effort where that can help
    for draw, work in enumerate((effort, effort, Effort.HIGH.value)):
        if draw:
            token, ids = _hashed(dataset, objective, abstain_bits, head, seed + REDRAW * draw, progress)
        memory = build_label_memory(
            ids,
            labels,
            dataset.C,
            head="logits" if head == "sign" else head,
            objective=objective,
            effort=work,
            abstain_bits=abstain_bits,
            seed=seed + REDRAW * draw,
            executor=executor,
            resume=resume,
            progress=progress,
        )
        front, back = token, _label_back(memory)
        if head == "sign":
            front, back = _smaller_zigzag(dataset, token, back, Effort(effort), seed, progress)
        network = _network(dataset, front, back, attention)
        size = measure(network)
        broken = claim.broken_by(size)
        if not broken:
            hashing = f"token hash: {len(front.blocks)} block(s) after {front.draws} draw(s)"
            return Construction(network, options, (hashing, back.note))
        if draw and size.parameters > MOST_GAIN * claim.bounds["parameters"]:
            break
        progress.say(f"over the budget ({'; '.join(broken)}): sampling again")
    raise BuildError(f"the budget was not kept after {draw + 1} draws: {'; '.join(broken)}; try another seed")


def _hashed(
    dataset: Dataset, objective: str, abstain_bits: int, head: str | None, seed: int, progress: Progress
) -> tuple[TokenHash, list[int]]:
    return hash_tokens(
        dataset,
        shallow=objective == "depth",
        thorough=abstain_bits > 0,
        bit_price=_bit_price(dataset, abstain_bits, head),
        seed=seed,
        progress=progress,
    )


def _bit_price(dataset: Dataset, abstain_bits: int, head: str | None) -> float:
    """Parameters that a bit of an id costs: by whether the label memory will be traps or a walk."""
    if dataset.encoder.task is not Task.CAUSAL:
        return TRAP_BIT if dataset.C <= FEW_CLASSES else WALK_BIT
    return TRAP_BIT if _traps_read_prefixes(dataset, abstain_bits, head) else WALK_BIT


def _traps_read_prefixes(dataset: Dataset, abstain_bits: int, head: str | None) -> bool:
    """Traps read C classes with 5·C parameters, a walk needs 2 for every bit of the ids, which are long here."""
    if abstain_bits or (head == "value" and dataset.C > 2):
        return False
    return min(MOST_CLASSES, max(TRAP_CLASSES, mean_count(dataset).bit_length() // 2)) >= dataset.C


@dataclass(frozen=True)
class _Back:
    """The layers after attention: blocks and E_out."""

    blocks: tuple[StreamBlock, ...]
    output: Affine
    decode: Decode
    note: str

    @property
    def parameters(self) -> int:
        return _counted(self.blocks) + self.output.parameters


def _label_back(memory: LabelMemory) -> _Back:
    return _Back(memory.blocks, memory.reading.layer(), memory.reading.decode, f"label memory: {memory.note}")


def _smaller_zigzag(
    dataset: Dataset, token: TokenHash, back: _Back, effort: Effort, seed: int, progress: Progress
) -> tuple[TokenHash, _Back]:
    """Hash and memory with a zigzag instead, where that is smaller."""
    with progress.stage("looking for runs of labels"):
        small = zigzag_memory(dataset, token, effort, _counted(token.blocks) + back.parameters, seed)
    return (token, back) if small is None else (small.token, _zigzag_back(small.zigzag))


def _zigzag_back(found: Zigzag) -> _Back:
    """Logits 0 and ±(h + shift)."""
    output = Affine(Matrix.of([{}, {0: found.sign}], 1), (0, found.sign * found.shift))
    blocks = (found.block,) if found.block.units else ()
    return _Back(blocks, output, Decode.ARGMAX, f"label memory: a zigzag over {found.runs} runs of labels")


def _best_head(
    dataset: Dataset, ids: list[int], labels: list[int], abstain_bits: int, objective: str, effort: str
) -> str:
    """The head that a memory gets when none is requested; it is recorded, and requesting it builds the same again."""
    if abstain_bits or objective == "depth":
        return "value"
    if is_language_model(dataset):
        return "logits"
    if dataset.C == 2 and objective == Objective.PARAMETERS:
        return "sign"
    return smallest_head(ids, labels, dataset.C, objective=objective, effort=effort)


def is_language_model(dataset: Dataset) -> bool:
    """Do the labels of prefixes name tokens, as next tokens do (or are they texts, where pages are numbered)?"""
    symbols = dataset.encoder.symbols
    if dataset.encoder.task is not Task.CAUSAL or symbols is None:
        return False
    numbers = [symbol for symbol in symbols if type(symbol) is int]
    numbered = numbers == list(range(len(numbers))) and all(isinstance(label, str) for label in dataset.classes)
    return set(map(key, dataset.classes)) <= set(map(key, symbols)) or (numbered and len(numbers) > 0)


def _check(dataset: Dataset, abstain_bits: int, head: str | None, objective: str, effort: str) -> None:
    if not 0 <= abstain_bits <= 40:
        raise OptionError(f"abstain_bits={abstain_bits} must lie in 0..40; 20 refuses all but one in a million")
    if abstain_bits and head not in (None, "value"):
        raise OptionError(f"{head} always names a class: abstain_bits needs head=value")
    if head == "sign" and objective != Objective.PARAMETERS:
        raise OptionError(f"head=sign is for few parameters, not for objective={objective}; omit one of the two")
    if head == "sign" and dataset.C != 2:
        raise OptionError(f"head=sign reads one sign: it needs exactly two labels, but this data has {dataset.C}")
    walks = dataset.encoder.task is Task.CAUSAL and not _traps_read_prefixes(dataset, abstain_bits, head)
    if walks and objective != "depth":
        _check_walk(dataset, effort)
    if abstain_bits and objective == "depth":
        raise OptionError("one block cannot refuse: abstain_bits needs objective=parameters or bits")


def _check_walk(dataset: Dataset, effort: str) -> None:
    """Refuse prefixes that a walk would search for too long."""
    prefixes, facts = len(dataset.contexts), CompactFacts.of(dataset)

    def seconds(length: int) -> float:
        sums = lcm(*range(1, length + 1)).bit_length()
        bits = facts.id_bits - facts.sum_bits + sums
        beam = beam_for(Effort(effort), prefixes * bits) / WIDE_BEAM
        return WALK_SECONDS * beam * prefixes * bits * (1 + bits / WORD_BITS) if sums > SHORT_SUMS else 0.0

    if (needed := seconds(dataset.n)) > MOST_SECONDS:
        longest = next(n for n in range(dataset.n - 1, 0, -1) if seconds(n) <= MOST_SECONDS)
        raise BuildError(
            f"{prefixes:,} prefixes of rows of up to {dataset.n:,} tokens with {dataset.C:,} labels take ids of about "
            f"{round(facts.id_bits):,} bits and some {needed / 60:,.0f} minutes to search; make rows of at most "
            f"{longest} tokens (of a text: --page-length {longest} or less), or take construction native"
        )


def _network(dataset: Dataset, token: TokenHash, back: _Back, attention: str) -> Network:
    task = dataset.encoder.task
    weights, bias = token.input_weights
    stages: list[tuple[str, Sequence[Layer]]] = [
        ("E_in", [Affine(Matrix.of_dense([weights]), (bias,))]),
        ("token hash", [block.layer() for block in token.blocks]),
        ("start token", [] if token.start is None else [GlobalToken((token.start,), Place.START)]),
        ("sum of the set", [Pool(1)]) if task is Task.SET else ("attention", [_averaging(token, task, attention)]),
        ("label memory", [block.layer() for block in back.blocks]),
        ("E_out", [back.output]),
    ]
    stages = [(name, layers) for name, layers in stages if layers]
    read = {Task.NEXT_TOKEN: Read.LAST, Task.SET: Read.POOLED}.get(task, Read.EACH)
    return Network(
        tuple(layer for _, layers in stages for layer in layers),
        read,
        Readout(back.decode, dataset.C),
        tuple((name, len(layers)) for name, layers in stages),
    )


def _averaging(token: TokenHash, task: Task, attention: str) -> Attention:
    """h <- h + b·n·mean, over the sequence or the prefix; keys and queries, where there are any, are zero."""
    pattern = Pattern.CAUSAL if task is Task.CAUSAL else Pattern.FULL
    kind = Kind(attention)
    zero = None if kind is Kind.UNIFORM else Matrix.zero(1, 1)
    one = Matrix.of_dense([[1]])
    return Attention(kind, pattern, (Head(one, Matrix.of_dense([[token.mean_factor]]), zero, zero),))


def _counted(blocks: Sequence[StreamBlock]) -> int:
    return sum(block.parameters for block in blocks)
