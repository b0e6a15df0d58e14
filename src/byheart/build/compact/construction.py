"""byheart's own construction: a whole Transformer whose stream is one number.

E_in · a few folds that hash the token · uniform attention · the label memory · E_out. Every part is checked on the
data while it is built, and the parameters are those of the count formula in docs/compact.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from byheart.build._base import Construction, Option, register
from byheart.build.compact.tokens import TokenHash, hash_tokens
from byheart.build.compact.zigzag import zigzag_memory
from byheart.build.fold import Block, Effort, LabelMemory, Objective, build_label_memory
from byheart.build.fold.zigzag import Zigzag
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.errors import OptionError
from byheart.exact import dyadic
from byheart.ir.layers import Affine, Attention, GlobalToken, Head, Kind, Layer, Pattern, Place, Pool
from byheart.ir.matrix import Matrix
from byheart.ir.network import Decode, Network, Read, Readout
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress

THEOREM = Ref("byheart", "compact memory")
HEADS = ("value", "logits", "sign")


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
    Option("head", str, None, "value: one number; logits: a language model's; sign: two labels", HEADS, True),
    Option("attention", str, "uniform", "uniform, or softmax with zero scores: the same", ("uniform", "softmax")),
    Option("executor", AnyExecutor, None, "a concurrent.futures.Executor for the group solver", optional=True),
)


@register(
    "compact",
    summary="a stream of one number: folds count parities, about 10·sqrt(contexts·log2 C) parameters",
    formula="byheart compact",
    words="A stream of one number: folds count parities of a hashed id, and the label is the parity. The smallest "
    "network here; its weights are long integers. Take it by default.",
    ref=THEOREM,
    tasks=tuple(Task),
    options=OPTIONS,
)
@implements(
    THEOREM,
    statement="m groups of ids and folds of Q bits memorize the contexts with d + 1 + 4F + 2 + (3m + 1 + 4(Q-c-1)) + 2 "
    "parameters",
    test="tests/build/compact/test_construction.py",
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
    free = head is None and not abstain_bits
    head = head or ("logits" if is_language_model(dataset) and not abstain_bits else "value")
    _check(abstain_bits, head, objective)
    token, ids = hash_tokens(
        dataset, shallow=objective == "depth", thorough=abstain_bits > 0, seed=seed, progress=progress
    )
    back, small = None, None
    if head != "sign":
        labels = dataset.contexts.label.tolist()
        classes = max(2, 1 << (dataset.C - 1).bit_length()) << abstain_bits if abstain_bits else dataset.C
        memory = build_label_memory(
            ids,
            labels,
            classes,
            objective=objective,
            effort=effort,
            seed=seed,
            executor=executor,
            progress=progress,
            sections=(classes - 1).bit_length() if abstain_bits else None,
        )
        back = _label_back(memory, dataset.C, head)
    if back is None or (free and head == "value" and objective == Objective.PARAMETERS):
        budget = None if back is None else _counted(token.blocks) + back.parameters
        with progress.stage("looking for runs of labels"):
            small = zigzag_memory(dataset, token, Effort(effort), budget, seed)
    if small is not None:
        token, back, head = small.token, _zigzag_back(small.zigzag), "sign"
    if back is None:
        raise OptionError("head=sign reads one sign: it needs exactly two labels, and ids that tell them apart")
    network = _network(dataset, token, back, attention)
    options = {
        "objective": objective,
        "effort": effort,
        "abstain_bits": abstain_bits,
        "head": head,
        "attention": attention,
    }
    hashing = f"token hash: {len(token.blocks)} block(s) after {token.draws} draw(s)"
    return Construction(network, options, (hashing, back.note))


@dataclass(frozen=True)
class _Back:
    """What follows attention: blocks and E_out, with the number of groups (or runs) that the claim speaks of."""

    blocks: tuple[Block, ...]
    output: Affine
    decode: Decode
    groups: int
    note: str

    @property
    def parameters(self) -> int:
        return _counted(self.blocks) + self.output.parameters


def _label_back(memory: LabelMemory, classes: int, head: str) -> _Back:
    note = "label memory: one line through all ids"
    if memory.layout is not None:
        found = f"{memory.groups} groups, {memory.layout.sections} section(s) of {memory.layout.search.levels} bits"
        note = f"label memory: {found}, {memory.draws} draw(s)"
    decode = Decode.VALUE if head == "value" else Decode.ARGMAX
    return _Back(memory.blocks, _output(classes, head), decode, memory.groups, note)


def _zigzag_back(found: Zigzag) -> _Back:
    """Logits 0 and ±(h + shift)."""
    output = Affine(Matrix.of([{}, {0: found.sign}], 1), (0, found.sign * found.shift))
    blocks = (found.block,) if found.block.units else ()
    return _Back(blocks, output, Decode.ARGMAX, found.runs, f"label memory: a zigzag over {found.runs} runs of labels")


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
    if abstain_bits and head != "value":
        raise OptionError(f"{head} always names a class: abstain_bits needs head=value")
    if head == "sign" and objective != Objective.PARAMETERS:
        raise OptionError(f"head=sign makes parameters few, not {objective}: leave one of the two options away")
    if abstain_bits and objective == "depth":
        raise OptionError("one block cannot refuse: abstain_bits needs objective=parameters or bits")


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


def _output(classes: int, head: str) -> Affine:
    """The label is (h - 1)/2; as logits, g·h - g·(g + 1) = g(2y - g) is largest at g = y."""
    if head == "value":
        return Affine(Matrix.of_dense([[dyadic(1, -1)]]), (dyadic(-1, -1),))
    return Affine(Matrix.of([{0: g} for g in range(classes)], 1), tuple(-g * (g + 1) for g in range(classes)))


def _counted(blocks: Sequence[Block]) -> int:
    return sum(block.parameters for block in blocks)
