"""Queries of a decoder: which contexts rows have, which class a token is, where generated text ends."""

from __future__ import annotations

import numpy as np
import pytest

from byheart.errors import DataError, NetworkError, OptionError
from byheart.exact.number import Values
from byheart.ir.decoder import Activation, Average, ContextReader, Decoder
from byheart.ir.decoder_network import DecoderNetwork, context_number, continue_tokens
from byheart.ir.network import Inputs, Read

# The next token is the one after the last: 0 -> 1 -> 2 -> 0.
EMBEDDING = np.eye(3) * 4
DECODER = Decoder(
    ContextReader(EMBEDDING, Average(np.zeros(4)), skip=True),
    np.eye(3),
    np.zeros(3),
    Activation.TANH,
    (np.roll(np.eye(3), 1, axis=1) * 9,),
)


def network(read: Read = Read.LAST, known: tuple[int, ...] = ()) -> DecoderNetwork:
    return DecoderNetwork(DECODER, (0, 1, 2), (1, 2), read, known)


def test_classes_are_tokens_and_other_tokens_are_no_class():
    codes = Values.of([[0], [1], [2], [3]])
    rows = Inputs(codes, np.array([[0, 1, 2], [1, 2, 3], [0, 0, 1]]))
    # codes are tokens + 1, 0 pads at the start: contexts 0 1, 0 1 2, 0
    assert network().likeliest(rows).tolist() == [1, -1, 0]
    found = network(Read.EACH).prefixes(Inputs(codes, np.array([[1, 2, -1]])))
    assert found.tokens.tolist() == [[0, -1], [0, 1]] and found.place.tolist() == [[0, 1, -1]]
    with pytest.raises(DataError, match="reads codes of 3 symbols"):
        network().prefixes(Inputs(Values.of([[7]]), np.array([[0]])))


def test_text_ends_where_the_memorized_contexts_end():
    known = tuple(sorted(context_number(tokens) for tokens in [(0,), (0, 1)]))
    net = network(known=known)
    assert net.is_known((0, 1)) and not net.is_known((0, 1, 2))
    assert continue_tokens(DECODER, (0,)) == (0, 1, 2, 0, 1)
    assert continue_tokens(DECODER, (0,), is_known=net.is_known) == (0, 1, 2)
    assert continue_tokens(DECODER, (1,), is_known=net.is_known) == (1, 2, 0, 1, 2), "the prompt itself is unknown"
    assert continue_tokens(DECODER, (0,), limit=2) == (0, 1)
    sampled = [continue_tokens(DECODER, (0,), temperature=5.0, seed=seed) for seed in range(9)]
    assert len(set(sampled)) > 1 and sampled[0] == continue_tokens(DECODER, (0,), temperature=5.0, seed=0)


def test_mistakes_are_named():
    with pytest.raises(OptionError, match="temperature -1"):
        continue_tokens(DECODER, (0,), temperature=-1)
    with pytest.raises(DataError, match="a prompt of 5 tokens"):
        continue_tokens(DECODER, (0,) * 5)
    for inputs, classes, words in [((0, 0), (1,), "inputs"), ((0,), (5,), "classes"), ((0,), (), "classes")]:
        with pytest.raises(NetworkError, match=f"the {words} must be distinct"):
            DecoderNetwork(DECODER, inputs, classes, Read.LAST)
    with pytest.raises(NetworkError, match="must ascend"):
        network(known=(2, 1))


def test_equality_is_of_matrices():
    assert network() == network() and network() != network(Read.EACH)
