"""byheart's own construction: a whole Transformer whose stream is one number.

E_in · a few folds that hash the token · uniform attention · the label memory · E_out. Every part is checked on the
data while it is built, and the parameters are those of the count formula in docs/compact.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any

from byheart.constructions._base import Construction, Option, register
from byheart.constructions.compact_tokens import TokenHash, hash_tokens
from byheart.data.dataset import Dataset
from byheart.data.task import Task
from byheart.errors import OptionError
from byheart.exact import dyadic
from byheart.gadgets.fold import Block, Effort, LabelMemory, Objective, build_label_memory
from byheart.ir.claim import Claim
from byheart.ir.layers import Affine, Attention, GlobalToken, Head, Kind, Layer, Pattern, Place, Pool
from byheart.ir.matrix import Matrix
from byheart.ir.network import Decode, Network, Read, Readout
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress

THEOREM = Ref("byheart", "compact memory")
HEADS = ("value", "logits")


class AnyExecutor:
    """The type of the option `executor`: anything that can `submit` like a concurrent.futures.Executor."""

    def __new__(cls, value: Any) -> Any:
        if not callable(getattr(value, "submit", None)):
            raise TypeError(value)
        return value


OPTIONS = (
    Option("objective", str, "parameters", "what to make small", tuple(o.value for o in Objective)),
    Option("effort", str, "normal", "how long to search: seconds, high: minutes", tuple(e.value for e in Effort)),
    Option("abstain_bits", int, 0, "f: inputs off the data are refused except with probability 2^-f"),
    Option("head", str, None, "value: one number; logits: a language model's (default for text)", HEADS, True),
    Option("attention", str, "uniform", "uniform, or softmax with zero scores: the same", ("uniform", "softmax")),
    Option("executor", AnyExecutor, None, "a concurrent.futures.Executor for the group solver", optional=True),
)


@register(
    "compact",
    summary="a stream of one number: folds count parities, about 10·sqrt(contexts·log2 C) parameters",
    ref=THEOREM,
    tasks=tuple(Task),
    options=OPTIONS,
)
@implements(
    THEOREM,
    statement="m groups of ids and folds of Q bits memorize the contexts with d + 1 + 4F + 2 + (3m + 1 + 4(Q-c-1)) + 2 "
    "parameters",
    test="tests/compact/test_compact.py",
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
) -> Construction:
    """Tokens to ids, ids to labels. `abstain_bits` asks for labels with that many more leading zeros."""
    head = head or ("logits" if is_language_model(dataset) and not abstain_bits else "value")
    _check(abstain_bits, head, objective)
    token, ids = hash_tokens(
        dataset, shallow=objective == "depth", thorough=abstain_bits > 0, seed=seed, progress=progress
    )
    labels = dataset.contexts.label.tolist()
    classes = max(2, 1 << (dataset.C - 1).bit_length()) << abstain_bits if abstain_bits else dataset.C
    memory = build_label_memory(
        ids, labels, classes, objective=objective, effort=effort, seed=seed, executor=executor, progress=progress,
        sections=(classes - 1).bit_length() if abstain_bits else None,
    )
    network = _network(dataset, token, memory, head, attention)
    options = {
        "objective": objective, "effort": effort, "abstain_bits": abstain_bits, "head": head, "attention": attention,
    }
    return Construction(network, _claim(dataset, token, memory, head, attention), options, _notes(token, memory))


def is_language_model(dataset: Dataset) -> bool:
    """Do the labels of prefixes name tokens, as next tokens do (or are they texts, where pages are numbered)?"""
    symbols = dataset.encoder.symbols
    if dataset.encoder.task is not Task.CAUSAL or symbols is None:
        return False
    numbers = [symbol for symbol in symbols if isinstance(symbol, int)]
    numbered = numbers == list(range(len(numbers))) and all(isinstance(label, str) for label in dataset.classes)
    return set(dataset.classes) <= set(symbols) or (numbered and len(numbers) > 0)


def _check(abstain_bits: int, head: str, objective: str) -> None:
    if not 0 <= abstain_bits <= 40:
        raise OptionError(f"abstain_bits={abstain_bits} must lie in 0..40; 20 refuses all but one in a million")
    if abstain_bits and head == "logits":
        raise OptionError("logits always name a class: abstain_bits needs head=value")
    if abstain_bits and objective == "depth":
        raise OptionError("one block cannot refuse: abstain_bits needs objective=parameters or bits")


def _network(dataset: Dataset, token: TokenHash, memory: LabelMemory, head: str, attention: str) -> Network:
    task = dataset.encoder.task
    weights, bias = token.input_weights
    stages: list[tuple[str, Sequence[Layer]]] = [
        ("E_in", [Affine(Matrix.of_dense([weights]), (bias,))]),
        ("token hash", [block.layer() for block in token.blocks]),
        ("start token", [] if token.start is None else [GlobalToken((token.start,), Place.START)]),
        ("sum of the set", [Pool(1)]) if task is Task.SET else ("attention", [_averaging(token, task, attention)]),
        ("label memory", [block.layer() for block in memory.blocks]),
        ("E_out", [_output(dataset.C, head)]),
    ]
    stages = [(name, layers) for name, layers in stages if layers]
    read = {Task.NEXT_TOKEN: Read.LAST, Task.SET: Read.POOLED}.get(task, Read.EACH)
    decode = Decode.VALUE if head == "value" else Decode.ARGMAX
    return Network(
        tuple(layer for _, layers in stages for layer in layers),
        read,
        Readout(decode, dataset.C),
        tuple((name, len(layers)) for name, layers in stages),
    )


def _averaging(token: TokenHash, task: Task, attention: str) -> Attention:
    """h <- h + b·n·mean, over the sequence or the prefix; keys and queries, where there are any, are zero."""
    pattern = Pattern.CAUSAL if task is Task.CAUSAL else Pattern.FULL
    kind = Kind(attention)
    zero = None if kind is Kind.UNIFORM else Matrix.zero(1, 1)
    one = Matrix.of_dense([[1]])
    return Attention(kind, pattern, (Head(one, Matrix.of_dense([[token.mean_factor]]), zero, zero),))


def _output(classes: int, head: str) -> Affine:
    """The label is (h - 1)/2; as logits, g·h - g·(g + 1) = g(2y - g) is largest at g = y."""
    if head == "value":
        return Affine(Matrix.of_dense([[dyadic(1, -1)]]), (dyadic(-1, -1),))
    return Affine(Matrix.of([{0: g} for g in range(classes)], 1), tuple(-g * (g + 1) for g in range(classes)))


def _claim(dataset: Dataset, token: TokenHash, memory: LabelMemory, head: str, attention: str) -> Claim:
    """The count formula, from the numbers of groups and folds."""
    outputs = dataset.C if head == "logits" else 1
    averaging = 0 if dataset.encoder.task is Task.SET else 2 if attention == "uniform" else 4
    counted = _units(token.blocks) + _units(memory.blocks)
    started = int(token.start is not None)
    parameters = dataset.d + 1 + counted + started + averaging + 2 * outputs
    depth = len(token.blocks) + len(memory.blocks) + (averaging > 0)
    widest = max([1, *(len(block.units) for block in (*token.blocks, *memory.blocks))])
    return Claim(
        THEOREM,
        {"parameters": parameters, "depth": depth, "width": widest},
        {
            "parameters": f"d + 1 + 3·units + blocks + {averaging + started} + 2·{outputs}; {memory.groups} groups",
            "depth": "folds of the token hash, attention, blocks of the label memory",
            "width": "one unit per group",
        },
        assumptions=("exact integers of any length", "contexts have different ids, which is checked on the data"),
    )


def _units(blocks: Sequence[Block]) -> int:
    return sum(3 * len(block.units) + 1 for block in blocks)


def _notes(token: TokenHash, memory: LabelMemory) -> tuple[str, ...]:
    hashing = f"token hash: {len(token.blocks)} block(s) after {token.draws} draw(s)"
    if memory.layout is None:
        return hashing, "label memory: one line through all ids"
    found = f"{memory.groups} groups, {memory.layout.sections} section(s) of {memory.layout.search.levels} bits"
    return hashing, f"label memory: {found}, {memory.draws} draw(s)"
