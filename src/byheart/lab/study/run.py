"""`byheart lab run`: a preset, from nothing to a table, in one folder that can be resumed.

FOLDER/settings.json says where the study is (never a password); FOLDER/study.journal is the study, unless it lives in a
database. Tables and pictures are made from the study and can be made again at any time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from byheart.errors import FileFormatError, OptionError
from byheart.executors import opened
from byheart.files import write_atomically
from byheart.lab.sources import make_problem
from byheart.lab.study.experiment import Experiment
from byheart.lab.study.record import Record
from byheart.lab.study.storage import JournalLock, hidden, is_database
from byheart.lab.study.study import Study, create_study, open_study
from byheart.lab.study.work import DataPlace, work

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
    on_record: Callable[[Record], None] = lambda record: None,
) -> Study:
    """Runs the experiment to its end; a folder that already holds this experiment is resumed."""
    data = DataPlace() if data is None else data
    largest = max(experiment.problems, key=lambda spec: spec.N)
    if largest.source != "random":
        make_problem(largest, data.file, data.folder)  # missing data is reported before anything is made
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"cannot make the folder {folder}: {error.strerror}; choose another --output") from None
    settings = Settings(
        study=experiment.name,
        storage=_JOURNAL if storage is None else hidden(storage),
        data=None if data.file is None else str(Path(data.file).absolute()),
        data_folder=None if data.folder is None else str(Path(data.folder).absolute()),
        executor=executor,
        processes=default_processes() if processes is None else processes,
        heartbeat=heartbeat,
    )
    if (folder / _SETTINGS).exists() and (known := read_settings(folder)).study != settings.study:
        raise OptionError(f"{folder} holds another study, {known.study}; choose another --output, or resume that one")
    return _work(folder, settings, storage, on_record, experiment)


def resume_run(
    folder: Path,
    *,
    storage: str | None = None,
    processes: int | None = None,
    on_record: Callable[[Record], None] = lambda record: None,
) -> Study:
    """Goes on where the folder's run was interrupted. `storage`: the address again, if it needs a password."""
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
    on_record: Callable[[Record], None],
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


def work_here(study: Study, settings: Settings, alone: bool, on_record: Callable[[Record], None]) -> None:
    """Works on a study with this machine's processes until it is done."""
    if study.done():
        return
    with opened(settings.executor, settings.processes) as executor:
        data = DataPlace(settings.data, settings.data_folder)
        work(study, executor, settings.processes, data, alone=alone, heartbeat=settings.heartbeat, on_record=on_record)


def _address(folder: Path, settings: Settings, storage: str | None) -> str:
    if is_database(settings.storage):
        if storage is not None and hidden(storage) != settings.storage:
            raise OptionError(f"{folder} is a run in {settings.storage}, not in {hidden(storage)}")
        return storage or settings.storage
    return str(folder / settings.storage)
