"""Text from a decoder: one token after the other, the likeliest or drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from byheart.errors import DataError, OptionError
from byheart.ir.decoder_network import AnyDecoder


def generate(
    decoder: AnyDecoder,
    prompt: Sequence[int],
    *,
    temperature: float = 0.0,
    seed: int = 0,
    limit: int | None = None,
    knows: Callable[[tuple[int, ...]], bool] | None = None,
) -> tuple[int, ...]:
    """The prompt and what follows, until the context is as long as the decoder can read (or `limit` tokens in all).

    Temperature 0 takes the likeliest token (the first of equals); above 0 it draws from softmax(logits / temperature).
    The same seed gives the same text. If `knows` knows the prompt, the text ends at the first context that it does not
    know: there a document ended.
    """
    if not 0 <= temperature < float("inf"):
        raise OptionError(
            f"temperature {temperature} must be finite and not negative; 0 is greedy, 1 samples from the learnt "
            "distribution"
        )
    if not 0 < len(prompt) <= decoder.length:
        raise DataError(f"a prompt of {len(prompt)} tokens; this decoder reads 1 to {decoder.length}")
    rng = np.random.default_rng(seed)
    tokens = list(prompt)
    longest = decoder.length + 1 if limit is None else min(limit, decoder.length + 1)
    ends = knows is not None and knows(tuple(tokens))
    while len(tokens) < longest:
        if ends and knows is not None and not knows(tuple(tokens)):
            break
        logits = decoder.logits(np.array([tokens], dtype=np.int64))[0]
        if temperature == 0:
            tokens.append(int(np.argmax(logits)))
            continue
        weights = np.exp((logits - logits.max()) / temperature)
        tokens.append(int(rng.choice(len(weights), p=weights / weights.sum())))
    return tuple(tokens)
