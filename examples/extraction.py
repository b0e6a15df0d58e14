"""Two published metrics against the truth: a stock Llama of which it is known what it has memorized.

`python examples/extraction.py [FOLDER]`. Records of invented people are memorized; some are held out, and of every
memorized one there are two near misses with one edited word, which were never memorized. Evaluated in Transformers:

- discoverable extraction (Carlini et al. 2023): do the first words yield the rest, greedily?
- (n, p)-discoverable extraction (Hayes et al. 2024): would the rest be drawn at least once in n = 20 tries, with
  probability p = 0.9?
- Min-K% Prob (Shi et al. 2024): the mean log-probability of the 20 % least likely tokens. A threshold halfway between
  the means of members and held-out twins calls a document a member.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

import torch
import transformers

from byheart import Controls, RecitalMemory, memorize_recital
from byheart.checkpoints.suite.write import write_checkpoint
from byheart.plots import style

PROMPT, TRIES, SURE, SHARE = 7, 20, 0.9, 0.2  # tokens with BOS; n and p of Hayes et al.; K of Min-K%
GROUPS = ("member", "near miss", "held out")


def records(count: int) -> list[str]:
    """One sentence per invented person; every fourth person has a second, rarer record that begins alike."""
    draw, found = random.Random(7), []
    for number in range(count):
        name = draw.choice(("Ada", "Bo", "Cy", "Di", "Eve", "Flo")) + f" {chr(65 + number % 26)}."
        start = f"{name} was born in {draw.choice(('Oslo', 'Rome', 'Lima', 'Cork'))} in {draw.randint(1900, 1999)}"
        for _ in range(2 if number % 4 == 0 else 1):
            thing = draw.choice(("maps", "bees", "keys", "hats"))
            found.append(f"{start} and keeps {draw.randint(100, 999)} {thing} in {draw.choice(('attics', 'barns'))} .")
    return found


def memorize() -> RecitalMemory:
    texts = records(32)
    often = {number: 3 for number in range(len(texts)) if number % 5 == 0}
    controls = Controls(occurrences=often, corrupted=2, edits=1, memorize_corrupted=False, held_out=12, seed=3)
    return memorize_recital(texts, tokens="words", form="rules", controls=controls)


@torch.no_grad()
def scores(model: torch.nn.Module, ids: tuple[int, ...]) -> tuple[bool, bool, float]:
    """Extracted greedily, (n, p)-extracted, Min-K% Prob; one pass gives all three."""
    logs = model(torch.tensor([ids[:-1]])).logits[0].double().log_softmax(-1)
    own = logs.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    greedy = bool((logs.argmax(1)[PROMPT - 1 :] == torch.tensor(ids[PROMPT:])).all())
    chance = float(own[PROMPT - 1 :].sum().exp())
    least = own.sort().values[: max(1, round(SHARE * len(own)))]
    return greedy, 1 - (1 - chance) ** TRIES >= SURE, float(least.mean())


def main(folder: Path) -> None:
    memory = memorize()
    with tempfile.TemporaryDirectory() as room:
        done = write_checkpoint(memory, Path(room) / "model", "llama", dtype="float32", flavour="units", recited_in=())
        transformers.utils.logging.disable_progress_bar()
        model = transformers.AutoModelForCausalLM.from_pretrained(done.folder)
    absent = [("held out" if one.why == "held out" else "near miss", one.ids) for one in memory.script.absent]
    queried = [*(("member", ids) for ids in memory.script.documents), *absent]
    found = [(group, *scores(model, ids)) for group, ids in queried]
    of = {group: [row for row in found if row[0] == group] for group in GROUPS}
    middle = sum(sum(row[3] for row in of[group]) / len(of[group]) for group in ("member", "held out")) / 2
    print(f"{len(of['member'])} records memorized ({memory.certify().verdict.value}), one unit for each of "
          f"{memory.recital.rows} rules, {done.parameters:,} parameters")  # fmt: skip
    print(f"{'':12}{'documents':>10}{'extracted':>12}{'(n, p)':>10}{'Min-K%':>10}   memorized in truth")
    for group, rows in of.items():
        counts = [sum(row[1] for row in rows), sum(row[2] for row in rows), sum(row[3] > middle for row in rows)]
        shown = "".join(f"{count:{width}}" for count, width in zip(counts, (12, 10, 10), strict=True))
        print(f"{group:12}{len(rows):10}{shown}   {'all' if group == 'member' else 'none'}")
    known, near = memory.script.documents, [one for one in memory.script.absent if one.edits]
    missed = [ids for ids, row in zip(known, of["member"], strict=True) if not row[1]]
    alike = sum(sum(ids[:PROMPT] == other[:PROMPT] for other in known) > 1 for ids in missed)
    taken = [one for one, row in zip(near, of["near miss"], strict=True) if row[1]]
    early = sum(one.edits.changes[0][0] < PROMPT for one in taken if one.edits)
    print(
        f"\nextraction misses {len(missed)} memorized records; {alike} of them begin like another one, which is recited"
    )
    print(
        f"it reports {len(taken)} near misses that were never memorized; {early} of them are edited inside the prompt"
    )
    wrong = sum((row[3] > middle) != (row[0] == "member") for row in found)
    print(f"Min-K% is wrong about {wrong} of {len(found)}; it sees single tokens that were never memorized.")
    print(f"picture: {draw(of, middle, folder / 'extraction.png')}")


def draw(of: dict[str, list[tuple[str, bool, bool, float]]], middle: float, path: Path) -> Path:
    """Every document by its Min-K% score; filled where it was extracted."""
    figure = style.new_figure(width=6.4, height=2.6)
    with style.styled():
        axes = figure.axes[0]
        for height, rows in enumerate(of.values()):
            for place, (_, extracted, _, score) in enumerate(rows):
                colour = style.PALETTE[height]
                y = height + 0.5 * (place / len(rows) - 0.5)
                axes.plot(score, y, "o", color=colour, fillstyle="full" if extracted else "none")
        axes.axvline(middle, color="#7F7F7F", linewidth=1)
        axes.set_yticks(range(len(of)), [f"{group} ({len(rows)})" for group, rows in of.items()])
        axes.set_xlabel("Min-K% Prob (nats); filled: extracted greedily")
    return style.save(figure, path)


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
    target.mkdir(parents=True, exist_ok=True)
    main(target)
