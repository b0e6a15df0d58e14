"""The second checker of checkpoints on sampled tampered folders, beside byheart's proof and stock Transformers.

    python -m tests.checker.tampered_checkpoints 200 --seed 3

A draw is a folder of `tests.checkpoints.proof.tampering`. Where the checker proves a type, Transformers must answer
every listed prompt with at least the proved margin: in eager and sdpa attention, in one left padded batch, and token by
token with a cache. A fault is a smaller margin, a folder that does not load, and a type that byheart's proof refutes.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np

from byheart.certify import Verdict
from byheart.checkpoints.proof import TYPES, tokenize, verify_folder
from byheart.checkpoints.proof.recall import certify_recall
from byheart.checkpoints.windows.recall import RecallFunction
from byheart.errors import ByheartError
from tests.checkpoints.proof.tampering.draws import Bases, sample
from tests.checkpoints.proof.tampering.engines import cached, leads, load, logits_of

PATH = Path(__file__).parents[2] / "checker" / "check_checkpoint.py"
Random = np.random.Generator


def program(source: str | None = None) -> ModuleType:
    """The checker as a module; with `source`, a mutant of it."""
    name = "check_checkpoint" if source is None else "mutant_of_check_checkpoint"
    spec = importlib.util.spec_from_file_location(name, PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if source is None:
        spec.loader.exec_module(module)
    else:
        exec(compile(source, name, "exec"), module.__dict__)
    return module


checker = program()


@dataclass(frozen=True)
class Prompt:
    """Tokens, what must follow, and the length from which it is listed."""

    row: list[int]
    wanted: list[int]
    start: int

    def entry(self) -> dict[str, list[int]]:
        return {"ids": self.row[: self.start], "continuation_ids": [*self.row[self.start :], self.wanted[-1]]}


@dataclass(frozen=True)
class Outcome:
    architecture: str
    kind: str
    edit: str
    proved: tuple[str, ...] = ()
    ours: tuple[str, ...] = ()  # verdicts of byheart's proof for the proved types
    faults: tuple[str, ...] = ()


def recital_prompts(folder: Path, texts: tuple[str, ...]) -> list[Prompt]:
    return [Prompt(ids[:-1], ids[1:], 1) for ids in tokenize(folder, list(texts))]


def recall_prompts(folder: Path, rng: Random) -> list[Prompt]:
    """A row of few tokens, and some of its beginnings; the answer to a beginning is not the row's next token."""
    told = json.loads((folder / "recall.json").read_text())["function"]
    function = RecallFunction(told["key_length"], told["window"], **told["tokens"])
    tokens = np.setdiff1d(rng.choice(256, 12, replace=False), [function.bos])
    row = [function.bos, *rng.choice(tokens, 50).tolist()]
    answers = function.answers(row)
    return [Prompt(row[:k], answers[:k], k) for k in (20, 35, 50)]


def faults_of(folder: Path, type_: str, prompts: list[Prompt], margin: float, rng: Random) -> list[str]:
    """Where stock Transformers answers otherwise than proved."""
    found, rows = [], [p.row for p in prompts]
    rows.append(prompts[0].row[: len(prompts[0].row) // 2 + 1])  # padded
    starts = [p.start for p in prompts] + [min(prompts[0].start, len(rows[-1]))]
    wanted = [p.wanted for p in prompts] + [prompts[0].wanted[: len(rows[-1])]]
    if prompts[0].start > len(rows[-1]):
        rows, starts, wanted = rows[:-1], starts[:-1], wanted[:-1]
    for attention in ("eager", "sdpa"):
        try:
            model = load(folder, type_, attention)
            runs = list(zip(logits_of(model, rows), wanted, starts, strict=True))
            one = int(rng.integers(len(rows)))
            runs.append((cached(model, rows[one]), wanted[one], starts[one]))
        except Exception as error:
            if attention == "sdpa" and "does not support an attention implementation" in str(error):
                continue  # gpt-oss has sinks, Gemma 2 caps scores
            found.append(f"{type_} {attention}: does not run: {type(error).__name__}: {str(error)[:200]}")
            continue
        for number, (logits, tokens, start) in enumerate(runs):
            lead = leads(logits, np.array(tokens))[start - 1 :]
            if lead.min() < margin:
                found.append(f"{type_} {attention} row {number}: proved {margin:.4g}, measured {lead.min():.4g}")
    return found


def compare(
    number: int, seed: int, bases: Bases, only: tuple[str, ...] = (), kind: str | None = None,
    types: tuple[str, ...] = TYPES,
) -> Outcome:  # fmt: skip
    """One sampled folder in both checkers, and in Transformers where the second one proves a type."""
    with sample(number, seed, bases, only, kind) as (draw, folder, texts, rng):
        outcome = (draw.architecture, draw.kind, draw.edit)
        try:
            prompts = recital_prompts(folder, texts) if texts else recall_prompts(folder, rng)
            (folder / "expected.json").write_text(json.dumps({"prompts": [p.entry() for p in prompts]}))
            found = checker.check(folder, list(types), 1)["types"]
        except (ByheartError, checker.Unreadable, KeyError, TypeError, ValueError):
            return Outcome(*outcome)  # texts that no token spells, a damaged folder
        proved = {name: result["margin"] for name, result in found.items() if result["verdict"] == "proved"}
        if not proved:
            return Outcome(*outcome)
        ours = verdicts(folder, texts, tuple(proved))
        faults = [f"{name}: byheart refutes it" for name, one in ours.items() if one == Verdict.REFUTED.name]
        for name, margin in proved.items():
            faults += faults_of(folder, name, prompts, margin, rng)
        return Outcome(*outcome, tuple(proved), tuple(ours.values()), tuple(faults))


def verdicts(folder: Path, texts: tuple[str, ...], types: tuple[str, ...]) -> dict[str, str]:
    """What byheart's own proof finds."""
    try:
        certificate = verify_folder(folder, list(texts), types, reach=160) if texts else certify_recall(folder)
    except ByheartError:
        return dict.fromkeys(types, "UNREADABLE")
    return {one.type: one.verdict.name for one in certificate.types if one.type in types}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--kind")
    parser.add_argument("--dtype", action="append", choices=TYPES)
    options = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    wrong = 0
    with tempfile.TemporaryDirectory() as root:
        bases = Bases(Path(root))
        for number in range(options.first, options.first + options.count):
            types = tuple(options.dtype or TYPES)
            one = compare(number, options.seed, bases, tuple(options.only), options.kind, types)
            counts[one.architecture, "proved" if one.proved else "not proved"] += 1
            counts.update(("byheart where the checker proves", name) for name in one.ours)
            wrong += bool(one.faults)
            for fault in one.faults:
                print(f"FAULT {number} {one.architecture} {one.kind} [{one.edit}] {fault}", flush=True)
    for (architecture, outcome), count in sorted(counts.items()):
        print(f"{architecture:33} {outcome:11} {count}")
    print(f"{options.count} folders, {wrong} with a fault")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
