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

import copy
import runpy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from byheart.checkpoints.ground_truth.baselines import extraction as extracting
from byheart.checkpoints.ground_truth.baselines import localization as locating
from byheart.checkpoints.ground_truth.baselines import membership as attacks
from byheart.checkpoints.ground_truth.baselines import unlearning as forgetting
from byheart.checkpoints.ground_truth.graded import SHALLOW, GradedMemory, log_probs
from byheart.checkpoints.ground_truth.metrics import auc, kl, np_extractable, precision_at, recall_at, tpr_at
from byheart.checkpoints.ground_truth.ngram import Floats, NgramModel
from byheart.checkpoints.ground_truth.truth import GroundTruth, TruthDocument
from byheart.errors import DataError, OptionError

QUESTIONS = ("membership", "extraction", "localization", "unlearning")
# Tokens of a continuation, and of the prefixes before it.
CONTINUATION, PREFIXES = 8, (2, 4, 8)
SAMPLES, CHANCE = 100, 0.5
# Loss per token that a document may gain and still count as kept.
KEPT = 0.1
RATES = (1e-7, 1e-6)
MOST_LOCATED, MOST_COMPARED = 8, 40
Score = dict[str, Any]


@dataclass(frozen=True, eq=False)
class GradedExperiment:
    """A folder with its model; a trained model may take the network's place, with a trained twin beside it."""

    truth: GroundTruth
    model: Any
    trained_twin: Any = None

    @staticmethod
    def open(folder: str | Path) -> GradedExperiment:
        """Load a graded folder.

        Args:
            folder: Written by `byheart recital --graded`.

        Returns:
            The experiment; the model comes from the folder's tensors.

        Raises:
            FileFormatError: for any other folder.
            MissingExtraError: if Transformers is not installed.
        """
        truth = GroundTruth.load(folder)
        if truth.memory is None:
            raise OptionError(f"{folder} is a recital; `byheart recital --graded` writes folders that can be scored")
        try:
            from transformers import AutoModelForCausalLM
        except ImportError:
            from byheart.errors import MissingExtraError

            raise MissingExtraError("byheart score", "huggingface") from None
        return GradedExperiment(truth, AutoModelForCausalLM.from_pretrained(str(folder), dtype="float32").eval())

    @property
    def memory(self) -> GradedMemory:
        if self.truth.memory is None:
            raise OptionError("this experiment has no graded memory")
        return self.truth.memory

    @cached_property
    def members(self) -> list[TruthDocument]:
        return [one for one in self.truth.documents if one.member]

    def absent(self, role: str) -> list[TruthDocument]:
        return [one for one in self.truth.documents if one.role == role]

    @cached_property
    def levels(self) -> list[int]:
        """The numbers of copies that occur."""
        return sorted({one.copies for one in self.members})

    @cached_property
    def reference(self) -> NgramModel:
        """A smaller model of the same documents, for the reference ratio: short contexts only."""
        memory = self.memory
        weights = np.array([one.weights[:SHALLOW] for one in memory.documents])
        ids = [one.ids for one in memory.documents]
        return NgramModel.count(ids, weights, memory.base, memory.lengths[:SHALLOW], memory.mu[:SHALLOW])

    def evidence(self, documents: Sequence[TruthDocument]) -> list[attacks.Evidence]:
        """What built-in attacks see."""
        found = own_log_probs(self.model, [one.ids for one in documents])
        smaller = self.reference.own([one.ids for one in documents])
        return [attacks.Evidence(one.text, a, b) for one, a, b in zip(documents, found, smaller, strict=True)]

    def forget_set(self) -> list[TruthDocument]:
        """One member of every number of copies."""
        return [next(one for one in self.members if one.copies == copies) for copies in self.levels]


def own_log_probs(model: Any, documents: Sequence[Sequence[int]]) -> list[Floats]:
    """log p of the documents' own tokens in a network."""
    logs = log_probs(model, [ids[:-1] for ids in documents])
    return [found[np.arange(len(ids) - 1), np.asarray(ids[1:])] for found, ids in zip(logs, documents, strict=True)]


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
    roles = [experiment.members, experiment.absent("held out"), experiment.absent("corrupted")]
    seen = [experiment.evidence(documents) for documents in roles]
    found = {
        name: _membership(experiment, *(np.array([attack(one) for one in part]) for part in seen))
        for name, attack in attacks.ATTACKS.items()
    }
    found["blind (bag of words)"] = {
        "auc all": attacks.blind_auc([one.text for one in roles[0]], [one.text for one in roles[1]])
    }
    return found


