"""native: a memory that float64 or float32 evaluates exactly, in any order, in PyTorch and ONNX Runtime.

Tokens become random whole numbers, attention with zero scores adds them to a context id, and a label memory of hash
chains, a bucket selector and a scan looks the label up. No value ever needs more bits than the float type has; the
claim states so and the checker proves it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from byheart.build._base import Construction, Option, register
from byheart.build.native.front import (
    FEW_TABLE_ROWS,
    TokenMap,
    attention_parameters,
    context_ids,
    draw_tokens,
    front_stages,
    token_maps,
    token_parameters,
)
from byheart.build.native.hashing import HashChain, Ints
from byheart.build.native.layout import FloatType, Layout, dense_parameters, float_type
from byheart.build.native.memory import BucketWords, Refusal, memory_blocks, store
from byheart.build.native.plan import Need, choose
from byheart.build.native.scramble import Box, vector_bits
from byheart.build.native.solve import eliminate
from byheart.build.native.tokens import Mixing, Sizing, sizing
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.data.tokens.tokenizer import TokenTable
from byheart.errors import BuildError, OptionError
from byheart.executors import AnyExecutor
from byheart.ir.layers import Affine, Layer, Matrix
from byheart.ir.network import Decode, Network, Read, Readout
from byheart.paper import Ref
from byheart.progress import Progress
from byheart.theory.guarantees.native import SPARE_BITS as MOST_SPARE_BITS
from byheart.theory.guarantees.native import mixing_of, native, rounds

PATIENCE = 60  # draws of the chains that the planner allows for
# Hash chains that are sampled per token table. Tuned by hand.
DRAWS_PER_TABLE = 400
# Token tables that are sampled. Tuned by hand.
TABLES = 4
# Spare bits of ids that are tried in turn: fewer collisions for longer numbers.
SPARE_BITS = (0, 4, MOST_SPARE_BITS)
READS = {Task.NEXT_TOKEN: Read.LAST, Task.SEQ_TO_SEQ: Read.EACH, Task.SET: Read.POOLED, Task.CAUSAL: Read.EACH}
REF = Ref("byheart", "float-native Transformer")


def _plan(table: TokenTable, rows: int, classes: int, options: Mapping[str, Any]) -> int:
    """Parameters for rows of symbols, which are scrambled where a table of them would be larger."""
    how = {name: options[name] for name in ("abstain_bits", "dtype")}
    base, width, scrambler = planned_sizes(rows, classes, table.length, positions=True, **how)
    height = (table.symbols + 1) * table.length
    return base + (width * height if height <= FEW_TABLE_ROWS else min(width * height, scrambler))


@register(
    "native",
    summary="hash chains, bucket selector and scan; bit-exact in float64 or float32 in any evaluation order",
    formula="byheart native",
    description="Every weight and every value is exact in float64, whatever the order of evaluation, so the exported "
    "model is bit-exact in PyTorch and ONNX Runtime. Use it to ship.",
    ref=REF,
    tasks=(Task.NEXT_TOKEN, Task.SEQ_TO_SEQ, Task.SET, Task.CAUSAL),
    options=(
        Option("dtype", str, "float64", "the float type that the network runs in", ("float64", "float32")),
        Option("abstain_bits", int, 0, "fingerprint bits: unseen inputs are answered with probability 2^-bits"),
        Option("objective", str, "size", "fewest parameters, or fastest evaluation", ("size", "speed")),
        Option("executor", AnyExecutor, None, "a concurrent.futures.Executor that solves the buckets", optional=True),
    ),
    floats=True,
    plan=_plan,
    kernels=lambda: (eliminate,),
)
def build(
    dataset: Dataset,
    *,
    seed: int,
    progress: Progress,
    dtype: str,
    abstain_bits: int,
    objective: str,
    executor: Executor | None = None,
) -> Construction:
    """A native memory of this data; draws until every bucket is solved.

    Its size grows like sqrt(K·c) for K contexts with c label bits, apart from the embedding table.
    """
    if not 0 <= abstain_bits <= 32:
        raise OptionError(f"abstain_bits={abstain_bits} must lie in 0..32; 8 lets one unseen input in 256 pass")
    kind = float_type(dtype)
    mixing = mixing_of(dataset.encoder.task, dataset.encoder.positions)
    options = {"dtype": dtype, "abstain_bits": abstain_bits, "objective": objective}
    rng = random.Random(f"native {seed}")
    refusal = Refusal("nothing was sampled")
    for shape in _shapes(dataset, kind, mixing, abstain_bits, objective):
        _keep_budget(dataset, options, shape.parameters)
        drawn = _draw(dataset, kind, mixing, shape, rng, progress, executor)
        if not isinstance(drawn, Refusal):
            tokens, chains, stored = drawn
            size, layout = shape.size, shape.layout
            break
        refusal = drawn
    else:
        raise BuildError(
            f"no draw of tables and hash chains fits the data: {refusal.reason}; {_remedy(mixing, refusal)}"
        )
    stages = front_stages(dataset, kind, mixing, size, layout, tokens)
    stages += [(name, blocks) for name, blocks in memory_blocks(layout, chains, stored) if blocks]
    stages.append(("answer", [Affine(Matrix.of([{layout.bucket_channel: 1}], layout.width))]))
    layers: list[Layer] = [layer for _, part in stages for layer in part]
    network = Network(
        tuple(layers),
        READS[dataset.encoder.task],
        Readout(Decode.VALUE, dataset.C),
        tuple((name, len(part)) for name, part in stages),
    )
    return Construction(network, options, _notes(layout, stored))


@dataclass(frozen=True)
class _Shape:
    """How long the tokens' numbers are, the shape of the memory that reads them, the parameters of both, and where
    tokens lie that are not looked up in a table."""

    size: Sizing
    layout: Layout
    parameters: int
    boxes: tuple[Box, ...] | None


def _shapes(
    dataset: Dataset, kind: FloatType, mixing: Mixing, fingerprint_bits: int, objective: str
) -> Iterator[_Shape]:
    """Shapes to try, one after the other: without and with spare bits, and of each the one with fewest parameters
    first. Where tokens' numbers are too short for the scrambler, it is tried only if there is no other way.
    """
    ways = token_maps(dataset, objective)
    for spare in SPARE_BITS:
        plans = [_shape(dataset, boxes, kind, mixing, fingerprint_bits, objective, spare) for boxes in ways]
        fitting = [plan for plan in plans if plan.boxes is None or plan.size.table_bits >= vector_bits(plan.boxes)]
        yield from sorted(fitting or plans, key=lambda plan: plan.parameters)


def _shape(
    dataset: Dataset,
    boxes: tuple[Box, ...] | None,
    kind: FloatType,
    mixing: Mixing,
    fingerprint_bits: int,
    objective: str,
    spare: int,
) -> _Shape:
    keys = len(dataset.contexts)
    least = 0 if boxes is None else vector_bits(boxes) + spare
    size = sizing(kind, mixing, dataset.n, dataset.encoder.positions, keys, spare, least, fingerprint_bits)
    label_bits = max(1, (dataset.C - 1).bit_length())
    need = Need(kind, keys, label_bits, fingerprint_bits, size.chains, size.warmup, size.scale)

    def front(shape: Layout) -> int:
        tokens = token_parameters(dataset.encoder, boxes, kind, size, shape)
        return _front_parameters(mixing, dataset.n, shape) + tokens

    layout = choose(need, objective, PATIENCE, front)
    return _Shape(replace(size, chains=layout.chains), layout, layout.parameters + front(layout), boxes)


def planned_sizes(
    keys: int, classes: int, length: int, *, abstain_bits: int = 0, dtype: str = "float64", positions: bool = False
) -> tuple[int, int, int]:
    """(parameters without the tokens' part, the stream's width, parameters of a token scrambler) before any draw.

    For `keys` rows of `length` tokens; a table of tokens has the width for each of its rows.

    >>> planned_sizes(40_000, 6, 8)
    (24713, 8, 1654)
    """
    kind = float_type(dtype)
    size = sizing(kind, Mixing.FULL, length, positions, keys, abstain_bits=abstain_bits)
    label_bits = max(1, (classes - 1).bit_length())
    need = Need(kind, keys, label_bits, abstain_bits, size.chains, size.warmup, size.scale)
    layout = choose(need, "size", PATIENCE, lambda shape: _front_parameters(Mixing.FULL, length, shape))
    folds = size.table_bits + 8  # as sampled for vectors; every one is a block with two units for each chain
    scrambler = folds * dense_parameters(layout.width, 2 * layout.chains) + 2 * layout.width
    return layout.parameters + _front_parameters(Mixing.FULL, length, layout), layout.width, scrambler


def _front_parameters(mixing: Mixing, length: int, layout: Layout) -> int:
    """Dense parameters of attention, prefix sum and snap: the shape's addition to the memory's own."""
    width, total = layout.width, layout.width  # the answer is a linear map to one number
    if mixing is Mixing.POOL:
        return total
    total += attention_parameters(width, layout.chains)
    if rounds(mixing, length):
        total += 2 * width
    if mixing is Mixing.PREFIX_SUM:
        hidden = [layout.chains + 2] * length.bit_length()
        hidden[-1] += layout.chains
        total += sum(dense_parameters(width, h) for h in hidden)
    return total


def _draw(
    dataset: Dataset,
    kind: FloatType,
    mixing: Mixing,
    shape: _Shape,
    rng: random.Random,
    progress: Progress,
    executor: Executor | None,
) -> tuple[TokenMap, list[HashChain], BucketWords] | Refusal:
    """Tables until contexts differ, chains until every bucket is solved; the last reason if none will do."""
    last, size, layout = Refusal("no draw was made"), shape.size, shape.layout
    with progress.stage("drawing hash chains") as stage:
        for _ in range(TABLES):
            tokens = draw_tokens(dataset, shape.boxes, kind, size, layout.chains, rng)
            keys = _distinct_keys(dataset, context_ids(dataset, mixing, size, tokens.numbers))
            if isinstance(keys, Refusal):
                last = keys
                continue
            for _ in range(DRAWS_PER_TABLE):
                chains = [HashChain(_odd(rng, size.id_bound), size.scale) for _ in range(layout.chains)]
                stored = store(layout, chains, *keys, executor)
                stage.advance()
                if not isinstance(stored, Refusal):
                    return tokens, chains, stored
                last = stored
    return last


def _remedy(mixing: Mixing, refusal: Refusal) -> str:
    if mixing is Mixing.PREFIX_MEAN and refusal.alike:
        return "without positions, prefixes in the same proportions (such as ab and aabb) look alike: turn positions on"
    return "try another seed, dtype float64, or construction compact"


def _distinct_keys(dataset: Dataset, ids: Ints) -> tuple[Ints, Ints] | Refusal:
    """The ids without repeats and their labels; a refusal when equal ids have different labels."""
    contexts = dataset.contexts
    order = np.lexsort(ids.T)
    ordered, marks = ids[order], contexts.label[order]
    same = (ordered[1:] == ordered[:-1]).all(axis=1)
    clash = np.flatnonzero(same & (marks[1:] != marks[:-1]))
    if len(clash):
        rows = sorted({int(contexts.row[order[k]]) for k in (clash[0], clash[0] + 1)})
        return Refusal(
            f"contexts of row{'s' if len(rows) > 1 else ''} {' and '.join(map(str, rows))} look alike", alike=True
        )
    first = np.concatenate([[True], ~same])
    return ordered[first], marks[first]


def _odd(rng: random.Random, bound: int) -> int:
    """A random odd modulus above every possible id."""
    return rng.randrange(bound, bound + bound // 4) | 1


def _keep_budget(dataset: Dataset, options: Mapping[str, Any], planned: int) -> None:
    """A plan that would break the guarantee is not built."""
    most = native(dataset, options).bounds.get("parameters")
    if most is not None and planned > most:
        raise BuildError(
            f"the plan needs {planned:,} parameters where {most:,} are guaranteed; please report this data's sizes "
            "(contexts, classes, tokens), and use objective=speed, which guarantees no size"
        )


def _notes(layout: Layout, stored: BucketWords) -> tuple[str, ...]:
    shape = (
        f"{layout.buckets} buckets of up to {layout.capacity} keys (fullest: {stored.largest_load}), "
        f"{layout.words} words of {layout.levels} levels per label bit, {layout.chains} hash chains"
    )
    return (shape,)
