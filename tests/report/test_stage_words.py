"""Every stage of every construction has words for readers, and so has every number of KS25's stream."""

from __future__ import annotations

import byheart
from byheart.build import recipes
from byheart.build.ks25.residual_memorizer import STREAM
from byheart.ir.network import Network
from byheart.report.stage_words import STREAM_WORDS, WORDS


def test_stages_have_words():
    rows, labels = ["ab", "ba", "bb", "aa"], [0, 1, 1, 0]
    found = set()
    for name, chosen in recipes().items():
        task = "next-token" if "next-token" in chosen.tasks else str(chosen.tasks[0])
        given = [[label] * 2 for label in labels] if task in ("seq-to-seq", "causal") else labels
        if task == "causal":
            given = [list("xy") for _ in rows]
        try:
            memory = byheart.memorize(rows, given, task=task, construction=name, conflicts="first", progress=False)
        except byheart.ByheartError:
            continue
        if isinstance(memory.network, Network):
            found |= {stage for stage, _ in memory.network.stages}
    assert len(found) > 12 and found <= set(WORDS)


def test_the_stream_has_words():
    assert set(STREAM_WORDS) == set(STREAM)
