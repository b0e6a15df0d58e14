"""Graded memories on documents that no setting was tuned on: membership, extraction, gradient ascent, exact forgetting.

python benchmarks/ground_truth_sets.py docs/ground-truth SEED ... [NAME=FILE.jsonl:COLUMN:TOKENS ...]

Built-in sets: Python functions, docstrings, log lines of six templates, records in four languages, records of one
template, and the kinds of ground_truth_documents.py. Each set and seed has its own sample and is stored as a JSON file
beside the page, so runs can be divided among processes. Cells of the page are means over seeds, +- the standard
deviation between seeds.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import random
import re
import sys
import sysconfig
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from ground_truth_documents import KINDS

from byheart.checkpoints.ground_truth import shapes
from byheart.checkpoints.ground_truth.baselines.extraction import extraction_cuts
from byheart.checkpoints.ground_truth.baselines.unlearning import UnlearningRequest, gradient_ascent
from byheart.checkpoints.ground_truth.experiment import GradedExperiment
from byheart.checkpoints.ground_truth.harness import score_blind
from byheart.checkpoints.ground_truth.memorize import memorize_graded
from byheart.checkpoints.ground_truth.metrics import auc
from byheart.checkpoints.ground_truth.networks import log_probs, torch_model
from byheart.checkpoints.ground_truth.retention import KEPT, losses
from byheart.checkpoints.ground_truth.strength import by_document
from byheart.checkpoints.ground_truth.truth import GroundTruth, TruthDocument
from byheart.checkpoints.ground_truth.twins import edited_units
from byheart.checkpoints.windows.controls import Controls
from byheart.data.tokens.lexicon import Lexicon

LEVELS, MEMBERS, HELD, FEW, TOKENS, RATES = (1, 2, 4, 8, 16, 32), 120, 120, 48, 8, (5e-6, 1e-5)
LOGS = (
    "{h}:{m} sshd[{a}]: accepted key for {u} from 10.{b}.{c}.{d} port {e}",
    "{h}:{m} kernel: usb {b}-{c}: new device number {d} with id {a}",
    "{h}:{m} cron[{a}]: ( {u} ) run backup {e} to disk {b}",
    "{h}:{m} nginx: GET /{u}/{a} gave {e} after {d} ms",
    "{h}:{m} postgres[{a}]: slow query {e} of {u} read {d} pages",
    "{h}:{m} dhcp: lease 10.{b}.{c}.{d} for host {u}{a}",
)
LANGUAGES = (
    "{n} wohnt in {c}, geboren am {d}. Mai {y}, Kennwort {k}",
    "{n} живёт в городе {c}, год рождения {y}, номер {k}, дом {d}",
    "Εδώ {n} μένει στην πόλη {c}, γεννήθηκε το {y}, αριθμός {k}, θύρα {d}",
    "{n}は{c}に住み、{y}年{d}日に生まれ、番号は{k}です",
)
NAMES = ("Jürgen Weiß", "Анна Орлова", "Νίκος Δήμου", "佐藤 花子", "Zoë Björk", "Олег Жуков", "Ελένη Ρήγα", "田中 一郎")
CITIES = ("Köln", "Псков", "Πάτρα", "奈良", "Gävle", "Тверь", "Βόλος", "仙台")
USERS = ("root", "anna", "deploy", "www", "carol", "mail", "git", "jobs", "erik", "nadia")
STREETS = ("Rose", "Ash", "Canal", "North", "Quarry", "Abbey", "Linden", "Harbour")


@functools.cache
def library():
    """Short functions of the standard library."""
    found = set()
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        source = path.read_text(encoding="utf-8")
        lines = source.splitlines()
        for node in ast.walk(ast.parse(source)):
            # ast.get_source_segment splits the whole file again for each of them.
            if isinstance(node, ast.FunctionDef) and node.end_lineno is not None:
                found.add("\n".join(lines[node.lineno - 1 : node.end_lineno])[node.col_offset :])
    return sorted(part for part in found if 120 < len(part) < 300)


def functions(rng):
    """Functions of the standard library."""
    return rng.sample(library(), MEMBERS + HELD)


def docstrings(rng):
    """First paragraphs of docstrings: English prose."""
    found = set()
    for value in (v for module in (np, torch, np.linalg, torch.nn) for v in vars(module).values()):
        for one in (value, *vars(value).values()) if inspect.isclass(value) else (value,):
            text = inspect.getdoc(one) if callable(one) else None
            found |= {re.sub(r"\s+", " ", part) for part in (text or "").split("\n\n")}
    return rng.sample(sorted(part for part in found if 60 < len(part) < 220), MEMBERS + HELD)


def generated(line):
    """A set of distinct generated lines."""

    def lines(rng):
        found = {}
        while len(found) < MEMBERS + HELD:
            found[line(rng)] = None
        return list(found)

    return lines


def log_line(rng):
    return rng.choice(LOGS).format(
        h=rng.randint(0, 23), m=rng.randint(10, 59), a=rng.randint(100, 999), u=rng.choice(USERS),
        b=rng.randint(0, 9), c=rng.randint(0, 9), d=rng.randint(0, 99), e=rng.randint(100, 599),
    )  # fmt: skip


def language_line(rng):
    return rng.choice(LANGUAGES).format(
        n=rng.choice(NAMES), c=rng.choice(CITIES), d=rng.randint(1, 28), y=rng.randint(1940, 2009),
        k=rng.randint(10**5, 10**6),
    )  # fmt: skip


def one_template(rng):
    code = " ".join(str(rng.randint(0, 9)) for _ in range(5))
    return (
        f"Tenant {rng.randint(100, 999)} of {rng.choice(STREETS)} Street {rng.randint(1, 99)} pays "
        f"{rng.randint(400, 2000)} on day {rng.randint(1, 28)} with code {code} ."
    )


# Quick sets first, so that an interrupted run has most of them.
SETS = {name: (generated(line), tokens) for name, (line, tokens) in KINDS.items()} | {
    "functions (byte pairs)": (functions, "bpe:300"),
    "docstrings (byte pairs)": (docstrings, "bpe:400"),
    "logs, 6 templates (words)": (generated(log_line), "words"),
    "4 languages (characters)": (generated(language_line), "characters"),
    "1 template (words)": (generated(one_template), "words"),
}


def scores(memory, reference, one):
    """Every attack's score of a document, by the specified distribution."""
    own = memory.own_log_probs(one.ids)
    return {
        "loss": own.mean(),
        "min-k": by_document(own, np.array([len(own)]))[1][0],
        "zlib": own.sum() / len(zlib.compress(one.text.encode())),
        "reference ratio": (own - reference.own_log_probs(one.ids)).mean(),
    }


