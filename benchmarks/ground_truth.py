"""Published methods on graded checkpoints, with a trained Llama of the same shape and data beside them.

python benchmarks/ground_truth.py docs/ground-truth/results.md [members] [epochs]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from byheart.checkpoints.ground_truth import harness
from byheart.checkpoints.ground_truth.suite import suite_memory
from byheart.checkpoints.ground_truth.truth import GroundTruth

SEED, UNITS, BATCH, RATE = 0, 512, 32, 2e-3
TRAINED_RATES = (1e-5, 1e-4)
SIZES = (100, 1000)


def trained(memory, epochs, seed=0):
    """A Llama of the shape of storage ridge, trained on members (with copies) and background."""
    torch.manual_seed(seed)
    _, config = memory.tensors()
    kept = {name: value for name, value in config.items() if name not in ("architectures", "model_type")}
    model = LlamaForCausalLM(LlamaConfig(**kept))
    rows = [one.ids for one in memory.documents for _ in range(one.copies)]
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


def row(values):
    return " ".join("-" if v is None else f"{v:.2f}" for v in values)


def sizes():
    lines = ["| documents | contexts | parameters | MB | counted and computed, s |", "|---|---|---|---|---|"]
    for count in SIZES:
        started = time.perf_counter()
        memory = suite_memory(SEED, count)
        tensors = memory.tensors()[0]
        seconds = time.perf_counter() - started
        number = sum(part.size for part in tensors.values())
        lines.append(f"| {count:,} | {memory.ngram.rules:,} | {number:,} | {number * 4 / 1e6:.0f} | {seconds:.1f} |")
    return lines


def main(target, members=60, epochs=4):
    torch.set_num_threads(1)
    found, levels = {}, []
    with tempfile.TemporaryDirectory() as folder:
        for name, storage in (("counts", "counts"), ("ridge", f"ridge:{UNITS}")):
            path = Path(folder) / name
            suite_memory(SEED, members, storage=storage).write(path, measured=False)
            experiment = harness.GradedExperiment.open(path)
            levels = experiment.levels
            found[name] = harness.score(experiment, baselines=harness.QUESTIONS)
            print(name, "scored", flush=True)
        memory = experiment.memory
        twin = memory.without([one.name for one in experiment.forget_set()])
        started = time.perf_counter()
        beside = harness.GradedExperiment(
            GroundTruth.load(path), trained(memory, epochs), trained(twin, epochs, seed=1)
        )
        print(f"trained twice in {time.perf_counter() - started:.0f} s", flush=True)
        found["trained"] = harness.score(beside, baselines=("membership", "extraction"))
        found["trained"]["unlearning"] = harness.builtin_unlearning(beside, TRAINED_RATES)
    kinds = list(found)
    lines = [
        "# Results of the baselines",
        "",
        f"`python benchmarks/ground_truth.py` wrote this page: the frozen suite, seed {SEED}, {members} members, "
        f"{members // len(levels)} per number of copies. `trained` is a Llama of the shape of `ridge:{UNITS}`, AdamW, "
        f"{epochs} epochs over the same documents and background. One seed, no error bars.",
        "",
        f"## Membership: AUC against held-out twins at {', '.join(map(str, levels))} copies",
        "",
        "| attack | " + " | ".join(kinds) + " |",
        "|---|" + "---|" * len(kinds),
    ]
    for attack, numbers in found["counts"]["membership"].items():
        if "auc" in numbers:
            cells = [row([found[k]["membership"][attack]["auc"][level] for level in levels]) for k in kinds]
            lines.append(f"| {attack} | " + " | ".join(cells) + " |")
    blind = found["counts"]["membership"]["blind (bag of words)"]["auc all"]
    lines += ["", f"A bag of words that never sees a model has an AUC of {blind:.2f}.", ""]
    lines += ["## Extraction: share of members, greedy, by copies", "", "| prefix | " + " | ".join(kinds) + " |"]
    lines.append("|---|" + "---|" * len(kinds))
    for prefix in found["counts"]["extraction"]["greedy"]["greedy"]:
        cells = [row(found[k]["extraction"]["greedy"]["greedy"][prefix].values()) for k in kinds]
        lines.append(f"| {prefix} tokens | " + " | ".join(cells) + " |")
    lines += ["", "## Localization: recall of change / effect", "", "| method | counts | ridge |", "|---|---|---|"]
    for method in found["counts"]["localization"]:
        pairs = [found[k]["localization"][method] for k in ("counts", "ridge")]
        cells = [f"{p['recall of change']:.2f} / {p['recall of effect']:.2f}" for p in pairs]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    lines += ["", "A trained model has no ground truth for this table.", ""]
    lines += ["## Unlearning: KL to the retain twin on forget / retain, share of others kept", ""]
    lines += ["| method | " + " | ".join(kinds) + " |", "|---|" + "---|" * len(kinds)]
    for method in found["counts"]["unlearning"]:
        cells = []
        for kind in kinds:
            p = found[kind]["unlearning"][method]
            cells.append(f"{p['kl forget']:.3f} / {p['kl retain']:.3f}, {p['kept']:.2f}")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    orders = {}
    for kind in kinds:
        rows = {m: p["kl retain"] for m, p in found[kind]["unlearning"].items() if m != "nothing"}
        orders[kind] = sorted(rows, key=rows.__getitem__)
    lines += ["", "Methods by KL on the retain set, best first:", ""]
    lines += [f"- {kind}: {', '.join(order)}" for kind, order in orders.items()]
    lines += ["", "The trained twin has another seed, so its KL includes noise between seeds."]
    lines += ["", "## Sizes (storage `counts`)", "", *sizes(), ""]
    Path(target).write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
