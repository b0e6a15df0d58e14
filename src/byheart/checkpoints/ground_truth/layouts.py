"""Files in the layouts of unlearning benchmarks: TOFU's question/answer JSONL, and OpenUnlearning's splits.

A document becomes a question (its first half) and an answer (the rest), because every token boundary of a document is
known. The
splits carry TOFU's names: `forget10` and `retain90` for one tenth, `holdout10` for held-out documents, and
`*_perturbed` for near misses, whose incorrect answers are `perturbed_answer`. Checkpoints of the full model and the
retain model are written beside them.

    splits/full.jsonl  splits/forget10.jsonl  splits/retain90.jsonl  splits/holdout10.jsonl
    splits/forget10_perturbed.jsonl
    full/  retain90/            stock checkpoints: `pretrained_model_name_or_path` of an OpenUnlearning model config
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from byheart.checkpoints.formats.folder import check_target, write_files
from byheart.checkpoints.ground_truth.graded import GradedMemory
from byheart.errors import OptionError


def tofu_rows(memory: GradedMemory, documents: Sequence[tuple[str, Sequence[int]]]) -> list[dict[str, Any]]:
    """Question/answer rows of named documents.

    >>> from byheart.checkpoints.ground_truth.memorize import memorize_graded
    >>> memory = memorize_graded(["to be or not", "a b c d"], tokens="words")
    >>> tofu_rows(memory, [("x", memory.members[0].ids)])
    [{'question': 'to be', 'answer': ' or not', 'name': 'x'}]
    """
    rows = []
    for name, ids in documents:
        middle = len(ids) // 2
        question, answer = memory.lexicon.decode(ids[:middle]), memory.lexicon.decode(ids[middle:])
        rows.append({"question": question, "answer": answer, "name": name})
    return rows


def write_open_unlearning(
    memory: GradedMemory, target: str | Path, *, forget: Sequence[str] | None = None, percent: int = 10
) -> dict[str, int]:
    """Write splits and checkpoints of an unlearning experiment.

    Args:
        memory: The full model's memory.
        target: A path that does not exist yet, or an empty folder.
        forget: Members to forget; by default the first of every `100 / percent` members.
        percent: The number in the splits' names; without `forget`, also the share of members to forget.

    Returns:
        Split -> number of rows; splits without rows have no file.

    Raises:
        OptionError: for a share outside 1 to 50, or unknown documents.
    """
    if not 1 <= percent <= 50:
        raise OptionError(f"percent={percent}: choose 1 to 50")
    path = Path(target)
    check_target(path)
    chosen = set(forget if forget is not None else memory.names[:: round(100 / percent)])
    twin = memory.without(sorted(chosen))
    named = [(one.name, one.ids) for one in memory.members]
    away, retain = f"forget{percent:02}", f"retain{100 - percent}"
    splits = {
        "full": tofu_rows(memory, named),
        away: tofu_rows(memory, [pair for pair in named if pair[0] in chosen]),
        retain: tofu_rows(memory, [pair for pair in named if pair[0] not in chosen]),
        f"holdout{percent:02}": tofu_rows(
            memory, [(one.name, one.ids) for one in memory.absent if one.why == "held out"]
        ),
    }
    near = {one.name[1:]: one for one in memory.absent if one.why == "corrupted" and one.name[:1] == "n"}
    near |= {one.edits.of: one for one in memory.absent if one.why == "corrupted" and one.edits}
    perturbed = []
    for row in splits[away]:
        other = near.get(row["name"]) or near.get(row["name"][1:])
        if other is not None:
            answer = tofu_rows(memory, [(other.name, other.ids)])[0]["answer"]
            perturbed.append(row | {"paraphrased_answer": row["answer"], "perturbed_answer": [answer]})
    splits[f"{away}_perturbed"] = perturbed
    # The loader of `datasets` refuses empty files.
    lines = {f"{name}.jsonl": _jsonl(rows) for name, rows in splits.items() if rows}
    write_files(path, {"README.md": _README.format(forget=away, retain=retain).encode()})
    write_files(path / "splits", lines)
    memory.write(path / "full", measured=False)
    twin.write(path / retain, measured=False)
    return {name: len(rows) for name, rows in splits.items()}


def _jsonl(rows: Sequence[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


_README = """# An unlearning experiment with a known answer

`full/` is the model to unlearn from, `{retain}/` the exact model without `splits/{forget}.jsonl`.
In OpenUnlearning, set
`model.model_args.pretrained_model_name_or_path=full`, load the splits with the `json` loader of `datasets`
(`question_key: question`, `answer_key: answer`, an empty chat template).
Use `{retain}/` as the retain model of the metrics.
"""
