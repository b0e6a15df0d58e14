"""What `native` promises: exact floats in any order of evaluation, and a budget of parameters.

The budget is a formula in K contexts, t label and fingerprint bits, n tokens, ω token ids; ℓ = bits(K) + bits(n):

    40·(t + 1)·(⌊√K⌋ + 1)  +  38·(t + 1)·ℓ  +  2·ℓ²  +  36·(t + 1)²  +  ω·W,    W = (t + 1)·(2 + ⌊bits(K)/4⌋) + 4

Buckets and their selector take √K, hash chains and scans take ℓ, and the embedding table ω rows of the stream's width.
The first four terms were fitted to the sizes of 96 float64 plans (K up to 8,000), checked on five larger ones (K up to
100,000, n up to 4,000; one was 11 % above the fit), and the constants were then raised by about 45 %. Ten memories that
took no part in this (words of a page of prose, all bit strings, one moving symbol, prefixes of one letter, all labels
different, permutations, with abstain_bits, drawn rows) were built and have 0.28 to 0.49 of the whole budget. None of
this is a proof: the builder keeps the budget or raises a BuildError that says so. float32, objective=speed, vectors,
and prefixes without positions have no such formula, and no number is promised for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt
from typing import Any

from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.errors import OptionError
from byheart.ir.size import Claim
from byheart.paper import Ref
from byheart.theory.promises import choice, promises
from byheart.theory.promises.ks25 import token_id_count

THEOREM = Ref("byheart", "float-native Transformer")


def native_budget(contexts: int, targets: int, length: int, ids: int) -> int:
    """The most parameters of a float64 memory of symbols.

    >>> native_budget(100_000, 1, 8, 0), native_budget(1000, 8, 8, 100)
    (27982, 23616)
    """
    logs = contexts.bit_length() + length.bit_length()
    width = (targets + 1) * (2 + contexts.bit_length() // 4) + 4
    memory = 40 * (targets + 1) * (isqrt(contexts) + 1) + 38 * (targets + 1) * logs + 2 * logs**2
    return memory + 36 * (targets + 1) ** 2 + ids * width


@promises("native")
def native(dataset: Dataset, options: Mapping[str, Any]) -> Claim:
    """Every float evaluation of the network is exact, whatever the order of its sums."""
    dtype = choice(options, "dtype", "float64", "float32")
    objective = choice(options, "objective", "size", "speed")
    fingerprint = options.get("abstain_bits", 0)
    if type(fingerprint) is not int or not 0 <= fingerprint <= 32:
        raise OptionError(f"abstain_bits={fingerprint!r} is not in 0 … 32")
    claim = Claim(THEOREM, properties=(f"exact in any order: {dtype}",))
    encoder = dataset.encoder
    prefixes = encoder.task is Task.CAUSAL and not encoder.positions
    if dtype != "float64" or objective != "size" or encoder.symbols is None or prefixes:
        return claim
    targets = max(1, (dataset.C - 1).bit_length()) + fingerprint
    most = native_budget(len(dataset.contexts), targets, dataset.n, token_id_count(dataset))
    return Claim(
        THEOREM,
        {"parameters": most},
        {"parameters": "40(t+1)(√K+1) + 38(t+1)ℓ + 2ℓ² + 36(t+1)² + ω·W, see docs/native.md"},
        properties=claim.properties,
    )
