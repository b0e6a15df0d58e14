"""What KS25 promises about its networks, from the formulas in `byheart.theory` and never from a network.

With constants="paper" the numbers are the theorem's for N, n, d, C, r and delta. With constants="measured" they are the
same sums with the data's own key and label lengths and the chosen group size in place of the theorem's.
"""

from __future__ import annotations

from collections.abc import Mapping

from byheart.build.ks25.options import Style
from byheart.build.ks25.parts import Lookup
from byheart.ir.claim import Claim
from byheart.paper import Ref
from byheart.theory.theorems import Setting, attention_layer, output_map
from byheart.theory.upper import Cloud, Promise, dense_blocks, explicit_memory, input_map

MEASURED_FORMULAS = {
    "width": "the theorem's width",
    "depth": "the theorem's sum with the data's own groups m, entries K, key bits rho and label bits c",
    "parameters": "depth times a dense layer or block of the promised width, plus the input and output maps",
    "max_bits": "eq. (111) with the data's own K, rho and c: K·max(rho, c) + rho, or the projection's bits "
    "(Lemma C.2, or twice the length of the largest key)",
}
PAPER_FORMULAS = {
    "width": "the theorem's width",
    "depth": "eq. (110) for each memory: 2 + (3m + 2) + (3K·max(rho, c) + 2K + 2), m = ⌈sqrt(N log N)⌉, K = ⌈N/m⌉ "
    "(with skip connections 1 + m + K·max(rho, c) + 3), plus the attention layers",
    "parameters": "depth times a dense layer or block of the promised width, plus the input and output maps",
    "max_bits": "eq. (111): K·max(rho, c) + rho, or the projection's bits",
}


def claim(
    ref: Ref,
    style: Style,
    promise: Promise,
    width: int | None = None,
    properties: tuple[str, ...] = (),
    formulas: Mapping[str, str] | None = None,
) -> Claim:
    """A promise as the checker wants it; `width` and `formulas` where the theorem has its own.

    What is assumed beside consistency: nothing. r >= 1 and delta <= 1 are seen to by weakening the promise.
    """
    bounds = {
        "width": promise.width if width is None else width,
        "depth": promise.depth,
        "parameters": promise.parameters,
        "max_bits": promise.max_bits,
    }
    words = {**PAPER_FORMULAS, **(formulas or {})} if style.as_in_the_paper else MEASURED_FORMULAS
    return Claim(ref, bounds, dict(words), properties=properties)


def memory_promise(memory: Lookup, style: Style, width: int) -> Promise:
    """Stages I to III as the lemmas count them; stage I only once, however many pieces there are.

    The measured projection is chosen among those with no longer weights than the paper's, or than twice the range.
    """
    fields = memory.fields
    total = Promise(width, 0, 0, 2 * memory.range_bits)
    for piece, m in enumerate(memory.group_counts or (0,)):
        total = total.then(
            explicit_memory(
                m,
                fields.entries,
                fields.key_bits,
                fields.label_bits,
                form=style.form,
                width=width,
                projection=0 if piece else 2,
            )
        )
    return total


def relaxed(promise: Promise, style: Style, entries: int) -> Promise:
    """One more block per entry, the price of 12 hidden units instead of 14; plain layers have width 12 anyway."""
    if style.plain:
        return promise
    return Promise(promise.width, promise.depth + entries, promise.parameters + dense_blocks(entries), promise.max_bits)


def measured_promise(
    setting: Setting,
    style: Style,
    token: Lookup | None,
    label: Lookup,
    points: int,
    width: int,
    mixing: Promise | None,
) -> Promise:
    """Both memories, the maps around them, and attention (None for deep sets, whose sum has no parameters)."""
    attended = setting.attended
    parts = [input_map(attended.dimension, style.form, width, attended.projection_bits)]
    if token is not None:
        tokens = Cloud(points, setting.d, setting.r_squared, setting.delta_squared)
        parts += [memory_promise(token, style, width), input_map(setting.d, style.form, width, tokens.projection_bits)]
    if mixing is not None:
        parts.append(mixing)
    return memory_promise(label, style, width).then(*parts, output_map(width))


def one_attention(setting: Setting, style: Style) -> Promise:
    return attention_layer(setting.n, style.form)
