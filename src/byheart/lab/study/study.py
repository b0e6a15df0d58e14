"""A study: an experiment, the trials that workers have claimed, and the records of those that are finished.

Optuna's storage keeps all of it. A trial is one Optuna trial whose user attribute `key` names which of the experiment's
trials it is. Of several with the same key the one with the lowest number counts, so nothing is counted twice; one that
its owner abandoned is failed, so that the planner requests it again and nothing is lost.
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from byheart.errors import FileFormatError
from byheart.lab.study.experiment import FORMAT, Experiment, TrialRecord
from byheart.lab.study.planner import Planner, Trial, import_optuna
from byheart.lab.study.storage import StorageError, hidden, open_storage, patiently
from byheart.version import __version__

_PREFIX = "byheart-"


@dataclass(frozen=True)
class ClaimedTrial:
    """A trial that this process, and no other, is to train."""

    number: int
    trial: Trial


class Study:
    """One experiment in one storage, as seen by one process."""

    def __init__(self, storage: Any, name: str, experiment: Experiment) -> None:
        self.storage, self.name, self.experiment = storage, name, experiment
        self.study_id: int = patiently(lambda: storage.get_study_id_from_name(name))
        self.planner = Planner(experiment)
        self.owner = uuid.uuid4().hex
        self._records: dict[int, TrialRecord] = {}

    def finished(self) -> dict[str, TrialRecord]:
        """The record of every finished trial, by key."""
        states = import_optuna().trial.TrialState
        found: dict[str, TrialRecord] = {}
        for trial in self._trials():
            key = trial.user_attrs.get("key")
            if trial.state == states.COMPLETE and key is not None and key not in found:
                if trial._trial_id not in self._records:
                    self._records[trial._trial_id] = TrialRecord.from_plain(trial.user_attrs["record"])
                found[key] = self._records[trial._trial_id]
        return found

    def claim(self) -> ClaimedTrial | None:
        """Claim a trial that the experiment needs and no worker trains; None when there is none at the moment."""
        states = import_optuna().trial.TrialState
        for trial in self.planner.needed(self.finished()):
            live = self._live(trial.key)
            if live is None:
                patiently(lambda t=trial: self.storage.create_new_trial(self.study_id, self._template(t)))  # type: ignore[misc]
                live = self._live(trial.key)  # another worker may have been faster: all accept the lowest number
            if live is not None and live.state == states.WAITING and self._take(live._trial_id):
                return ClaimedTrial(live._trial_id, trial)
        return None

    def done(self) -> bool:
        return not self.planner.needed(self.finished())

    def finish(self, claim: ClaimedTrial, record: TrialRecord) -> None:
        """Keep the record. If others took us for dead in the meantime, their record counts; it is the same."""
        states = import_optuna().trial.TrialState
        value = min(record.outcome.loss, 1e30)
        try:
            patiently(lambda: self.storage.set_trial_user_attr(claim.number, "record", record.as_plain()))
            patiently(lambda: self.storage.set_trial_state_values(claim.number, states.COMPLETE, [value]))
        except RuntimeError:  # Optuna: a finished trial cannot be changed
            return

    def release(self, claim: ClaimedTrial) -> None:
        """Releases a claim, so that another worker can train it at once."""
        self._fail(claim.number)

    def heartbeat(self, claim: ClaimedTrial) -> None:
        if hasattr(self.storage, "record_heartbeat"):
            self.storage.record_heartbeat(claim.number)

    def bury_dead(self, owner_is_alone: bool = False) -> None:
        """Fails the trials of workers that are gone: without heartbeat for long, or all, if we own the storage."""
        optuna = import_optuna()
        if owner_is_alone:
            for trial in self._trials():
                if trial.state == optuna.trial.TrialState.RUNNING:
                    self._fail(trial._trial_id)
            return

        def bury() -> None:
            optuna.storages.fail_stale_trials(optuna.load_study(study_name=self.name, storage=self.storage))

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # called experimental
            patiently(bury)

    def counts(self) -> dict[str, int]:
        """How many Optuna trials are in which state."""
        found: dict[str, int] = {}
        for trial in self._trials():
            found[trial.state.name.lower()] = found.get(trial.state.name.lower(), 0) + 1
        return found

    def _trials(self) -> list[Any]:
        return patiently(lambda: self.storage.get_all_trials(self.study_id, deepcopy=False))

    def _live(self, key: str) -> Any:
        """The Optuna trial that counts for this key, or None."""
        states = import_optuna().trial.TrialState
        alive = [t for t in self._trials() if t.user_attrs.get("key") == key and t.state != states.FAIL]
        return min(alive, key=lambda t: t.number, default=None)

    def _take(self, number: int) -> bool:
        """From waiting to running, for exactly one of all who try. The heartbeat comes first: without one, a worker
        that dies right here would never be missed."""
        states = import_optuna().trial.TrialState
        try:
            if hasattr(self.storage, "record_heartbeat"):
                patiently(lambda: self.storage.record_heartbeat(number))
            return bool(patiently(lambda: self.storage.set_trial_state_values(number, states.RUNNING)))
        except RuntimeError:
            return False

    def _fail(self, number: int) -> None:
        states = import_optuna().trial.TrialState
        try:
            patiently(lambda: self.storage.set_trial_state_values(number, states.FAIL))
        except RuntimeError:
            return

    def _template(self, trial: Trial) -> Any:
        optuna = import_optuna()
        floats = optuna.distributions.FloatDistribution(0.0, 1e6)
        whole = optuna.distributions.IntDistribution(0, 10**9)
        return optuna.trial.create_trial(
            state=optuna.trial.TrialState.WAITING,
            params={
                "problem": trial.problem,
                "size": trial.size,
                "rate": trial.training.rate,
                "warmup": trial.training.warmup,
            },
            distributions={"problem": whole, "size": whole, "rate": floats, "warmup": floats},
            user_attrs={"key": trial.key, "owner": self.owner},
        )


def create_study(url: str, experiment: Experiment, heartbeat: int = 30) -> Study:
    """The study of this experiment in the storage, new or as it was left."""
    optuna = import_optuna()
    storage = open_storage(url, heartbeat)

    def create() -> None:
        optuna.create_study(study_name=experiment.name, storage=storage, load_if_exists=True)
        study_id = storage.get_study_id_from_name(experiment.name)
        if "experiment" not in storage.get_study_user_attrs(study_id):
            storage.set_study_user_attr(study_id, "format", FORMAT)
            storage.set_study_user_attr(study_id, "byheart", __version__)
            storage.set_study_user_attr(study_id, "experiment", experiment.as_plain())

    patiently(create)
    return open_study(url, experiment.name, storage=storage)


def open_study(url: str, name: str | None = None, heartbeat: int = 30, storage: Any = None) -> Study:
    """A study that exists; without a name the only one in the storage."""
    storage = open_storage(url, heartbeat) if storage is None else storage
    name = name if name is not None else _only_study(url, storage)
    try:
        study_id = patiently(lambda: storage.get_study_id_from_name(name))
    except KeyError:
        known = ", ".join(_names(storage)) or "none"
        raise StorageError(f"no study {name!r} in {hidden(url)}; there: {known}") from None
    attributes = patiently(lambda: storage.get_study_user_attrs(study_id))
    if "format" not in attributes or "experiment" not in attributes:
        raise FileFormatError(f"{name!r} in {hidden(url)} is not a study of byheart's laboratory")
    if attributes["format"] > FORMAT:
        raise FileFormatError(
            f"the study {name!r} was written by byheart {attributes.get('byheart')} (format {attributes['format']}), "
            f"this is byheart {__version__} (format {FORMAT}): pip install --upgrade byheart"
        )
    return Study(storage, name, Experiment.from_plain(attributes["experiment"]))


def _only_study(url: str, storage: Any) -> str:
    names = list(_names(storage))
    if len(names) != 1:
        listed = ", ".join(names) or "none"
        raise StorageError(f"{hidden(url)} contains {len(names)} studies ({listed}); name one with --study")
    return names[0]


def _names(storage: Any) -> Iterator[str]:
    for study in patiently(storage.get_all_studies):
        if study.study_name.startswith(_PREFIX):
            yield study.study_name
