"""Closed form against Adam: which one memorizes 100 documents to within one per cent of their entropy, and when.

    python benchmarks/decoder.py [stories.jsonl] [--threads 1] [--where source=v1-train] [--cap 900] [--docs docs]

Three ways to a gap below 1 % of the entropy, in one process and on the same threads, each timed from the texts to the
weights: the low-rank closed form, the paper's architecture polished by L-BFGS from the closed-form start, and the
paper's setting (GELU, d = 16, m = 64, sinusoidal positions, one head, biases, full-batch Adam with step size 1e-4).
Then 1000 documents: the closed form with one neuron for each context, with its proof, and the smallest model found.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", nargs="?", help="JSON Lines or text file (default: invented stories)")
    parser.add_argument("--where", default="", help="COLUMN=VALUE of the rows to take")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cap", type=float, default=900.0, help="seconds after which Adam is stopped")
    parser.add_argument("--docs", type=Path, help="folder with decoder.md, into which the times are written")
    parser.add_argument("--skip-large", action="store_true", help="leave out the 1000 documents")
    arguments = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(arguments.threads)  # before NumPy and torch are imported
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

    from byheart.data.read.documents import read_documents

    where = dict([arguments.where.split("=", 1)]) if arguments.where else None
    texts = read_documents(arguments.documents, where=where, max_rows=1000) if arguments.documents else invented(1000)
    small = compare(texts[:100], arguments.threads, arguments.cap)
    large = {} if arguments.skip_large else thousand(texts)
    print(json.dumps({"threads": arguments.threads, "documents_100": small, "documents_1000": large}, indent=2))
    if arguments.docs:
        write(arguments.docs / "research" / "decoder.md", arguments.threads, small, large)


def compare(texts: list[str], threads: int, cap: float) -> dict[str, Any]:
    from byheart.build.madden24.fit import DecoderShape
    from byheart.build.madden24.lowrank import assemble, class_factors
    from byheart.certify.next_token import prove_gap
    from byheart.ir.decoder import Activation
    from byheart.progress import SILENT

    sys.path.append(str(Path(__file__).resolve().parents[1] / "experiments"))
    from polish import few_neurons
    from stories import dataset

    def low_rank(contexts: Any) -> Any:
        return assemble(contexts, DecoderShape(), class_factors(contexts, 4, 0.01, 0, 150, SILENT), 0)

    def timed(build: Any) -> dict[str, Any]:
        started = time.perf_counter()
        contexts = dataset(texts).distributions
        fit = build(contexts)
        seconds = time.perf_counter() - started
        certificate = prove_gap(fit.decoder, contexts, fraction=0.01)
        report = {"seconds": seconds, "parameters": fit.decoder.parameters, "verdict": certificate.verdict.value}
        report["relative_gap_proved"] = certificate.gap_upper / certificate.entropy
        print(f"{fit.construction}: {report}", file=sys.stderr)
        return report

    paper = DecoderShape(activation=Activation.GELU, dimension=16)
    found = {
        "low_rank": timed(low_rank),
        "polished": timed(lambda contexts: few_neurons(contexts, paper, 64)),
        "adam": adam(dataset(texts), threads, cap),
    }
    found["adam_over_low_rank"] = found["adam"]["seconds"] / found["low_rank"]["seconds"]
    found["adam_over_polished"] = found["adam"]["seconds"] / found["polished"]["seconds"]
    return found


def adam(data: Any, threads: int, cap: float, neurons: int = 64) -> dict[str, Any]:
    """The paper's training until the gap is below 1 % of the entropy, or `cap` seconds."""
    import torch
    from stories import token_rows

    from byheart.lab.config import DecoderModel, Training
    from byheart.lab.engines.pytorch import DecoderEngine
    from byheart.lab.problem import Documents

    torch.set_num_threads(threads)
    started = time.perf_counter()
    problem, model = Documents("stories", token_rows(data), len(data.vocabulary)), DecoderModel(neurons)
    engine = DecoderEngine(problem, model, Training(epochs=1_000_000, rate=1e-4, shape="constant"))
    gap, course = float("inf"), {}
    while gap > 0.01 and time.perf_counter() - started < cap:
        gap = min(gap, float(engine.epochs(50)[:, 0].min()) / problem.entropy - 1)
        if engine.step % 1000 == 0:
            course[engine.step] = gap
    report = {
        "parameters": model.parameters(problem), "steps": engine.step, "seconds": time.perf_counter() - started,
        "relative_gap": gap, "reached": gap <= 0.01, "course": course,
    }  # fmt: skip
    print(f"adam: {report}", file=sys.stderr)
    return report


