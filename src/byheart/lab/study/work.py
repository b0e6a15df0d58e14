"""Working on a study: claim, train, keep, until nothing is left. One loop for a laptop and for a hundred machines.

Training itself is a pure function of plain values (`train_trial`), so it runs in any `concurrent.futures.Executor`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

from byheart.errors import ByheartError, DataError
from byheart.lab.engines.training import train
from byheart.lab.sources import make_problem
from byheart.lab.study.experiment import Experiment
from byheart.lab.study.planner import Trial
from byheart.lab.study.record import Record, machine, versions
from byheart.lab.study.study import Claim, Study


@dataclass(frozen=True)
class DataPlace:
    """Where this machine has its data: a file for the experiment's source, or a folder with the usual names."""

    file: str | None = None
    folder: str | None = None


def train_trial(experiment: Experiment, trial: Trial, data: DataPlace) -> Record:
    """Trains one trial from nothing but its description."""
    spec = experiment.problems[trial.problem]
    problem = make_problem(spec, data.file, data.folder)
    model = experiment.model_of(trial.size)
    outcome = train(problem, model, trial.training, trial.goal, experiment.engine)
    return Record(
        key=trial.key,
        problem=spec,
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
    on_record: Callable[[Record], None] = lambda record: None,
) -> None:
    """Works until the study is done. `alone`: no other process works on it (a journal that we have locked)."""
    running: dict[Future[Record], Claim] = {}
    held: list[Claim] = []  # what we beat for: from the claim on, not only from the moment it trains
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


def _result(study: Study, future: Future[Record]) -> Record:
    try:
        record = future.result()
    except BrokenProcessPool:
        raise ByheartError(
            "a training process died (out of memory?); finished trials are kept: `byheart lab resume FOLDER` goes on, "
            "with fewer --processes if memory is short"
        ) from None
    known = {r.problem: r.fingerprint for r in study.finished().values()}
    if known.get(record.problem, record.fingerprint) != record.fingerprint:
        raise DataError(
            f"the data of {record.problem.name} here differs from that of the study's other records "
            f"({record.fingerprint[:12]} and {known[record.problem][:12]}): use the same file on every machine"
        )
    return record


def _pulse(study: Study, held: list[Claim], stop: threading.Event, interval: float) -> None:
    """Tells the storage that our trials are alive. A beat that the network swallows is no reason to stop."""
    while not stop.wait(interval):
        for claim in list(held):
            try:
                study.heartbeat(claim)
            except Exception:
                break
