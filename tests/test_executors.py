"""Where a memory is built makes no difference: the file is the same, byte for byte."""

from __future__ import annotations

import json
import os
from concurrent.futures import Executor

import pytest
from click.testing import CliRunner

from byheart.cli import commands
from byheart.errors import DataError, OptionError
from byheart.executors import make_executor, opened, process_pool


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("executors") / "t.csv"
    names = dict.fromkeys(f"w{k * k % 100003}" for k in range(1500))
    path.write_text("name,kind\n" + "".join(f"{name},{k * k % 7 % 2}\n" for k, name in enumerate(names)))
    return path


@pytest.fixture(autouse=True)
def submitted(monkeypatch):
    """So few rows are divided all the same; the names of what an executor was given, to see that it was used."""
    monkeypatch.setattr("byheart.build.fold.memory.SEGMENT_SECONDS", 1e-4)
    names: list[str] = []

    def watched(name: str, processes: int) -> Executor:
        executor = make_executor(name, processes)
        submit = executor.submit

        def noted(task, *arguments, **keywords):
            names.append(task.__name__)
            return submit(task, *arguments, **keywords)

        executor.submit = noted
        return executor

    monkeypatch.setattr("byheart.executors.make_executor", watched)
    return names


def build(table, name: str, *flags: str) -> bytes:
    out = table.with_name(name)
    result = CliRunner().invoke(
        commands,
        ["memorize", str(table), "-o", str(out), "--json", "--option", "effort=quick", *flags],
        standalone_mode=False,
    )
    assert result.exception is None, result.exception
    assert json.loads(result.output)["verdict"] == "proved"
    return out.read_bytes()


def same_with(table, submitted: list[str], executor: str) -> bool:
    alone = build(table, "alone")
    assert not submitted
    found = build(table, "other", "--executor", executor)
    assert submitted.count("solve_segment") >= 2
    return found == alone


def test_threads_build_the_same_file(table, submitted):
    assert same_with(table, submitted, "threads:2")


def test_what_was_kept_of_a_build_is_removed_when_it_is_done_and_other_files_are_left_alone(table, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(table.parent / "state"))
    kept = table.with_name("t.kept")
    kept.write_text('\n{"key": "of an earlier build", "part": "0"}\n')
    build(table, "kept", "--resume", str(kept))
    assert not kept.exists()
    before = table.read_bytes()
    flags = ["memorize", str(table), "-o", str(kept), "--option", "effort=quick", "--resume", str(table)]
    with pytest.raises(DataError, match="does not hold parts of a build"):
        CliRunner().invoke(commands, flags, standalone_mode=False, catch_exceptions=False)
    assert table.read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("name", ["processes:2", "serial"])
def test_processes_build_the_same_file(table, submitted, name):
    assert same_with(table, submitted, name)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_dask_cluster_builds_the_same_file(table, submitted):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        assert same_with(table, submitted, f"dask:{cluster.scheduler_address}")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_ray_cluster_builds_the_same_file(table, submitted):
    pytest.importorskip("ray", reason="pip install 'byheart[ray]'")
    assert same_with(table, submitted, "ray")


def test_executors_that_cannot_be_are_named(table):
    for name, words in (
        ("cloud", "unknown executor 'cloud'; known: processes"),
        ("processes:many", "write processes:N"),
        ("threads:0", "write threads:N"),
        ("nowhere:function", "give module:function"),
    ):
        with pytest.raises(OptionError, match=words), opened(name, 1):
            pass


@pytest.mark.parametrize("construction", ["ks25", "native"])
def test_constructions_that_build_in_one_process_ask_their_rows_elsewhere(table, submitted, construction, monkeypatch):
    for name in ("XDG_STATE_HOME", "LOCALAPPDATA"):  # where the key of seals is kept
        monkeypatch.setenv(name, str(table.parent / "state"))
    flags = ("--construction", construction, "--max-rows", "60")
    base = ["memorize", str(table), "--quiet", *flags, "-o"]
    written = []
    for name, more in (("alone", ()), ("other", ("--executor", "threads:2", "--resume", str(table) + ".kept"))):
        out = table.with_name(name)
        result = CliRunner().invoke(commands, [*base, str(out), *more], standalone_mode=False)
        assert result.exception is None, result.exception
        written.append(out.read_bytes())
    assert written[0] == written[1] and submitted == ["_elsewhere"]
    assert not list(table.parent.glob("*.kept*"))
    verified = ["verify", str(table.with_name("alone")), str(table), "--max-rows", "60", "--executor", "threads:2"]
    result = CliRunner().invoke(commands, [*verified, "--quiet"], standalone_mode=False)
    assert result.exception is None and submitted == ["_elsewhere"] * 2


def test_native_solves_its_buckets_elsewhere_and_the_file_is_the_same(table, submitted, monkeypatch):
    monkeypatch.setattr("byheart.build.native.solve.FIRST_KEYS", 100)
    monkeypatch.setattr("byheart.build.native.solve.PART_KEYS", 300)
    written = []
    for name, more in (("alone", ()), ("other", ("--executor", "threads:2"))):
        out = table.with_name(name)
        flags = ["memorize", str(table), "--quiet", "--construction", "native", "-o", str(out), *more]
        result = CliRunner().invoke(commands, flags, standalone_mode=False)
        assert result.exception is None, result.exception
        written.append(out.read_bytes())
    assert written[0] == written[1] and submitted.count("solve_part") >= 3


def test_deploy_divides_its_work_too(table, submitted, monkeypatch):
    pytest.importorskip("onnxruntime")
    for name in ("XDG_STATE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(table.parent / "state"))
    monkeypatch.setattr("byheart.build.native.solve.FIRST_KEYS", 100)
    written = []
    for name, more in (("one.onnx", ()), ("two.onnx", ("--executor", "threads:2", "--resume", str(table) + ".kept"))):
        flags = ["deploy", str(table), "--quiet", "--as", "network", "-o", str(table.with_name(name)), *more]
        result = CliRunner().invoke(commands, flags, standalone_mode=False)
        assert result.exception is None, result.exception
        written.append(table.with_name(name).read_bytes())
    assert written[0] == written[1] and {"solve_part", "_elsewhere"} <= set(submitted)
    assert not list(table.parent.glob("*.kept*"))


def test_a_number_of_workers_in_the_name():
    with opened("threads:3", 1) as executor:
        assert executor._max_workers == 3
    assert make_executor("threads", 2)._max_workers == 2


def test_a_pool_of_processes_leaves_the_environment_as_it_was(monkeypatch):
    """Children use one thread; the parent's own libraries are not."""
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    with process_pool(1) as pool:
        assert pool.submit(os.getenv, "OMP_NUM_THREADS").result() == "1"
        assert os.environ["OMP_NUM_THREADS"] == "7" and "NUMBA_NUM_THREADS" not in os.environ