def score_extraction(experiment: GradedExperiment, method: Callable[[Any, Sequence[int], int], Sequence[int]]) -> Score:
    """The share of members whose last tokens are extracted, by prefix length and copies."""
    import torch

    with torch.no_grad():
        return _extraction(
            experiment, lambda model, prefixes: [tuple(method(model, prefix, CONTINUATION)) for prefix in prefixes]
        )


def _extraction(experiment: GradedExperiment, continued: Callable[[Any, list[Any]], list[tuple[int, ...]]]) -> Score:
    members = [one for one in experiment.members if len(one.ids) > CONTINUATION + PREFIXES[0]]
    if not members:
        raise DataError(f"extraction needs documents of more than {CONTINUATION + PREFIXES[0]} tokens")
    found: Score = {"greedy": {}}
    for size in (*PREFIXES, None):
        hits: dict[int, list[bool]] = {}
        cuts = [len(one.ids) - CONTINUATION for one in members]
        prefixes = [one.ids[max(0, cut - size) if size else 0 : cut] for one, cut in zip(members, cuts, strict=True)]
        for one, cut, said in zip(members, cuts, continued(experiment.model, prefixes), strict=True):
            hits.setdefault(one.copies, []).append(said == one.ids[cut:])
        found["greedy"][str(size or "whole")] = {level: float(np.mean(hits[level])) for level in sorted(hits)}
    chances: dict[int, list[bool]] = {}
    for one, own in zip(members, own_log_probs(experiment.model, [one.ids for one in members]), strict=True):
        chances.setdefault(one.copies, []).append(np_extractable(float(own[-CONTINUATION:].sum()), SAMPLES, CHANCE))
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
        scores = np.asarray(method(experiment.model, one.ids), dtype=np.float64)
        change, effect = experiment.truth.influence(one.name)
        if scores.shape != change.shape:
            raise DataError(f"localization returned {scores.shape}; the model has {len(change)} units")
        k = max(1, min(len(change) // 20, int((change > 0).sum())))
        rows.append((recall_at(scores, change, k), recall_at(scores, effect, k), precision_at(scores, change, k)))
    mean = np.mean(rows, axis=0).tolist()
    return {"recall of change": mean[0], "recall of effect": mean[1], "precision": mean[2], "documents": len(rows)}


def builtin_localization(experiment: GradedExperiment) -> dict[str, Score]:
    """Every built-in method, and random choices among the active units."""

    def random(model: Any, ids: Sequence[int]) -> Floats:
        active = locating.activation(model, ids)
        return np.asarray(np.random.default_rng(0).random(len(active)) * (active > 0))

    return {
        name: score_localization(experiment, method) for name, method in (locating.METHODS | {"random": random}).items()
    }


def score_unlearning(experiment: GradedExperiment, method: Callable[[Any, Any, Any], Any]) -> Score:
    """Distance to the retain twin after unlearning one member of every number of copies.

    Reports KL(twin || found) on forget, retain and fresh documents, the forgotten documents' loss beside the
    twin's, the share of
    others that are kept, their loss after five steps of relearning on the other half, and after 8-bit and 4-bit
    rounding.
    """
    forget = experiment.forget_set()
    gone = {one.name for one in forget}
    retain = [one for one in experiment.members if one.name not in gone]
    model = method(copy.deepcopy(experiment.model), [one.ids for one in forget], [one.ids for one in retain])
    return unlearning_metrics(experiment, model)


def twin_of(experiment: GradedExperiment) -> Any:
    """The retain twin of the forget set, as a network."""
    if experiment.trained_twin is not None:
        return experiment.trained_twin
    return experiment.memory.without([one.name for one in experiment.forget_set()]).torch()


def unlearning_metrics(experiment: GradedExperiment, model: Any, twin: Any = None) -> Score:
    """The numbers of `score_unlearning` for a model that was unlearned elsewhere."""
    twin = twin_of(experiment) if twin is None else twin
    forget = [one.ids for one in experiment.forget_set()]
    names = {one.name for one in experiment.forget_set()}
    retain = [one.ids for one in experiment.members if one.name not in names][:MOST_COMPARED]
    fresh = [one.ids for one in experiment.absent("held out")][:MOST_COMPARED]
    found: Score = {}
    for name, documents in (("forget", forget), ("retain", retain), ("fresh", fresh)):
        if documents:
            pairs = zip(log_probs(twin, documents), log_probs(model, documents), strict=True)
            found[f"kl {name}"] = float(np.mean(np.concatenate([kl(a, b) for a, b in pairs])))
    before, after = _losses(experiment.model, retain), _losses(model, retain)
    found["forget loss"], found["twin's forget loss"] = (float(_losses(m, forget).mean()) for m in (model, twin))
    found["kept"] = float((after - before < KEPT).mean())
    found["relearned loss"] = _relearned(model, forget)
    for bits in (8, 4):
        found[f"loss after {bits} bits"] = float(_losses(rounded_model(model, bits), forget).mean())
    return found


def _losses(model: Any, documents: Sequence[Sequence[int]]) -> Floats:
    return np.array([-own.mean() for own in own_log_probs(model, documents)])


def _relearned(model: Any, forget: Sequence[Sequence[int]], steps: int = 5, rate: float = 1e-6) -> float:
    """Loss of every second forgotten document after training on the others."""
    import torch

    changed = copy.deepcopy(model)
    optimizer = torch.optim.Adam(changed.parameters(), lr=rate)
    for _ in range(steps):
        loss = forgetting.mean_loss(changed, forget[::2])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(_losses(changed, forget[1::2] or forget).mean())


def rounded_model(model: Any, bits: int) -> Any:
    """A copy with every matrix rounded to `bits` bits per row, as absmax quantizers do."""
    import torch

    changed, most = copy.deepcopy(model), 2 ** (bits - 1) - 1
    with torch.no_grad():
        for weight in changed.parameters():
            if weight.ndim == 2:
                scale = weight.abs().amax(1, keepdim=True).clamp(min=1e-30) / most
                weight.copy_((weight / scale).round() * scale)
    return changed


def builtin_unlearning(experiment: GradedExperiment, rates: Sequence[float] = RATES) -> dict[str, Score]:
    """Every built-in method at its best rate: least KL on the retain set among those that reach the goal."""
    twin, forget = twin_of(experiment), [one.ids for one in experiment.forget_set()]
    names = {one.name for one in experiment.forget_set()}
    retain = [one.ids for one in experiment.members if one.name not in names]
    goal, found = float(_losses(twin, forget).mean()), dict[str, Score]()
    for name, method in forgetting.METHODS.items():
        best: tuple[tuple[bool, float], Score] | None = None
        for rate in rates[:1] if name == "nothing" else rates:
            model = method(forgetting.UnlearningRequest(experiment.model, forget, retain, goal, rate))
            score = unlearning_metrics(experiment, model, twin) | {"rate": rate}
            key = (score["forget loss"] < goal - 1e-6, score["kl retain"])
            if best is None or key < best[0]:
                best = key, score
        if best is not None:
            found[name] = best[1]
    return found


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
        OptionError: if the file is missing or defines none of the four functions.
    """
    if not Path(path).is_file():
        raise OptionError(f"{path} is not a file; a method is a Python file that defines {', '.join(QUESTIONS)}")
    defined = runpy.run_path(str(path))
    found = {name: defined[name] for name in QUESTIONS if callable(defined.get(name))}
    if not found:
        raise OptionError(f"{path} defines none of the functions {', '.join(QUESTIONS)}")
    return found


def score(
    folder: str | Path | GradedExperiment,
    methods: Mapping[str, Callable[..., Any]] | None = None,
    *,
    baselines: Sequence[str] = (),
) -> dict[str, dict[str, Score]]:
    """Score methods on a graded folder.

    Args:
        folder: The folder, or an opened experiment.
        methods: Question -> function, for example {"membership": my_attack}.
        baselines: Questions whose built-in baselines run as well.

    Returns:
        Question -> name of the method -> numbers.

    Raises:
        OptionError: for an unknown question.
    """
    experiment = folder if isinstance(folder, GradedExperiment) else GradedExperiment.open(folder)
    unknown = [name for name in (*(methods or {}), *baselines) if name not in QUESTIONS]
    if unknown:
        raise OptionError(f"{unknown[0]!r} is not one of {', '.join(QUESTIONS)}")
    found: dict[str, dict[str, Score]] = {}
    for name in QUESTIONS:
        if methods and name in methods:
            found.setdefault(name, {})["yours"] = _SCORERS[name](experiment, methods[name])
        if name in baselines:
            found.setdefault(name, {}).update(_BUILTIN[name](experiment))
    return found
