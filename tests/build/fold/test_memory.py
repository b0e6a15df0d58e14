"""The label memory against its definition: 2·label + 1 for every id, evaluated block by block in Python integers."""

from __future__ import annotations

import random
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from byheart.build.fold import LabelMemory, build_label_memory, run_blocks
from byheart.build.fold.solve import solve_one
from byheart.errors import BuildError, OptionError


def sample(count: int, classes: int, seed: int = 0) -> tuple[list[int], list[int]]:
    rng = random.Random(seed)
    ids = rng.sample(range(16 * count * count), count)
    return ids, [rng.randrange(classes) for _ in ids]


def right(memory: LabelMemory, ids: list[int], labels: list[int]) -> bool:
    return all(run_blocks(memory.blocks, x) == 2 * y + 1 for x, y in zip(ids, labels, strict=True))


SHAPES = {
    "consecutive": lambda n: list(range(n)),
    "clusters": lambda n: [10**6 * (i // 10) + i % 10 for i in range(n)],
    "multiples": lambda n: [i << 30 for i in range(n)],
    "almost multiples": lambda n: [(i << 30) + i % 2 for i in range(n)],
    "squares": lambda n: [i * i for i in range(n)],
    "huge": lambda n: [(1 << 500) + i * (1 << 200) + i for i in range(n)],
    "powers": lambda n: [1 << i for i in range(n)],
}


@pytest.mark.parametrize("classes", [2, 5, 16])
@pytest.mark.parametrize("shape", SHAPES)
def test_ids_of_any_shape(shape: str, classes: int) -> None:
    ids = SHAPES[shape](400)
    labels = [random.Random(f"{i}").randrange(classes) for i in range(400)]
    assert right(build_label_memory(ids, labels, classes, effort="fast"), ids, labels)


@pytest.mark.parametrize("objective", ["parameters", "bits", "depth"])
@pytest.mark.parametrize("classes", [1, 2, 3, 16, 100])
def test_objectives(objective: str, classes: int) -> None:
    ids, labels = sample(700, classes, seed=classes)
    memory = build_label_memory(ids, labels, classes, objective=objective, effort="fast")
    assert right(memory, ids, labels)
    if objective == "depth":
        assert len(memory.blocks) == 1


def test_objectives_pay() -> None:
    ids, labels = sample(1500, 16)
    small = build_label_memory(ids, labels, 16)
    short = build_label_memory(ids, labels, 16, objective="bits")
    assert small.parameters < short.parameters and short.total_bits < small.total_bits
    assert short.total_bits < 3 * 1500 * 4


@pytest.mark.parametrize(("count", "classes"), [(1000, 2), (1000, 16), (3000, 2), (3000, 11)])
def test_size(count: int, classes: int) -> None:
    ids, labels = sample(count, classes, seed=count)
    memory = build_label_memory(ids, labels, classes)
    assert right(memory, ids, labels)
    bits = (classes - 1).bit_length()
    assert memory.parameters <= 11 * (count * bits) ** 0.5
    assert memory.parameters == 3 * memory.groups + 1 + 4 * (len(memory.blocks) - 1)  # the count formula


class AtOnce(Executor):
    """Runs what it is given on the spot: an executor from elsewhere."""

    def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def]
        future: Future[object] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def test_any_executor_same_blocks() -> None:
    ids, labels = sample(5000, 2)
    blocks = build_label_memory(ids, labels, 2, effort="fast", seed=3, executor=AtOnce()).blocks
    with ThreadPoolExecutor(3) as threads:
        assert build_label_memory(ids, labels, 2, effort="fast", seed=3, executor=threads).blocks == blocks
    assert build_label_memory(ids, labels, 2, effort="fast", seed=3).blocks == blocks
    assert build_label_memory(ids, labels, 2, effort="fast", seed=4).blocks != blocks


@pytest.mark.slow
def test_processes_same_blocks() -> None:
    import multiprocessing

    ids, labels = sample(5000, 2)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as processes:
        blocks = build_label_memory(ids, labels, 2, effort="fast", executor=processes).blocks
    assert build_label_memory(ids, labels, 2, effort="fast").blocks == blocks
    assert solve_one.__module__ == "byheart.build.fold.solve"  # a plain function: pickles by name


def test_order_of_ids_does_not_matter() -> None:
    ids, labels = sample(300, 4)
    pairs = list(zip(ids, labels, strict=True))
    random.Random(1).shuffle(pairs)
    shuffled = build_label_memory([x for x, _ in pairs], [y for _, y in pairs], 4, effort="fast")
    assert shuffled.blocks == build_label_memory(ids, labels, 4, effort="fast").blocks


@settings(max_examples=60, deadline=None)
@given(
    ids=st.sets(st.one_of(st.integers(0, 40), st.integers(0, 1 << 70)), min_size=1, max_size=90),
    classes=st.integers(1, 40),
    seed=st.integers(0, 5),
    objective=st.sampled_from(["parameters", "bits", "depth"]),
)
@example(ids={0}, classes=1, seed=0, objective="parameters")
@example(ids={0, 1 << 4000}, classes=2, seed=0, objective="bits")
@example(ids=set(range(90)), classes=2, seed=0, objective="bits")
def test_tiny_odd_cases(ids: set[int], classes: int, seed: int, objective: str) -> None:
    xs = sorted(ids)
    rng = random.Random(seed)
    labels = [rng.randrange(classes) for _ in xs] if seed else [classes - 1] * len(xs)
    memory = build_label_memory(xs, labels, classes, objective=objective, effort="fast", seed=seed)
    assert right(memory, xs, labels)


def test_equal_labels_need_one_unit() -> None:
    ids, _ = sample(2000, 2)
    assert build_label_memory(ids, [7] * 2000, 16).parameters == 4


@pytest.mark.parametrize(
    ("ids", "labels", "error"),
    [([], [], BuildError), ([1, 1], [0, 1], BuildError), ([-1, 2], [0, 1], BuildError), ([1, 2], [0, 2], BuildError)],
)
def test_refuses(ids: list[int], labels: list[int], error: type[Exception]) -> None:
    with pytest.raises(error):
        build_label_memory(ids, labels, 2)


def test_unknown_options() -> None:
    with pytest.raises(OptionError, match="objective='small' is not one of parameters, bits, depth"):
        build_label_memory([1], [0], 1, objective="small")


@pytest.mark.slow
@pytest.mark.parametrize("effort", ["normal", "high"])
def test_promised_size(effort: str) -> None:
    ids, labels = sample(10_000, 2)
    memory = build_label_memory(ids, labels, 2, effort=effort)
    assert right(memory, ids, labels)
    assert memory.parameters <= {"normal": 10.5, "high": 9.6}[effort] * 100