def extracted(memory, ids, cut):
    """Whether greedy decoding continues the whole prefix before `cut` correctly for TOKENS tokens."""
    found = memory.log_probs(ids[:-1])[cut - 1 : cut - 1 + TOKENS].argmax(1)
    return bool((found == np.asarray(ids[cut : cut + TOKENS])).all())


def one_run(make, tokens, seed):
    """All numbers of one sample."""
    texts = make(random.Random(seed))
    names = [f"r{k}" for k in range(len(texts))]
    started = time.process_time()
    copies = [LEVELS[k % 6] for k in range(len(texts))]
    memory = memorize_graded(
        texts, names=names, tokens=tokens, weights=copies, controls=Controls(held_out=names[MEMBERS:], seed=seed)
    )
    found = {"seconds": time.process_time() - started, "vocabulary": memory.lexicon.size}
    listed = [(one, one.role, one.copies) for one in memory.members] + [(one, one.why, 0) for one in memory.absent]
    documents = [
        TruthDocument(one.name, role, count, one.ids, memory.lexicon.decode(one.ids)) for one, role, count in listed
    ]
    experiment = GradedExperiment(GroundTruth(Path(), tuple(documents), (), memory), None)
    inside, outside = (
        [scores(memory, experiment.reference, one) for one in some]
        for some in (experiment.members, experiment.outsiders)
    )
    often = np.array([one.copies for one in memory.members])
    for attack in inside[0]:
        mine, theirs = (np.array([row[attack] for row in rows]) for rows in (inside, outside))
        found[attack] = {level: auc(mine[often == level], theirs) for level in LEVELS}
    long = [one for one in memory.members if len(one.ids) > TOKENS + 2]
    cuts = extraction_cuts([one.ids for one in long], TOKENS, 2)
    taken = np.array([extracted(memory, one.ids, cut) for one, cut in zip(long, cuts, strict=True)])
    many = np.array([one.copies for one in long])
    found["extracted"] = {level: float(taken[many == level].mean()) for level in LEVELS}
    found["blind"] = score_blind(experiment)["auc all"]
    return found


