"""The label memory against its definition: every id gets its label, evaluated block by block in Python integers."""

from __future__ import annotations

import math
import random
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import lru_cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from byheart.build.fold.memory import LabelMemory, build_label_memory
from byheart.build.fold.search import solve_segment
from byheart.errors import BuildError, OptionError


def sample(count: int, classes: int, seed: int = 0) -> tuple[list[int], list[int]]:
    rng = random.Random(seed)
    ids = rng.sample(range(16 * count * count), count)
    return ids, [rng.randrange(classes) for _ in ids]


def right(memory: LabelMemory, ids: list[int], labels: list[int]) -> bool:
    return all(memory.label(x) == y for x, y in zip(ids, labels, strict=True))


SHAPES = {
    "consecutive": lambda n: list(range(n)),
    "clusters": lambda n: [10**6 * (i // 10) + i % 10 for i in range(n)],
    "tight clusters": lambda n: [(i // 4 * 2654435761 % n << 40) + 7 * (i % 4) for i in range(n)],
    "clusters far apart": lambda n: [(i // 4 << 190) + 7 * (i % 4) for i in range(n)],
    "multiples": lambda n: [i << 30 for i in range(n)],
    "progression": lambda n: [12345 + i * 1000003 for i in range(n)],
    "almost multiples": lambda n: [(i << 30) + i % 2 for i in range(n)],
    "squares": lambda n: [i * i for i in range(n)],
    "huge": lambda n: [(1 << 500) + i * (1 << 200) + i for i in range(n)],
    "200 bits": lambda n: [random.Random(i).getrandbits(200) for i in range(n)],
    "powers": lambda n: [1 << i for i in range(n)],
}


@lru_cache
def plain_size(classes: int) -> int:
    return build_label_memory(*sample(400, classes), classes, effort="quick").parameters


@pytest.mark.parametrize("classes", [2, pytest.param(5, marks=pytest.mark.slow), 16])
@pytest.mark.parametrize("shape", SHAPES)
def test_ids_of_any_shape(shape: str, classes: int) -> None:
    ids = SHAPES[shape](400)
    labels = [random.Random(f"{i}").randrange(classes) for i in range(400)]
    memory = build_label_memory(ids, labels, classes, effort="quick")
    assert right(memory, ids, labels)
    assert memory.parameters <= 1.5 * plain_size(classes), (memory.parameters, memory.note)


@pytest.mark.parametrize("shape", ["powers", "200 bits", "progression"])
def test_long_ids_with_many_classes(shape: str) -> None:
    """Groups of powers have few digits, and traps do not look at the last of 200 bits."""
    ids = SHAPES[shape](400)
    labels = [random.Random(f"{i}").randrange(40) for i in range(400)]
    memory = build_label_memory(ids, labels, 40, effort="quick")
    assert right(memory, ids, labels)
    assert memory.parameters <= 1.5 * plain_size(40), (memory.parameters, memory.note)


def test_a_plan_keeps_a_fold_for_every_phase() -> None:
    """Variations of a plan once had fewer folds than phases."""
    ids = SHAPES["200 bits"](60)
    labels = [i % 40 for i in range(60)]
    assert right(build_label_memory(ids, labels, 40), ids, labels)


@pytest.mark.parametrize("objective", ["parameters", "bits", "depth"])
@pytest.mark.parametrize("head", ["value", "logits"])
@pytest.mark.parametrize("classes", [1, 2, 3, 40])
def test_objectives_and_heads(objective: str, head: str, classes: int) -> None:
    ids, labels = sample(200, classes, seed=classes)
    memory = build_label_memory(ids, labels, classes, objective=objective, effort="quick", head=head)
    assert right(memory, ids, labels)
    assert len(memory.reading.rows) == (1 if head == "value" else classes)
    if objective == "depth":
        assert len(memory.blocks) == 1


def test_objectives_pay() -> None:
    ids, labels = sample(700, 16)
    small = build_label_memory(ids, labels, 16, effort="quick")
    short = build_label_memory(ids, labels, 16, effort="quick", objective="bits")
    assert small.parameters < short.parameters and short.total_bits < small.total_bits
    assert short.total_bits < 3.5 * 700 * 4


@pytest.mark.parametrize(
    ("count", "classes", "factor"),
    [
        (100, 2, 7.2),
        (1000, 2, 5.9),
        (200, 16, 9.2),
        pytest.param(1000, 4, 6.3, marks=pytest.mark.slow),
        pytest.param(1000, 16, 7.6, marks=pytest.mark.slow),
        pytest.param(3000, 2, 5.7, marks=pytest.mark.slow),
    ],
)
def test_size(count: int, classes: int, factor: float) -> None:
    ids, labels = sample(count, classes, seed=count)
    memory = build_label_memory(ids, labels, classes)
    assert right(memory, ids, labels)
    assert memory.parameters <= factor * math.sqrt(count * math.log2(classes))


def test_skewed_labels_cost_their_entropy() -> None:
    rng = random.Random(5)
    ids, _ = sample(2000, 2)
    rare = [int(rng.random() < 0.1) for _ in ids]
    memory = build_label_memory(ids, rare, 2, effort="quick")
    even = build_label_memory(ids, [rng.randrange(2) for _ in ids], 2, effort="quick")
    assert right(memory, ids, rare)
    assert memory.parameters < 0.8 * even.parameters  # sqrt of 0.47 bits is 0.69
    many = rng.choices(range(40), [1 / (k + 2) ** 2 for k in range(40)], k=2000)
    skewed = build_label_memory(ids, many, 40, effort="quick", head="logits")
    flat = build_label_memory(ids, [rng.randrange(40) for _ in ids], 40, effort="quick", head="logits")
    assert right(skewed, ids, many) and skewed.parameters < 0.92 * flat.parameters


@pytest.mark.parametrize(("count", "classes", "bits"), [(1, 2, 9), (3, 2, 9), (40, 3, 6), (800, 5, 5), (800, 200, 3)])
def test_abstains_off_the_data(count: int, classes: int, bits: int) -> None:
    ids, labels = sample(max(count, 40), classes, seed=count)
    ids, labels = ids[:count], labels[:count]
    memory = build_label_memory(ids, labels, classes, abstain_bits=bits, effort="quick")
    assert right(memory, ids, labels)
    known, rng = set(ids), random.Random(1)
    strangers = [
        x for x in (rng.randrange(16 * 1600 if count < 40 else 16 * count**2) for _ in range(4000)) if x not in known
    ]
    accepted = sum(memory.label(x) in range(classes) for x in strangers) / len(strangers)
    assert accepted <= 2.0**-bits * 1.35 + 5 * math.sqrt(2.0**-bits / len(strangers))


class AtOnce(Executor):
    """Runs what it is given on the spot: an executor from elsewhere."""

    def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def]
        future: Future[object] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def many(executor: Executor | None, classes: int = 2, **options: object) -> LabelMemory:
    """A job of several segments, however small."""
    ids, labels = sample(1500, classes)
    return build_label_memory(ids, labels, classes, effort="quick", executor=executor, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("classes", [2, 40])
def test_any_executor_same_blocks(classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byheart.build.fold.memory.SEGMENT_SECONDS", 1e-3)
    blocks = many(AtOnce(), classes).blocks
    with ThreadPoolExecutor(3) as threads:
        assert many(threads, classes).blocks == blocks
    assert many(None, classes).blocks == blocks
    assert many(None, classes, seed=4).blocks != blocks
    ids, labels = sample(1500, classes)
    assert right(many(None, classes), ids, labels)


def test_an_interrupted_build_goes_on(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byheart.build.fold.memory.SEGMENT_SECONDS", 1e-3)
    path = tmp_path / "journal"
    wanted = many(None).blocks
    asked: list[int] = []

    def interrupted(segment):
        asked.append(len(segment.ids))
        if len(asked) == 3 and not path.with_suffix(".stopped").exists():
            path.with_suffix(".stopped").touch()
            raise KeyboardInterrupt
        return solve_segment(segment)

    monkeypatch.setattr("byheart.build.fold.segments.solve_segment", interrupted)
    with pytest.raises(KeyboardInterrupt):
        many(None, resume=path)
    path.write_text(path.read_text() + '{"key": "cut o')
    first = len(asked)
    assert many(None, resume=path).blocks == wanted
    whole = len(asked) - first
    asked.clear()
    assert many(None, resume=path).blocks == wanted and not asked, "nothing is solved twice"
    assert many(None, resume=path, seed=1).blocks != wanted and len(asked) > whole, "another build is another key"


@pytest.mark.slow
def test_processes_same_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    import multiprocessing

    monkeypatch.setattr("byheart.build.fold.memory.SEGMENT_SECONDS", 1e-3)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as processes:
        assert many(processes).blocks == many(None).blocks


def test_order_of_ids_does_not_matter() -> None:
    ids, labels = sample(300, 4)
    pairs = list(zip(ids, labels, strict=True))
    random.Random(1).shuffle(pairs)
    shuffled = build_label_memory([x for x, _ in pairs], [y for _, y in pairs], 4, effort="quick")
    assert shuffled.blocks == build_label_memory(ids, labels, 4, effort="quick").blocks


@settings(max_examples=40, deadline=None)
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
    memory = build_label_memory(xs, labels, classes, objective=objective, effort="quick", seed=seed)
    assert right(memory, xs, labels)


def test_equal_labels_need_one_unit() -> None:
    ids, _ = sample(2000, 2)
    assert build_label_memory(ids, [7] * 2000, 16).parameters == 6


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
    with pytest.raises(OptionError, match="head='sign' is not one of"):
        build_label_memory([1], [0], 1, head="sign")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "classes", "effort", "factor"),
    [(10_000, 2, "quick", 5.9), (10_000, 2, "normal", 5.35), (10_000, 2, "high", 5.25), (10_000, 16, "normal", 6.2)],
)
def test_guaranteed_size(count: int, classes: int, effort: str, factor: float) -> None:
    ids, labels = sample(count, classes)
    memory = build_label_memory(ids, labels, classes, effort=effort)
    assert right(memory, ids, labels)
    assert memory.parameters <= factor * math.sqrt(count * math.log2(classes))


@pytest.mark.parametrize(
    ("classes", "bits"),
    [(30, 32), pytest.param(30, 16, marks=pytest.mark.slow), pytest.param(200, 16, marks=pytest.mark.slow)],
)
def test_cells_far_narrower_than_the_walk(classes, bits):
    """Many classes and a fingerprint of many bits: cells of a millionth of the walk are still found."""
    rng = random.Random(0)
    ids = rng.sample(range(64 * classes**2), classes)
    memory = build_label_memory(ids, list(range(classes)), classes, head="value", abstain_bits=bits, effort="quick")
    assert right(memory, ids, list(range(classes)))


def test_high_effort_is_never_worse():
    """10,000 rows with 16 labels took 1,162 parameters with high effort and 1,159 with normal."""
    ids, labels = sample(40, 2)
    normal, high = (build_label_memory(ids, labels, 2, effort=effort).parameters for effort in ("normal", "high"))
    assert high <= normal
