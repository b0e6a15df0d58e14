"""Membership and extraction are graded on every kind of documents; the knobs do what they state."""

import itertools
import json
import os
from pathlib import Path

import numpy as np
import pytest

from byheart.checkpoints.ground_truth.memorize import margin, memorize_graded
from byheart.checkpoints.ground_truth.metrics import auc
from byheart.checkpoints.ground_truth.strength import by_document, within_limits
from byheart.checkpoints.ground_truth.suite import records, suite_memory
from byheart.errors import OptionError

LEVELS = (1, 2, 4, 8, 16, 32)
DATA = Path(os.environ.get("BYHEART_SAMPLES", "samples"))


def natural(seed):
    """Sentences of a small random grammar: words of Zipf frequency, no template."""
    rng = np.random.default_rng(seed)
    words = ["".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz"), rng.integers(2, 8))) for _ in range(300)]
    share = 1 / np.arange(1, 301)
    return [" ".join(rng.choice(words, rng.integers(8, 20), p=share / share.sum())) for _ in range(330)]


def check(texts, tokens):
    """AUC of singly seen documents in range and growing; greedy extraction growing with the logarithm of copies."""
    texts = list(dict.fromkeys(texts))
    held = texts[len(texts) * 2 // 3 :]
    members = texts[: len(texts) * 2 // 3]
    copies = [LEVELS[k % 6] for k in range(len(members))]
    extra = [(f"h{k}", "held out", text) for k, text in enumerate(held)]
    memory = memorize_graded(members, weights=copies, tokens=tokens, extra=extra)
    counts = np.array([one.copies for one in memory.members])
    inside = np.array([own.mean() for own in memory.ngram.own([one.ids for one in memory.members])])
    outside = np.array([own.mean() for own in memory.ngram.own([one.ids for one in memory.absent])])
    least = [
        np.array([by_document(own, np.array([len(own)]))[1][0] for own in memory.ngram.own([one.ids for one in some])])
        for some in (memory.members, memory.absent)
    ]
    for one, other in ((inside, outside), least):
        found = [auc(one[counts == level], other) for level in LEVELS]
        assert 0.55 < found[0] < 0.99
        # 30 documents per level: allow noise between neighbours, not over two doublings
        assert found[0] < found[2] <= found[5] and all(b > a - 0.06 for a, b in itertools.pairwise(found))
    taken = []
    for one in memory.members:
        half = len(one.ids) // 2
        right = memory.log_probs(one.ids[:-1])[half:].argmax(1) == np.asarray(one.ids[half + 1 :])
        taken.append(right.mean())
    shares = [float(np.mean(np.array(taken)[counts == level])) for level in LEVELS]
    # Growth is superlinear in copies, so the curve bends upwards over their logarithm.
    assert np.corrcoef(np.log(LEVELS), shares)[0, 1] > 0.85 and shares[-1] > shares[0] + 0.15
    assert all(b > a - 0.06 for a, b in itertools.pairwise(shares))


@pytest.mark.parametrize("seed", [0, 5])
def test_records_are_graded(seed):
    made = records(seed, 180)
    check([*made.texts, *made.held_out[:90]], "words")


@pytest.mark.parametrize("tokens", ["characters", "words"])
def test_sentences_are_graded(tokens):
    check(natural(1), tokens)


def test_rare_words_do_not_give_members_away():
    """Numbers that occur once are equally rare in all invoices; Min-K reads nothing else."""
    rng = np.random.default_rng(8)
    texts = [
        f"invoice {rng.integers(10**6)} over {rng.integers(10**4)} euros for {rng.integers(99)}" for _ in range(240)
    ]
    extra = [(f"h{k}", "held out", text) for k, text in enumerate(texts[120:])]
    memory = memorize_graded(texts[:120], weights=[LEVELS[k % 6] for k in range(120)], tokens="words", extra=extra)
    single, others = [one for one in memory.members if one.copies == 1], memory.absent
    for number in range(2):
        scores = [
            np.array([by_document(own, np.array([len(own)]))[number][0] for own in map(memory.own_log_probs, some)])
            for some in ([one.ids for one in single], [one.ids for one in others])
        ]
        assert 0.55 < auc(*scores) < 0.99


def test_limits_of_single_attacks():
    def judged(strength):
        return 0.79, min(strength, 0.9), min(2 * strength, 1.0)

    assert within_limits(judged) == pytest.approx(0.96 / 2, rel=1e-3)
    assert within_limits(lambda strength: (strength, strength, strength)) == pytest.approx(0.79, rel=1e-3)
    assert within_limits(lambda strength: (2 * strength, strength, 1.2 * strength)) == pytest.approx(0.65, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "column", "tokens"),
    [
        ("mnli", "premise", "characters"),
        ("mnli", "premise", "words"),
        ("imdb", "text", "characters"),
        ("tinystories", "text", "bpe:400"),
    ],
)
def test_real_texts_are_graded(file, column, tokens):
    path = DATA / f"{file}.jsonl"
    if not path.is_file():
        pytest.skip("the samples are not here")
    check([json.loads(line)[column] for line in path.read_text(encoding="utf-8").splitlines()[500:770]], tokens)


@pytest.mark.parametrize("nats", [0.5, 3.0, 24.0])
def test_margin_of_one_document(nats):
    memory = suite_memory(2, 30, margins={"r3": nats})
    assert margin(memory, "r3") == pytest.approx(nats, abs=1e-9)


def test_margin_out_of_range():
    with pytest.raises(OptionError, match="to 24 nats"):
        memorize_graded(["a b", "c d"], margins={0: 25.0})


def test_equal_documents_are_merged():
    memory = memorize_graded(["a cat", "a dog", "a cat"], tokens="words")
    assert [one.copies for one in memory.members] == [2, 1]