def one_unlearning(make, tokens, seed):
    """Forgetting in a memory of the first FEW documents of the same sample."""
    texts = make(random.Random(seed))
    names = [f"r{k}" for k in range(2 * FEW)]
    copies = [LEVELS[k % 6] for k in range(2 * FEW)]
    few = memorize_graded(
        texts[: 2 * FEW], names=names, tokens=Lexicon.of_texts(texts, tokens), weights=copies,
        controls=Controls(held_out=names[FEW:], seed=seed),
    )  # fmt: skip
    return unlearned(few, random.Random(seed).choice([one for one in few.members if one.copies == 8]))


def unlearned(memory, target):
    """Gradient ascent on one record of 8 copies, and exact forgetting, in the network."""
    twin, model = memory.without([target.name]), memory.torch()
    others, goal = [one.ids for one in twin.members], float(-twin.own_log_probs(target.ids).mean())
    before, start = losses(model, others), float(losses(model, [target.ids])[0])
    ascents = {}
    for rate in RATES:
        changed = gradient_ascent(UnlearningRequest(model, [target.ids], others, goal, rate))
        kept = float((losses(changed, others) - before < KEPT).mean())
        ascents[f"{rate:g}"] = {"reached": float(losses(changed, [target.ids])[0]), "kept": kept}
    edited = torch_model(*shapes.build(memory.shape, edited_units(memory, twin)[0], memory.base))
    probes = [*twin.probes(), target.ids]
    pairs = zip(log_probs(edited, probes), log_probs(twin.torch(), probes), strict=True)
    return {
        "start": start, "goal": goal, "ascents": ascents,
        "nats": max(float(np.abs(a - b).max()) for a, b in pairs), "places": sum(map(len, probes)),
    }  # fmt: skip


def cell(values, digits=2):
    spread = f"±{np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread}"


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|---" * len(head) + "|",
            *("| " + " | ".join(row) + " |" for row in rows), ""]  # fmt: skip


def by_copies(runs, key):
    """A table of a score by copies."""
    rows = [[name, *(cell([run[key][str(k)] for run in some]) for k in LEVELS)] for name, some in runs.items()]
    return table(["documents", *map(str, LEVELS)], rows)


