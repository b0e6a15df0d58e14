"""Studies: nothing lost, nothing counted twice, and clear words about what cannot be read."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("optuna", reason="needs byheart[lab]")

from byheart.errors import FileFormatError, OptionError
from byheart.executors import SerialExecutor, make_executor
from byheart.lab.results import table
from byheart.lab.study.run import DataPlace, look, resume_run, start_run, train_trial, work
from byheart.lab.study.storage import JournalLock, StorageError, open_storage
from byheart.lab.study.study import create_study, open_study
from tests.lab.small import search

PROJECT = Path(__file__).parents[3]
TINY = search()


def finish_all(study):
    work(study, SerialExecutor(), 1, DataPlace(), alone=True)
    return table(study.experiment, study.finished())


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return finish_all(create_study(str(tmp_path_factory.mktemp("alone") / "study.journal"), TINY))


def test_a_study_finishes_and_stays_finished(tmp_path, expected):
    path = str(tmp_path / "study.journal")
    assert finish_all(create_study(path, TINY)) == expected
    again = open_study(path)
    assert again.done() and again.claim() is None
    assert table(again.experiment, again.finished()) == expected


def test_two_workers_never_train_the_same_trial(tmp_path, expected):
    path = str(tmp_path / "study.journal")
    one, two = create_study(path, TINY), create_study(path, TINY)
    trained = []
    while True:
        claims = [(study, claim) for study in (one, two, one) if (claim := study.claim()) is not None]
        if not claims:
            break
        for study, claim in claims:
            trained.append(claim.trial.key)
            study.finish(claim, train_trial(TINY, claim.trial, DataPlace()))
    assert len(trained) == len(set(trained))
    assert one.done() and table(TINY, two.finished()) == expected


def test_the_lowest_number_counts_when_two_create_at_once(tmp_path):
    path = str(tmp_path / "study.journal")
    one, two = create_study(path, TINY), create_study(path, TINY)
    trial = one.planner.needed({})[0]
    for study in (one, two):  # both found no study and created
        study.storage.create_new_trial(study.study_id, study._template(trial))
    claims = [study.claim() for study in (one, two)]
    assert claims[0].trial.key == trial.key and claims[1].trial.key != trial.key


def test_abandoned_trials_come_back(tmp_path, expected):
    path = str(tmp_path / "study.journal")
    gone = create_study(path, TINY)
    abandoned = {gone.claim().trial.key for _ in range(2)}
    here = open_study(path)
    assert finish_all(here) == expected
    assert abandoned <= set(here.finished())
    assert here.counts()["fail"] == 2


def test_a_late_result_of_one_taken_for_dead_is_dropped(tmp_path):
    path = str(tmp_path / "study.journal")
    slow, quick = create_study(path, TINY), create_study(path, TINY)
    claim = slow.claim()
    record = train_trial(TINY, claim.trial, DataPlace())
    quick.bury_dead(owner_is_alone=True)
    second = quick.claim()
    assert second.trial.key == claim.trial.key
    slow.finish(claim, record)  # too late, and no error
    quick.finish(second, record)
    assert list(quick.finished()) == [claim.trial.key]
    assert quick.counts() == {"fail": 1, "complete": 1}


def test_other_data_on_another_machine_is_noticed(tmp_path):
    study = create_study(str(tmp_path / "study.journal"), TINY)
    claim = study.claim()
    record = train_trial(TINY, claim.trial, DataPlace())
    object.__setattr__(record, "fingerprint", "0" * 64)
    study.finish(claim, record)
    with pytest.raises(ValueError, match="use the same file on every machine"):
        finish_all(study)
    assert "running" not in study.counts()


def test_a_newer_study_is_refused(tmp_path):
    path = str(tmp_path / "study.journal")
    study = create_study(path, TINY)
    study.storage.set_study_user_attr(study.study_id, "format", 99)
    study.storage.set_study_user_attr(study.study_id, "byheart", "9.9.9")
    refusal = r"written by byheart 9\.9\.9 \(format 99\).*pip install --upgrade byheart"
    with pytest.raises(FileFormatError, match=refusal):
        open_study(path)


def test_a_foreign_study_is_refused(tmp_path):
    import optuna

    path = str(tmp_path / "study.journal")
    optuna.create_study(study_name="byheart-other", storage=open_storage(path))
    with pytest.raises(FileFormatError, match="not a study of byheart's laboratory"):
        open_study(path, "byheart-other")
    with pytest.raises(StorageError, match="no study 'mine'"):
        open_study(path, "mine")


def test_a_storage_that_is_not_there():
    with pytest.raises(StorageError) as caught:
        open_storage("postgresql://lab:secret@127.0.0.1:9/studies")
    assert "cannot reach the storage postgresql://lab@127.0.0.1:9/studies" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_journal_has_one_owner(tmp_path):
    lock = JournalLock(tmp_path / "study.journal")
    with pytest.raises(StorageError, match="in use by a running"):
        JournalLock(tmp_path / "study.journal")
    lock.release()
    JournalLock(tmp_path / "study.journal").release()


def test_half_a_line_is_cut_off(tmp_path, expected):
    path = tmp_path / "study.journal"
    study = create_study(str(path), TINY)
    claim = study.claim()
    study.finish(claim, train_trial(TINY, claim.trial, DataPlace()))
    with open(path, "ab") as file:
        file.write(b'{"op_code": 8, "tri')
    (tmp_path / "study.journal.lock").symlink_to(path)
    JournalLock(path).release()
    assert finish_all(open_study(str(path))) == expected


@pytest.mark.parametrize("name", ["nobody", "json:dumps", "no_such_module:make", "os:getcwd"])
def test_executors_that_are_none(name):
    with pytest.raises((OptionError, TypeError)):
        make_executor(name, 1)


def test_any_executor_will_do(tmp_path, expected):
    study = start_run(tmp_path, TINY, executor="concurrent.futures:ThreadPoolExecutor", processes=3)
    assert table(TINY, study.finished()) == expected
    with pytest.raises(OptionError, match="contains another study"):
        start_run(tmp_path, search(seed=5))


@pytest.mark.slow
def test_a_dask_cluster_will_do(tmp_path):
    pytest.importorskip("distributed", reason="needs byheart[distributed]")
    program = (
        "from pathlib import Path; from byheart.lab.study.run import start_run; from tests.lab.small import search\n"
        "if __name__ == '__main__': print(start_run(Path('out'), search(), executor='dask', processes=2).done())"
    )
    (tmp_path / "cluster.py").write_text(program)
    environment = {**os.environ, "PYTHONPATH": f"{PROJECT / 'src'}{os.pathsep}{PROJECT}"}
    command = [sys.executable, "cluster.py"]
    run = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    assert run.stdout.split() == ["True"]
    assert table(TINY, look(tmp_path / "out").finished())


LONG = search(epochs=5_000, loss=0.0, trials=2)
RUNNER = """
import sys
from pathlib import Path
from byheart.lab.study.run import start_run
from tests.lab.study.test_study import LONG
if __name__ == "__main__":
    start_run(Path(sys.argv[1]), LONG, processes=2)
"""


def test_kill_9_in_the_middle_then_resume(tmp_path):
    """The final table equals an uninterrupted run's, and no finished trial is trained again."""
    (tmp_path / "runner.py").write_text(RUNNER)
    environment = {**os.environ, "PYTHONPATH": f"{PROJECT / 'src'}{os.pathsep}{PROJECT}"}
    folder = tmp_path / "killed"
    run = subprocess.Popen([sys.executable, tmp_path / "runner.py", folder], env=environment)
    try:
        wait_for(lambda: (folder / "settings.json").exists() and len(look(folder).finished()) >= 2, run)
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    before = look(folder)
    kept = before.finished()
    assert not before.done()
    resumed = resume_run(folder, processes=2)
    assert resumed.done()
    assert {key: resumed.finished()[key] for key in kept} == kept  # with their seconds: not trained again
    whole = start_run(tmp_path / "whole", LONG, processes=2)
    assert table(LONG, resumed.finished()) == table(LONG, whole.finished())


def wait_for(condition, process, seconds=120):
    until = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < until
        time.sleep(0.05)
