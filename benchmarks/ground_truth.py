"""Published methods on graded checkpoints, with a trained Llama of the same shape and data beside every row.

python benchmarks/ground_truth.py docs/ground-truth [members] [epochs] [seed ...]

Each seed has its own documents, its own computed models and its own trained ones. Cells are means over seeds, with the
standard deviation between seeds after +-.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from byheart.checkpoints.ground_truth import harness, retention
from byheart.checkpoints.ground_truth.baselines import localization
from byheart.checkpoints.ground_truth.experiment import GradedExperiment
from byheart.checkpoints.ground_truth.networks import own_log_probs
from byheart.checkpoints.ground_truth.suite import suite_memory
from byheart.checkpoints.ground_truth.truth import GroundTruth

UNITS, BACKGROUND, BATCH, RATE = 128, 300, 32, 2e-3
RATES, TRAINED_RATES = (1e-5, 3e-5), (3e-5, 1e-4)
ZEROED = 20


def trained(memory, documents, epochs, seed=0):
    """A Llama of the shape of storage ridge, trained on documents (with copies)."""
    torch.manual_seed(seed)
    _, config = memory.tensors()
    kept = {name: value for name, value in config.items() if name not in ("architectures", "model_type")}
    model = LlamaForCausalLM(LlamaConfig(**kept))
    rows = [one.ids for one in documents for _ in range(one.copies)]
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *([memory.lexicon.pad] * (longest - len(row)))] for row in rows])
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        for part in np.array_split(rng.permutation(len(ids)), -(-len(ids) // BATCH)):
            batch = ids[part]
            loss = torch.nn.functional.cross_entropy(
                model(batch[:, :-1]).logits.flatten(0, 1), batch[:, 1:].flatten(), ignore_index=memory.lexicon.pad
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()


def zeroed(experiment):
    """Rise of the loss when a method's first units are set to 0: a trained model has no other truth."""
    found = {}
    for name, method in localization.METHODS.items():
        rises = []
        for one in experiment.members[:6]:
            scores = method(experiment.model, one.ids)
            chosen = np.argsort(-scores, kind="stable")[:ZEROED].tolist()
            before = -own_log_probs(experiment.model, [one.ids])[0].mean()

            def hook(_, inputs, chosen=chosen):
                active = inputs[0].clone()
                active[..., chosen] = 0
                return (active, *inputs[1:])

            handle = localization.output_projection(experiment.model).register_forward_pre_hook(hook)
            rises.append(-own_log_probs(experiment.model, [one.ids])[0].mean() - before)
            handle.remove()
        found[name] = float(np.mean(rises))
    return found


def one_seed(seed, members, epochs):
    """All scores of one seed: kind -> question -> method -> numbers."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, storage in (("counts", "counts"), ("ridge", f"ridge:{UNITS}")):
            path = Path(folder) / name
            suite_memory(seed, members, BACKGROUND, storage=storage).write(path, measured=False)
            experiment = GradedExperiment.open(path)
            found[name] = harness.score(experiment, baselines=("membership", "extraction", "localization"))
            found[name]["unlearning"] = retention.builtin_unlearning(experiment, RATES)
            found[name]["zeroed"] = zeroed(experiment)
            print(seed, name, "scored", flush=True)
        memory = experiment.memory
        twin = memory.without([one.name for one in experiment.forget_set()])
        models = [
            trained(memory, some, epochs, seed=seed + number)
            for number, some in enumerate((memory.documents, twin.documents, experiment.reference.documents))
        ]
        beside = GradedExperiment(GroundTruth.load(path), *models)
        found["trained"] = harness.score(beside, baselines=("membership", "extraction"))
        found["trained"]["unlearning"] = retention.builtin_unlearning(beside, TRAINED_RATES)
        found["trained"]["zeroed"] = zeroed(beside)
        print(seed, "trained scored", flush=True)
    return found


def cell(values, digits=2):
    values = np.array(values, dtype=float)
    spread = f"±{values.std(ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{values.mean():.{digits}f}{spread}"


def table(head, rows):
    return [
        "| " + " | ".join(head) + " |",
        "|---" * len(head) + "|",
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
    ]


def agreement(orders):
    """Kendall's tau between the computed kinds' order of methods and the trained one's."""
    names, found = orders["trained"], {}
    for kind in ("counts", "ridge"):
        place = {name: k for k, name in enumerate(orders[kind])}
        pairs = [(a, b) for k, a in enumerate(names) for b in names[k + 1 :]]
        found[kind] = sum(1 if place[a] < place[b] else -1 for a, b in pairs) / len(pairs)
    return found


def ranked(seeds, question, number, best=max):
    """Methods in the order of their mean over seeds, best first."""
    orders = {}
    for kind in seeds[0]:
        rows = seeds[0][kind][question]
        means = {
            name: np.mean([number(seed[kind][question][name]) for seed in seeds])
            for name in rows
            if not name.startswith(("blind", "nothing"))
        }
        orders[kind] = sorted(means, key=means.__getitem__, reverse=best is max)
    return orders


def verdict(words, orders):
    tau = agreement(orders)
    lines = [f"Order of methods by {words}, best first:", ""]
    lines += [f"- {kind}: {', '.join(order)}" for kind, order in orders.items()]
    lines += ["", "Agreement with the trained order (Kendall's tau, 1 is equal, 0 is unrelated): "]
    lines[-1] += ", ".join(f"{kind} {value:+.2f}" for kind, value in tau.items()) + ". "
    reply = {kind: "agree" if t >= 0.6 else "agree in part" if t >= 0.2 else "do not agree" for kind, t in tau.items()}
    lines[-1] += f"The rankings of `counts` and trained {reply['counts']}; of `ridge` and trained {reply['ridge']}."
    return [*lines, ""]


