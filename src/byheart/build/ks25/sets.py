"""Deep sets that store multisets of different sizes: number the elements, add, look the sum up."""

from __future__ import annotations

from byheart.build._base import Construction, register
from byheart.build.ks25.construction import finished, label_stages, token_choice
from byheart.build.ks25.layers import input_map, label_layers, stream, token_layers
from byheart.build.ks25.parts import (
    SHARED,
    BuildStyle,
    Choice,
    KeyLookup,
    PartLimit,
    class_labels,
    code_tokens,
    measured_fields,
    paper_fields,
    set_keys,
)
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.ir.layers import Pool
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress
from byheart.theory.guarantees.ks25 import context_part, setting_of
from byheart.theory.rounding import PI_UP
from byheart.theory.upper import RELAXED, PointSet, label_bits

THEOREM = Ref("KS25", "Theorem D.1")
# The theorem's width.
WIDTH = 12
POOLED = ("phi",)


def sums_choice(dataset: Dataset, style: BuildStyle) -> Choice:
    """How the label memory's words are divided: R_rho = 80·M·N^5·pi (eq. 120) and C, or as the data requires."""
    if not style.as_in_the_paper:
        limit = PartLimit(context_part(dataset, style.form), WIDTH)
        return lambda keys, labels: measured_fields(style, keys, labels, RELAXED, limit)
    setting = setting_of(dataset)
    sums = PointSet(setting.N, 1, 16 * setting.n**2 * setting.N**6 * PI_UP, 1)
    return lambda keys, labels: paper_fields(keys, setting.N, sums.key_bits, label_bits(setting.C))


@register(
    "ks25-sets",
    summary="deep sets: every element gets a number, the sum of a multiset is looked up; width 12",
    formula="ks25-sets, residual",
    description="ks25 for sets: a sum replaces attention.",
    ref=THEOREM,
    tasks=(Task.SET,),
    options=SHARED,
)
@implements(
    THEOREM,
    statement="N distinct multisets of at most M elements are memorized by a deep set of width 12 and depth "
    "O(sqrt(N log N) + sqrt(N / log N)·log max(R, C)).",
    test="tests/build/ks25/test_sets.py",
)
@implements(Ref("KS25", "Remark 4.1"), "Deep sets, see Theorem D.1.", "tests/build/ks25/test_sets.py")
def build_ks25_sets(
    dataset: Dataset,
    *,
    seed: int = 0,
    progress: Progress = SILENT,
    form: str = "residual",
    constants: str = "measured",
) -> Construction:
    """phi on every element, the sum of the streams, rho on the sum.

    Multisets of different cardinality have different sums because the repaired Lemma B.2 adds no shift. With skip
    connections the scan needs one more block per entry, which keeps the hidden size at 12.
    """
    style = BuildStyle.of(form, constants, seed)
    with progress.stage("numbering elements and multisets", total=1) as stage:
        code = code_tokens(dataset, style)
        keys = set_keys(code.sums[dataset.contexts.multiset], style)
        stage.advance()
    token = KeyLookup.of(code.line.floors, code.labels, token_choice(dataset, style, RELAXED, WIDTH))
    label = KeyLookup.of(keys.keys, class_labels(dataset), sums_choice(dataset, style))
    width = 1 if style.plain else len(stream(style))
    looked_up = label_layers(style, keys.weights, keys.bias, label.pieces, POOLED, RELAXED)
    network = finished(
        dataset,
        [
            ("E_in", (input_map(style, code.line),)),
            ("phi", token_layers(style, code.line, token.pieces, POOLED, RELAXED)),
            ("sum", (Pool(width),)),
            *label_stages(looked_up),
        ],
    )
    return Construction(
        network,
        {"form": form, "constants": constants},
        (f"phi: {token.fields}; rho: {label.fields}",),
    )
