"""Where a memory is built makes no difference: the file is the same, byte for byte."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from byheart.cli import commands
from byheart.errors import ByheartError, OptionError
from byheart.executors import make_executor, opened


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("executors") / "t.csv"
    path.write_text("name,kind\n" + "".join(f"w{k * k % 10007},{k % 2}\n" for k in range(600)))
    return path


def build(table, name: str, *flags: str) -> bytes:
    out = table.with_name(name)
    result = CliRunner().invoke(
        commands, ["memorize", str(table), "-o", str(out), "--json", *flags], standalone_mode=False
    )
    assert result.exception is None, result.exception
    assert json.loads(result.output)["verdict"] == "proved"
    return out.read_bytes()


@pytest.fixture(scope="module")
def alone(table):
    return build(table, "alone")


def test_threads_build_the_same_file(table, alone):
    assert build(table, "threads", "--executor", "threads:2") == alone


@pytest.mark.slow
@pytest.mark.parametrize("name", ["processes:2", "serial"])
def test_processes_build_the_same_file(table, alone, name):
    assert build(table, "other", "--executor", name) == alone


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_dask_cluster_builds_the_same_file(table, alone):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        assert build(table, "dask", "--executor", f"dask:{cluster.scheduler_address}") == alone


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_ray_cluster_builds_the_same_file(table, alone):
    pytest.importorskip("ray", reason="pip install 'byheart[ray]'")
    assert build(table, "ray", "--executor", "ray") == alone


def test_executors_that_cannot_be_are_named(table):
    for name, words in (
        ("cloud", "unknown executor 'cloud'; known: processes"),
        ("processes:many", "write processes:N"),
        ("threads:0", "write threads:N"),
        ("nowhere:function", "give module:function"),
    ):
        with pytest.raises(OptionError, match=words), opened(name, 1):
            pass
    result = CliRunner().invoke(
        commands, ["memorize", str(table), "--construction", "ks25", "--executor", "threads"], standalone_mode=False
    )
    assert isinstance(result.exception, ByheartError)
    assert "ks25 builds in this process; those that can use one: compact" in str(result.exception)


def test_a_number_of_workers_in_the_name():
    with opened("threads:3", 1) as executor:
        assert executor._max_workers == 3
    assert make_executor("threads", 2)._max_workers == 2