def page(seeds, members, epochs):
    kinds, first = list(seeds[0]), seeds[0]
    levels = list(first["counts"]["membership"]["loss"]["auc"])
    shown = [level for level in levels if level in (1, 2, 8, 32)]
    many = "one seed, no error bars" if len(seeds) == 1 else f"mean ± standard deviation over {len(seeds)} seeds"
    lines = [
        "# Results of the baselines",
        "",
        f"`python benchmarks/ground_truth.py` wrote this page: records of the suite, {members} members, {BACKGROUND} "
        "background records, "
        f"{members // len(levels)} per number of copies, {many}. `ridge` has {UNITS} units. `trained` is a Llama of "
        f"the shape of `ridge`, AdamW, {epochs} epochs over the same documents and background; its retain twin and its "
        "reference model are trained too, with other seeds.",
        "",
        f"An AUC at one number of copies compares {members // len(levels)} members with {members} others per seed; "
        "read differences below 0.1 as noise. An order of methods from one seed is a hypothesis, not a result.",
        "",
        f"## Membership: AUC against held-out twins at {', '.join(map(str, shown))} copies",
        "",
    ]
    rows = []
    for attack in (name for name, numbers in first["counts"]["membership"].items() if "auc" in numbers):
        scores = [[seed[kind]["membership"][attack] for seed in seeds] for kind in kinds]
        for level in shown:
            rows.append([f"{attack}, {level}", *(cell([one["auc"][level] for one in some]) for some in scores)])
        rows.append([f"{attack}, near misses", *(cell([one["auc near misses"] for one in some]) for some in scores)])
        true = [cell([one["tpr at 1% fpr"][8] for one in some]) for some in scores]
        rows.append([f"{attack}, 8, TPR at 1 % FPR", *true])
    lines += table(["attack, copies", *kinds], rows)
    blind = cell([seed["counts"]["membership"]["blind (bag of words)"]["auc all"] for seed in seeds])
    lines += [f"A bag of words that never sees a model has an AUC of {blind}.", ""]
    lines += verdict("AUC at 1 copy", ranked(seeds, "membership", lambda p: p["auc"][levels[0]]))
    lines += [
        "## Extraction: share of members, greedy, 8 tokens",
        "",
        "(100, 0.5): 100 samples contain the 8 tokens with a probability of at least 0.5.",
        "",
    ]
    rows = []
    for prefix in (8, "whole", "(100, 0.5)"):
        for level in shown:
            found = [[s[k]["extraction"]["greedy"] for s in seeds] for k in kinds]
            values = [[(one | one["greedy"])[prefix][level] for one in some] for some in found]
            rows.append([f"{prefix}, {level}", *map(cell, values)])
    gain = [[seed[kind]["extraction"]["greedy"]["gain per doubling"] for seed in seeds] for kind in kinds]
    rows.append(["gain per doubling, whole prefix", *map(cell, gain)])
    lines += table(["prefix tokens, copies", *kinds], rows)
    lines += ["## Localization: recall at k of change / effect", ""]
    rows = []
    for method in first["counts"]["localization"]:
        parts = []
        for kind in ("counts", "ridge"):
            pairs = [seed[kind]["localization"][method] for seed in seeds]
            parts.append(" / ".join(cell([p[f"recall of {truth}"] for p in pairs]) for truth in ("change", "effect")))
        rows.append([method, *parts])
    lines += table(["method", "counts", "ridge"], rows)
    lines += [
        f"A trained model has no such truth. What can be compared: the rise of the loss when the {ZEROED} units with "
        "the highest scores are set to 0.",
        "",
    ]
    rows = [
        [method, *(cell([seed[kind]["zeroed"][method] for seed in seeds]) for kind in kinds)]
        for method in first["counts"]["zeroed"]
    ]
    lines += table(["method", *kinds], rows)
    lines += verdict("that rise", ranked(seeds, "zeroed", float))
    lines += [
        "## Unlearning: distance to the retain twin",
        "",
        f"To forget: {max(1, round(members / 20))} of {members} members. ",
    ]
    lines[-1] += "Rates are swept; the best keeps most documents at the twin's forget loss."
    lines.append("")
    for name, digits in (
        ("kl forget", 3),
        ("kl retain", 3),
        ("kept", 2),
        ("relearn steps", 1),
        ("loss after 8 bits", 2),
        ("loss after 4 bits", 2),
    ):
        rows = [
            [method, *(cell([seed[kind]["unlearning"][method][name] for seed in seeds], digits) for kind in kinds)]
            for method in first["counts"]["unlearning"]
        ]
        lines += table([name, *kinds], rows)
    lines += verdict("KL on the retain set", ranked(seeds, "unlearning", lambda p: p["kl retain"], min))
    lines += ["The trained twin has another seed, so its KL includes the noise between seeds.", ""]
    return "\n".join(lines)


def numbered(pairs):
    """Numbers of copies are texts in JSON."""
    return {int(key) if key.isdigit() else key: value for key, value in pairs}


def main(folder, members=24, epochs=3, *seeds):
    """Score seeds that have no file in the folder yet, so that several processes can share the work; write the page."""
    torch.set_num_threads(1)
    place = Path(folder)
    for seed in seeds:
        file = place / f"results-{members}-{epochs}-{seed}.json"
        if not file.exists():
            started = time.perf_counter()
            file.write_text(json.dumps(one_seed(seed, members, epochs), indent=1) + "\n", encoding="utf-8")
            print(f"seed {seed}: {time.perf_counter() - started:.0f} s", flush=True)
    files = sorted(place.glob(f"results-{members}-{epochs}-*.json"))
    found = [json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=numbered) for file in files]
    (place / "results.md").write_text(page(found, members, epochs), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
