"""`byheart lab run`: a preset, from nothing to a table, in one folder that can be resumed.

FOLDER/settings.json contains the study's location (never a password); FOLDER/study.journal is the study, unless it
lives in a database. Tables and pictures are built from the study and can be rebuilt at any time.

`work` claims, trains and keeps until nothing is left: one loop for a laptop and for a hundred machines. Training itself
is a pure function of plain values (`train_trial`), so it runs in any `concurrent.futures.Executor`: processes of this
machine, threads, this process, or an executor that the user has.

>>> with opened("serial", 1) as executor:
...     executor.submit(max, 2, 3).result()
3
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path

from byheart.errors import ByheartError, DataError, FileFormatError, OptionError
from byheart.executors import opened
from byheart.files import write_atomically
from byheart.lab.engines.training import train
from byheart.lab.problem import DRAWN, Problem, make_problem
from byheart.lab.study.experiment import Experiment, TrialRecord, machine, versions
from byheart.lab.study.planner import Trial
from byheart.lab.study.storage import JournalLock, check_database, hidden, is_database
from byheart.lab.study.study import ClaimedTrial, Study, create_study, open_study


@dataclass(frozen=True)
class DataPlace:
    """Where this machine has its data: a file for the experiment's source, or a folder with the usual names."""

    file: str | None = None
    folder: str | None = None


def train_trial(experiment: Experiment, trial: Trial, data: DataPlace) -> TrialRecord:
    """Train one trial from its description alone."""
    return train_on(make_problem(experiment.problems[trial.problem], data.file, data.folder), experiment, trial)


def train_on(problem: Problem, experiment: Experiment, trial: Trial) -> TrialRecord:
    """Train one trial on a problem that is available."""
    model = experiment.model_of(trial.size, trial.problem)
    outcome = train(problem, model, trial.training, trial.goal, experiment.engine)
    return TrialRecord(
        key=trial.key,
        problem=experiment.problems[trial.problem],
        fingerprint=problem.fingerprint,
        model=model,
        parameters=model.parameters(problem),  # type: ignore[arg-type]
        training=trial.training,
        engine=experiment.engine,
        outcome=outcome,
        versions=versions(),
        machine=machine(),
    )


def work(
    study: Study,
    executor: Executor,
    slots: int,
    data: DataPlace,
    *,
    alone: bool = False,
    heartbeat: float = 30.0,
    on_record: Callable[[TrialRecord], None] = lambda record: None,
) -> None:
    """Works until the study is done. `alone`: no other process works on it (a journal that we have locked)."""
    running: dict[Future[TrialRecord], ClaimedTrial] = {}
    held: list[ClaimedTrial] = []  # trials with our heartbeat: from the claim on, not only during training
    beating = threading.Event()
    pulse = threading.Thread(target=_pulse, args=(study, held, beating, heartbeat), daemon=True)
    pulse.start()
    buried = time.monotonic()
    try:
        study.bury_dead(owner_is_alone=alone)
        while True:
            if not alone and time.monotonic() - buried > heartbeat:
                study.bury_dead()
                buried = time.monotonic()
            while len(running) < slots and (claim := study.claim()) is not None:
                held.append(claim)
                running[executor.submit(train_trial, study.experiment, claim.trial, data)] = claim
            if not running:
                if study.done():
                    return
                time.sleep(min(1.0, heartbeat))  # others are at work, or dead: then their trials come back
                continue
            for future in wait(list(running), timeout=heartbeat, return_when=FIRST_COMPLETED).done:
                record = _result(study, future)
                claim = running.pop(future)
                study.finish(claim, record)
                held.remove(claim)
                on_record(record)
    finally:
        beating.set()
        for future in running:
            future.cancel()
        for claim in held:
            study.release(claim)


def _result(study: Study, future: Future[TrialRecord]) -> TrialRecord:
    try:
        record = future.result()
    except BrokenProcessPool:
        raise ByheartError(
            "a training process died (out of memory?); finished trials are kept: `byheart lab resume FOLDER` resumes, "
            "with fewer --processes if memory is short"
        ) from None
    known = {r.problem: r.fingerprint for r in study.finished().values()}
    if known.get(record.problem, record.fingerprint) != record.fingerprint:
        raise DataError(
            f"the data of {record.problem.name} here differs from that of the study's other records "
            f"({record.fingerprint[:12]} and {known[record.problem][:12]}): use the same file on every machine"
        )
    return record