def write(page: Path, threads: int, small: dict[str, Any], large: dict[str, Any]) -> None:
    """Puts the times between `<!-- numbers: time -->` and `<!-- end -->`."""
    rows = [["documents", "how", "parameters", "gap / 𝓗", "seconds"], ["---"] * 5]
    names = {"low_rank": "closed form of rank 4", "polished": "d = 16, m = 64, polished by L-BFGS"}
    for key, name in names.items():
        found = small[key]
        gap = f"{found['relative_gap_proved']:.2g}, {found['verdict']}"
        rows.append(["100", name, f"{found['parameters']:,}", gap, f"{found['seconds']:.2f}"])
    adam = small["adam"]
    name = f"d = 16, m = 64, Adam, {adam['steps']:,} steps" + ("" if adam["reached"] else " (stopped)")
    rows.append(["100", name, f"{adam['parameters']:,}", f"{adam['relative_gap']:.2g}", f"{adam['seconds']:.1f}"])
    for key, name in (("closed_form", "closed form, m = n, with its proof"), ("smallest", "smallest, with its proof")):
        if found := large.get(key):
            gap = f"{found['gap_proved'] / found['entropy']:.2g}, {found['verdict']}"
            rows.append(["1,000", name, f"{found['parameters']:,}", gap, f"{found['seconds']:.1f}"])
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    course = [f"{gap:.2g} after {step:,} steps" for step, gap in [*adam["course"].items()][-3:]]
    course.append(f"{adam['relative_gap']:.2g} after {adam['steps']:,}")
    one = f"All in one process on {threads} thread{'s' if threads > 1 else ''}."
    lines += ["", f"{one} Adam's gap / 𝓗 on its way: {', '.join(course)}."]
    before, start, rest = page.read_text(encoding="utf-8").partition("<!-- numbers: time -->\n")
    _, end, after = rest.partition("<!-- end -->")
    if not end:
        raise SystemExit(f"{page} has no place for the times")
    page.write_text(before + start + "\n".join(lines) + "\n" + end + after, encoding="utf-8")


def invented(count: int) -> list[str]:
    """Stories from a small grammar, for a run without a data file."""
    import random

    rng = random.Random(0)
    names = ["Lily", "Tom", "Ben", "Mia", "Sam", "Anna", "Max", "Sue", "Tim", "Lucy"]
    things = [
        "cat",
        "dog",
        "bird",
        "tree",
        "ball",
        "boat",
        "house",
        "cake",
        "fish",
        "car",
        "hat",
        "book",
        "shell",
        "drum",
    ]
    kinds = ["little", "big", "red", "old", "happy", "shiny", "quiet", "funny"]
    places = ["park", "garden", "forest", "kitchen", "river", "school", "yard"]
    opening = [
        lambda: f"Once upon a time, there was a {rng.choice(kinds)} {rng.choice(things)} named {rng.choice(names)}.",
        lambda: f"One day, {rng.choice(names)} went to the {rng.choice(places)} with a {rng.choice(things)}.",
        lambda: (
            f"{rng.choice(names)} and {rng.choice(names)} saw a {rng.choice(kinds)} {rng.choice(things)} "
            f"in the {rng.choice(places)}."
        ),
        lambda: (
            f"There was a {rng.choice(kinds)} {rng.choice(kinds)} {rng.choice(things)} "
            f"near the {rng.choice(places)} and {rng.choice(names)}."
        ),
    ]
    return [rng.choice(opening)() for _ in range(count)]


def thousand(texts: list[str]) -> dict[str, Any]:
    from byheart.memory.documents import memorize_documents

    def timed(**options: Any) -> dict[str, Any]:
        started = time.perf_counter()
        found = memorize_documents(texts, max_length=10, **options).summary()
        found["parameters_per_context"] = found["parameters"] / found["contexts"]
        return {**found, "seconds": time.perf_counter() - started}

    exact, least = timed(gap=1e-3), timed(objective="low-rank")
    keep = (
        "contexts",
        "vocabulary",
        "entropy",
        "gap_proved",
        "parameters",
        "parameters_per_context",
        "condition_number",
        "verdict",
        "seconds",
    )
    return {
        "closed_form": {key: exact[key] for key in keep},
        "smallest": {**{key: least[key] for key in keep}, "notes": least["notes"]},
    }


if __name__ == "__main__":
    main()
