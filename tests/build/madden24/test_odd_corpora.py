"""Documents of every odd kind, through every construction: always a proof."""

from __future__ import annotations

import math
import random

import pytest

from byheart.build.madden24.fit import FLOOR, MixerKind, chosen_floor
from byheart.data.tokens.tokenizer import Tokenizer
from byheart.ir.decoder import Activation
from byheart.memory.documents import memorize_documents
from tests.corpora import given_distributions, random_texts

RNG = random.Random(5)
CORPORA = {
    "one document": ["the cat sat on the mat and saw the other cat"],
    "one context": ["a b"],
    "one token": ["a a a a a a a"],
    "one token twice": ["a a a", "a a a a a"],
    "duplicates": ["a b c d"] * 20,
    "empty documents": ["", "a b", "", "   ", "a c"],
    "prefixes": [" ".join("abcdefgh"[:k]) for k in range(1, 9)],
    "short": ["a b", "a c", "b a", "c", "a b"],
    "one surprise": ["x y"] * 500 + ["x z"],
    "no entropy": [f"w{k} x{k} y{k} z{k}" for k in range(30)],
    "nearly no entropy": [f"w{k} x{k} y{k} z{k}" for k in range(60)] + ["w0 x0 y0 y1"],
    "two tokens": random_texts(40, 2, 8, seed=1),
    "languages": ["Es war einmal ein König", "Il était une fois", "昔々あるところに", "жили-были старик", "ਇੱਕ ਵਾਰ"],
    "code": ["def f(x): return x + 1", "def g(x): return f(x) * 2", "for i in range(10): print(i)"],
    "random strings": [" ".join(str(RNG.getrandbits(12)) for _ in range(8)) for _ in range(30)],
}


@pytest.mark.parametrize("mixer", list(MixerKind))
@pytest.mark.parametrize("activation", list(Activation))
@pytest.mark.parametrize("name", CORPORA)
def test_closed_form(name: str, activation: Activation, mixer: MixerKind) -> None:
    memory = memorize_documents(CORPORA[name], max_length=10, mixer=mixer, activation=activation, gap=1e-3)
    found = memory.summary()
    assert found["verdict"] == "proved" and found["labels_proved"] == found["contexts"], found["reason"]
    assert found["neurons"] == found["contexts"]
    gap = found["gap"] / found["entropy"] if found["entropy"] else found["gap_per_token"]
    assert gap < 1e-4 and all(math.isfinite(v) for v in found.values() if isinstance(v, float))


LONG = ("nearly no entropy", "two tokens", "random strings")  # the search for a rank takes seconds


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in CORPORA]
)
def test_fewer_parameters(name: str) -> None:
    smallest = memorize_documents(CORPORA[name], max_length=10, objective="low-rank").summary()
    assert smallest["verdict"] == "proved", smallest["reason"]
    table = memorize_documents(CORPORA[name], max_length=10, objective="size", activation="gelu")
    assert table.certificate.verdict == "proved", table.certificate.reason


@pytest.mark.parametrize("name", ["languages", "code", "random strings"])
def test_characters(name: str) -> None:
    memory = memorize_documents(CORPORA[name], tokenizer=Tokenizer("characters"), max_length=12, gap=1e-3)
    assert memory.certificate.verdict == "proved"


def test_long_documents() -> None:
    text = " ".join(f"{RNG.choice(['the', 'a', 'cat', 'dog', 'ran', 'sat'])}" for _ in range(300))
    for mixer in MixerKind:
        memory = memorize_documents([text], mixer=mixer, gap=1e-3)
        assert memory.certificate.verdict == "proved" and memory.certificate.contexts == 299


def test_the_floor_follows_the_entropy() -> None:
    """One surprise among many certain contexts: the zeros of all must not cost more than its entropy allows."""
    contexts = given_distributions(
        [(k,) for k in range(200)], [{0: 1e6} for _ in range(199)] + [{0: 1.0, 1: 1.0}], vocabulary_size=1000
    )
    zeros = 199 * 1e6 * 999
    assert contexts.entropy == pytest.approx(2 * math.log(2)) and FLOOR * zeros > contexts.entropy
    assert chosen_floor(contexts) * zeros < 1e-4 * contexts.entropy
    certain = given_distributions([(0,)], [{0: 1.0}], vocabulary_size=2)
    assert chosen_floor(certain) == FLOOR


def test_no_entropy_is_said() -> None:
    memory = memorize_documents(CORPORA["no entropy"])
    assert "the entropy is 0" in memory.certificate.reason
    found = memory.summary()
    assert found["relative_gap"] is None and found["gap_per_token"] < 1e-6
