"""Score methods against the ground truth of a graded folder.

A method is a function; a file or module may define any of

    membership(model, document) -> float             higher for members; document has .ids and .text
    extraction(model, prefix, length) -> ids         `length` tokens after the prefix
    localization(model, ids) -> array                a score per MLP unit, higher where the document is stored
    unlearning(model, forget, retain) -> model       lists of token ids; the model given may be changed

`model` is the stock Transformers model of the folder in float32. Every score is a dictionary of numbers, ready for
JSON.
"""

from __future__ import annotations

import runpy
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from byheart.checkpoints.ground_truth.baselines import extraction as extracting
from byheart.checkpoints.ground_truth.baselines import localization as locating
from byheart.checkpoints.ground_truth.baselines import membership as attacks
from byheart.checkpoints.ground_truth.experiment import GradedExperiment
from byheart.checkpoints.ground_truth.lengths import CONTINUATION, PREFIX
from byheart.checkpoints.ground_truth.metrics import auc, np_extractable, precision_at, recall_at, tpr_at
from byheart.checkpoints.ground_truth.networks import own_log_probs
from byheart.checkpoints.ground_truth.ngram import Floats
from byheart.checkpoints.ground_truth.retention import Score, builtin_unlearning, score_unlearning
from byheart.checkpoints.ground_truth.truth import TruthDocument
from byheart.errors import ByheartError, DataError, OptionError

SIGNATURES = {
    "membership": "membership(model, document) returns a number",
    "extraction": "extraction(model, prefix, length) returns token ids",
    "localization": "localization(model, ids) returns a number per MLP unit",
    "unlearning": "unlearning(model, forget, retain) returns the model",
}
QUESTIONS = tuple(SIGNATURES)
BLIND = "blind (bag of words)"
# Tokens of the prefixes before a continuation.
PREFIXES = (PREFIX, 4, 8)
SAMPLES, CHANCE = 100, 0.5
MOST_LOCATED = 8
# k of recall at k: a quarter of the units that a document touches, and at most a twentieth of all. With k = all touched
# units, any choice among the firing units would be perfect where each context has its own unit.
TOUCHED, ALL = 4, 20


def score_membership(experiment: GradedExperiment, attack: Callable[[Any, TruthDocument], float]) -> Score:
    """AUC and TPR at 1 % FPR against held-out documents by copies; AUC against near misses."""
    import torch

    roles = {
        "members": experiment.members,
        "held out": experiment.absent("held out"),
        "near": experiment.absent("corrupted"),
    }
    with torch.no_grad():
        scores = {
            role: np.array([float(attack(experiment.model, one)) for one in documents])
            for role, documents in roles.items()
        }
    if not all(np.isfinite(part).all() for part in scores.values()):
        raise DataError("membership returned a number that is not finite")
    return _membership(experiment, scores["members"], scores["held out"], scores["near"])


def _membership(experiment: GradedExperiment, members: Floats, others: Floats, near: Floats) -> Score:
    if len(others) < 2:
        raise DataError("membership needs held-out documents: byheart recital --graded --held-out N")
    copies = np.array([one.copies for one in experiment.members])
    found: Score = {"auc": {}, "tpr at 1% fpr": {}}
    for level in experiment.levels:
        found["auc"][level] = auc(members[copies == level], others)
        found["tpr at 1% fpr"][level] = tpr_at(members[copies == level], others)
    found["auc all"] = auc(members, others)
    if len(near):
        found["auc near misses"] = auc(members, near)
    return found


def builtin_membership(experiment: GradedExperiment) -> dict[str, Score]:
    """Every built-in attack, and the blind baseline that never sees the model."""
    roles = [experiment.members, experiment.outsiders, experiment.absent("corrupted")]
    seen = [experiment.evidence(documents) for documents in roles]
    found = {
        name: _membership(experiment, *(np.array([attack(one) for one in part]) for part in seen))
        for name, attack in attacks.ATTACKS.items()
    }
    found[BLIND] = score_blind(experiment)
    return found