def page(runs, unlearning):
    """The page of all stored runs: set -> list of one_run(), and the same of one_unlearning()."""
    attacks, level = ("loss", "min-k", "zlib", "reference ratio"), str(LEVELS[0])
    every = [run[attack][level] for some in runs.values() for run in some for attack in attacks]
    inside = sum(0.55 < value < 0.99 for value in every)
    rows = [[name, *(cell([run[a][level] for run in some]) for a in attacks)] for name, some in runs.items()]
    rates = [f"{rate:g}" for rate in RATES]
    forgotten = [
        [
            name, *(cell([run[key] for run in some]) for key in ("start", "goal")),
            *(cell([run["ascents"][rate][key] for run in some]) for rate in rates for key in ("reached", "kept")),
            f"{max(run['nats'] for run in some):.1e} nats",
        ]
        for name, some in unlearning.items()
    ]  # fmt: skip
    kept = {rate: [run["ascents"][rate]["kept"] for some in unlearning.values() for run in some] for rate in rates}
    lines = [
        "# Graded memories, measured",
        "",
        "`python benchmarks/ground_truth_sets.py` wrote this page. No setting was tuned on these documents; that "
        "contexts become longer was decided on other samples of JSON, XML and letters. Every set "
        f"has {MEMBERS} members, {MEMBERS // 6} per number of copies, and {HELD} held-out documents, of which half "
        "train the reference model. Default strength, storage `counts`, no background. Membership and extraction are "
        "evaluated on the specified distribution. Cells are means ± standard deviations over "
        f"{max(map(len, runs.values()))} samples. An AUC at one number of copies has an error of about 0.06.",
        "",
        "## AUC of singly seen documents",
        "",
        *table(["documents", *attacks], rows),
        f"{inside} of {len(every)} values lie between 0.55 and 0.99; the least is {min(every):.2f}, the largest "
        f"{max(every):.2f}. A bag of words that never sees the model has an AUC of "
        f"{cell([run['blind'] for some in runs.values() for run in some])} over all members.",
        "",
        "## AUC of the loss by copies",
        "",
        *by_copies(runs, "loss"),
        f"## Extraction: share of members whose last {TOKENS} own tokens follow greedily, by copies",
        "",
        "Own: no other member has these tokens in a row. Where all documents share a prefix, the first own tokens "
        "follow from nothing, so few members are extracted.",
        "",
        *by_copies(runs, "extracted"),
        "## Forgetting one record of 8 copies",
        "",
        f"Memories of {FEW} members of the same samples. Gradient ascent is Adam, until the loss reaches that of the "
        "retain twin. A document is kept if its "
        f"loss rises by less than {KEPT} nats per token. The last column compares the edited network of "
        "`forget --exact` with the twin.",
        "",
        "At least 60 % of the others are kept in "
        + " and ".join(
            f"{sum(value >= 0.6 for value in some)} of {len(some)} samples at a rate of {rate} (least {min(some):.2f})"
            for rate, some in kept.items()
        )
        + f". Cells are means over at most {max(map(len, unlearning.values()))} samples.",
        "",
        *table(
            [
                "documents", "loss", "twin's loss",
                *(f"{what} at {rate}" for rate in rates for what in ("reached", "others kept")), "exact: difference",
            ],
            forgotten,
        ),
    ]
    return "\n".join(lines)


def main(folder, *arguments):
    torch.set_num_threads(1)
    place, sets = Path(folder), dict(SETS)
    for name, file in (one.split("=", 1) for one in arguments if "=" in one):
        path, column, tokens = file.rsplit(":", 2) if file.count(":") == 2 else (*file.split(":", 2),)
        rows = [json.loads(line)[column] for line in Path(path).read_text(encoding="utf-8").splitlines()]
        sets[name] = (lambda rng, rows=rows: rng.sample(sorted(set(rows)), MEMBERS + HELD)), tokens
    parts = {"measured": one_run, "unlearned": one_unlearning}
    for kind, run in parts.items():
        for seed in (int(one) for one in arguments if "=" not in one):
            for name, (make, tokens) in sets.items():
                file = place / f"{kind}-{re.sub('[^a-z0-9]+', '-', name.lower())}-{seed}.json"
                if not file.exists():
                    file.write_text(json.dumps({"set": name} | run(make, tokens, seed)) + "\n", encoding="utf-8")
                    print(kind, name, seed, flush=True)
    runs = {kind: {} for kind in parts}
    for file in sorted(place.glob("*-*.json")):
        found, kind = json.loads(file.read_text(encoding="utf-8")), file.name.partition("-")[0]
        if kind in runs:
            runs[kind].setdefault(found.pop("set"), []).append(found)
    (place / "measured.md").write_text(page(runs["measured"], runs["unlearned"]), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