def _pulse(study: Study, held: list[ClaimedTrial], stop: threading.Event, interval: float) -> None:
    """Reports to the storage that our trials are alive. A beat that gets lost on the network does not stop the run."""
    while not stop.wait(interval):
        for claim in list(held):
            try:
                study.heartbeat(claim)
            except Exception:
                break


_SETTINGS, _JOURNAL = "settings.json", "study.journal"


@dataclass(frozen=True)
class Settings:
    """How a folder's study is worked on from this machine."""

    study: str
    storage: str  # the journal's name in the folder, or an address without its password
    data: str | None = None
    data_folder: str | None = None
    executor: str = "processes"
    processes: int = 1
    heartbeat: int = 30


def default_processes() -> int:
    """One per core that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_run(
    folder: Path,
    experiment: Experiment,
    *,
    storage: str | None = None,
    data: DataPlace | None = None,
    executor: str = "processes",
    processes: int | None = None,
    heartbeat: int = 30,
    on_record: Callable[[TrialRecord], None] = lambda record: None,
) -> Study:
    """Run the experiment to its end; a folder that already contains this experiment is resumed."""
    data = DataPlace() if data is None else data
    address = _JOURNAL if storage is None else hidden(check_database(storage))
    largest = max(experiment.problems, key=lambda spec: spec.N)
    if largest.source not in DRAWN:
        make_problem(largest, data.file, data.folder)  # missing data is reported before anything is written
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"cannot make the folder {folder}: {error.strerror}; choose another --output") from None
    settings = Settings(
        study=experiment.name,
        storage=address,
        data=None if data.file is None else str(Path(data.file).absolute()),
        data_folder=None if data.folder is None else str(Path(data.folder).absolute()),
        executor=executor,
        processes=default_processes() if processes is None else processes,
        heartbeat=heartbeat,
    )
    if (folder / _SETTINGS).exists() and (known := read_settings(folder)).study != settings.study:
        raise OptionError(f"{folder} contains another study, {known.study}; choose another --output, or resume it")
    return _work(folder, settings, storage, on_record, experiment)


def resume_run(
    folder: Path,
    *,
    storage: str | None = None,
    processes: int | None = None,
    on_record: Callable[[TrialRecord], None] = lambda record: None,
) -> Study:
    """Continues where the folder's run was interrupted. `storage`: the address again, if it needs a password."""
    settings = read_settings(folder)
    if processes is not None:
        settings = Settings(**{**asdict(settings), "processes": processes})
    return _work(folder, settings, storage, on_record, None)


def look(folder: Path, storage: str | None = None) -> Study:
    """The folder's study, to read. A run may be working on it."""
    settings = read_settings(folder)
    return open_study(_address(folder, settings, storage), settings.study)


def read_settings(folder: Path) -> Settings:
    path = folder / _SETTINGS
    try:
        return Settings(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise OptionError(
            f"{folder} does not hold a laboratory run; start one with `byheart lab run PRESET --output {folder}`"
        ) from None
    except (OSError, ValueError, TypeError) as error:
        raise FileFormatError(f"cannot read {path}: {error}") from None


def _work(
    folder: Path,
    settings: Settings,
    storage: str | None,
    on_record: Callable[[TrialRecord], None],
    experiment: Experiment | None,
) -> Study:
    address = _address(folder, settings, storage)
    alone = not is_database(address)
    lock = JournalLock(Path(address)) if alone else None
    try:
        if experiment is not None:
            study = create_study(address, experiment, settings.heartbeat)
            write_atomically(folder / _SETTINGS, (json.dumps(asdict(settings), indent=1) + "\n").encode())
        else:
            study = open_study(address, settings.study, settings.heartbeat)
        work_here(study, settings, alone, on_record)
        return study
    finally:
        if lock is not None:
            lock.release()


def work_here(study: Study, settings: Settings, alone: bool, on_record: Callable[[TrialRecord], None]) -> None:
    """Works on a study with this machine's processes until it is done."""
    if study.done():
        return
    with opened(settings.executor, settings.processes) as executor:
        data = DataPlace(settings.data, settings.data_folder)
        work(study, executor, settings.processes, data, alone=alone, heartbeat=settings.heartbeat, on_record=on_record)


def _address(folder: Path, settings: Settings, storage: str | None) -> str:
    if is_database(settings.storage):
        if storage is not None and hidden(check_database(storage)) != settings.storage:
            raise OptionError(f"{folder} is a run in {settings.storage}, not in {hidden(storage)}")
        return storage or settings.storage
    return str(folder / settings.storage)