def score_blind(experiment: GradedExperiment) -> Score:
    """AUC of a bag of words that never sees the model, and the largest that chance explains (3.5 standard errors).

    A larger one means that held-out texts differ from members, so that membership scores measure this difference too.
    """
    members, others = ([one.text for one in some] for some in (experiment.members, experiment.absent("held out")))
    if len(others) < 2:
        raise DataError("membership needs held-out documents: byheart recital --graded --held-out N")
    error = ((len(members) + len(others) + 1) / (12 * len(members) * len(others))) ** 0.5
    return {"auc all": attacks.blind_auc(members, others), "chance up to": 0.5 + 3.5 * error}


def score_extraction(experiment: GradedExperiment, method: Callable[[Any, Sequence[int], int], Sequence[int]]) -> Score:
    """The share of members whose last own tokens are extracted, by prefix length and copies."""
    import torch

    with torch.no_grad():
        return _extraction(
            experiment, lambda model, prefixes: [tuple(method(model, prefix, CONTINUATION)) for prefix in prefixes]
        )


def _extraction(experiment: GradedExperiment, continued: Callable[[Any, list[Any]], list[tuple[int, ...]]]) -> Score:
    members = [one for one in experiment.members if len(one.ids) > CONTINUATION + PREFIXES[0]]
    if not members:
        raise DataError(
            f"extraction needs documents of more than {CONTINUATION + PREFIXES[0]} tokens; the longest of "
            f"{len(experiment.members)} members has {max(len(one.ids) for one in experiment.members)}"
        )
    found: Score = {"greedy": {}}
    cuts = extracting.extraction_cuts([one.ids for one in members], CONTINUATION, PREFIXES[0])
    for size in (*PREFIXES, None):
        hits: dict[int, list[bool]] = {}
        prefixes = [one.ids[max(0, cut - size) if size else 0 : cut] for one, cut in zip(members, cuts, strict=True)]
        for one, cut, reply in zip(members, cuts, continued(experiment.model, prefixes), strict=True):
            hits.setdefault(one.copies, []).append(reply == one.ids[cut : cut + CONTINUATION])
        found["greedy"][str(size or "whole")] = {level: float(np.mean(hits[level])) for level in sorted(hits)}
    whole = found["greedy"]["whole"]
    if len(whole) > 1:
        found["gain per doubling"] = float(np.polyfit(np.log2(list(whole)), list(whole.values()), 1)[0])
    chances: dict[int, list[bool]] = {}
    logs = own_log_probs(experiment.model, [one.ids for one in members])
    for one, cut, own in zip(members, cuts, logs, strict=True):
        # own[k] belongs to token k + 1
        chance = float(own[cut - 1 : cut - 1 + CONTINUATION].sum())
        chances.setdefault(one.copies, []).append(np_extractable(chance, SAMPLES, CHANCE))
    found[f"({SAMPLES}, {CHANCE})"] = {level: float(np.mean(values)) for level, values in sorted(chances.items())}
    return found


def builtin_extraction(experiment: GradedExperiment) -> dict[str, Score]:
    """Greedy decoding."""
    return {"greedy": _extraction(experiment, lambda model, many: extracting.greedy(model, many, CONTINUATION))}


def score_localization(experiment: GradedExperiment, method: Callable[[Any, Sequence[int]], Floats]) -> Score:
    """Recall and precision at k of a document's units, against both truths: `change` and `effect`."""
    rows: list[tuple[float, float, float]] = []
    chosen = experiment.members[:: max(1, len(experiment.members) // MOST_LOCATED)][:MOST_LOCATED]
    for one in chosen:
        found = method(experiment.model, one.ids)
        # A tensor of a backward pass cannot become an array before it is detached.
        scores = np.asarray(found.detach() if hasattr(found, "detach") else found, dtype=np.float64)
        change, effect = experiment.influence(one.name)
        if scores.shape != change.shape:
            raise DataError(f"localization returned {scores.shape}; the model has {len(change)} units")
        if not np.isfinite(scores).all():
            raise DataError("localization returned a number that is not finite")
        k = max(1, min(len(change) // ALL, int((change > 0).sum()) // TOUCHED))
        rows.append((recall_at(scores, change, k), recall_at(scores, effect, k), precision_at(scores, change, k)))
    mean = np.mean(rows, axis=0).tolist()
    return {"recall of change": mean[0], "recall of effect": mean[1], "precision": mean[2], "documents": len(rows)}


def builtin_localization(experiment: GradedExperiment) -> dict[str, Score]:
    """Every built-in method, and random choices among the active units and among all."""

    def random(model: Any, ids: Sequence[int]) -> Floats:
        return np.random.default_rng(len(ids)).random(len(locating.activation(model, ids)))

    def random_active(model: Any, ids: Sequence[int]) -> Floats:
        return random(model, ids) * (locating.activation(model, ids) > 0)

    methods = locating.METHODS | {"random active unit": random_active, "random unit": random}
    return {name: score_localization(experiment, method) for name, method in methods.items()}


_SCORERS: dict[str, Callable[[GradedExperiment, Any], Score]] = {
    "membership": score_membership,
    "extraction": score_extraction,
    "localization": score_localization,
    "unlearning": score_unlearning,
}
_BUILTIN: dict[str, Callable[[GradedExperiment], dict[str, Score]]] = {
    "membership": builtin_membership,
    "extraction": builtin_extraction,
    "localization": builtin_localization,
    "unlearning": builtin_unlearning,
}


def read_methods(path: str | Path) -> dict[str, Callable[..., Any]]:
    """Run a Python file and return the methods that it defines.

    Raises:
        OptionError: if the file is missing, cannot be run or defines none of the four functions.
    """
    if not Path(path).is_file():
        raise OptionError(f"{path} is not a file; a method is a Python file that defines {', '.join(QUESTIONS)}")
    try:
        defined = runpy.run_path(str(path))
    # A file that calls sys.exit() would otherwise end byheart with its own exit status.
    except (Exception, SystemExit) as error:
        raise OptionError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    found = {name: defined[name] for name in QUESTIONS if callable(defined.get(name))}
    if not found:
        raise OptionError(f"{path} defines none of the functions {', '.join(QUESTIONS)}")
    return found


def _scored(experiment: GradedExperiment, question: str, method: Callable[..., Any]) -> Score:
    """Score a user's method; whatever it raises or returns names the method, not byheart."""
    try:
        return _SCORERS[question](experiment, method)
    except ByheartError:
        raise
    except Exception as error:
        file = getattr(getattr(method, "__code__", None), "co_filename", "")
        lines = [one.lineno for one in traceback.extract_tb(error.__traceback__) if one.filename == file]
        place = f"({Path(file).name}, line {lines[-1]})" if lines else f"({SIGNATURES[question]})"
        raise DataError(f"{question} failed: {type(error).__name__}: {error} {place}") from error


def score(
    folder: str | Path | GradedExperiment,
    methods: Mapping[str, Callable[..., Any]] | None = None,
    *,
    baselines: Sequence[str] = (),
) -> dict[str, dict[str, Score]]:
    """Score methods on a graded folder.

    Args:
        folder: The folder, or an opened experiment.
        methods: Task -> function, for example {"membership": my_attack}.
        baselines: Tasks whose built-in baselines run as well.

    Returns:
        Task -> name of the method -> numbers; beside membership, those of a baseline that never sees the model.

    Raises:
        OptionError: for an unknown task.
        DataError: if a method fails, or returns something of another type or shape.
    """
    experiment = folder if isinstance(folder, GradedExperiment) else GradedExperiment.open(folder)
    unknown = [name for name in (*(methods or {}), *baselines) if name not in QUESTIONS]
    if unknown:
        raise OptionError(f"{unknown[0]!r} is not one of {', '.join(QUESTIONS)}")
    found: dict[str, dict[str, Score]] = {}
    for name in QUESTIONS:
        if methods and name in methods:
            found.setdefault(name, {})["yours"] = _scored(experiment, name, methods[name])
            if name == "membership":
                found[name][BLIND] = score_blind(experiment)
        if name in baselines:
            found.setdefault(name, {}).update(_BUILTIN[name](experiment))
    return found
