"""ks25 on token ids: an embedding table replaces the token memory."""

from __future__ import annotations

from fractions import Fraction

from byheart.build._base import SYMBOLS, Construction, register
from byheart.build.ks25.construction import WIDTH, finished, label_stages
from byheart.build.ks25.layers import PLAIN_STREAM, averaging, label_layers, place, stream
from byheart.build.ks25.parts import (
    ATTENTION,
    SHARED,
    BuildStyle,
    Choice,
    KeyLookup,
    PartLimit,
    class_labels,
    context_keys,
    measured_fields,
    multiset_index,
    paper_fields,
)
from byheart.build.ks25.sequence_ids import number_tokens
from byheart.build.shared.projection import KeyLine
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.errors import AssumptionError
from byheart.ir.layers import Embedding, Kind, Matrix
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress
from byheart.theory.guarantees.ks25 import id_part, setting_of, token_id_count
from byheart.theory.rounding import PI_UP
from byheart.theory.upper import DENSE, PointSet, label_bits

THEOREM = Ref("KS25", "Theorem E.1")


def token_ids(dataset: Dataset) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """The strides that make ids of the inputs, the id of every point of the data, and the number omega of all ids.

    With positions on, symbol and position together are the token.
    """
    encoder = dataset.encoder
    if encoder.symbols is None:
        raise AssumptionError(
            SYMBOLS,
            "ks25-embedding looks token ids up in a table, but these tokens are vectors; "
            "use ks25, or give the tokens as symbols (ints or strs)",
        )
    codes = len(encoder.symbols) + 1  # 0 is the padding
    strides = (1, codes) if encoder.positions else (1,)
    rows = dataset.inputs.points.numerators.tolist()
    ids = tuple(sum(stride * number for stride, number in zip(strides, row, strict=True)) for row in rows)
    return strides, ids, token_id_count(dataset)


def label_choice(dataset: Dataset, style: BuildStyle, omega: int) -> Choice:
    """R = 200·sqrt(3)·n^2·N^5·omega·pi of the theorem (with r = delta = 1, which it leaves open), or the data's own."""
    if not style.as_in_the_paper:
        limit = PartLimit(id_part(dataset, style.form, omega), WIDTH)
        return lambda keys, labels: measured_fields(style, keys, labels, DENSE, limit)
    setting = setting_of(dataset)
    norm = 100 * setting.n**2 * setting.N**6 * omega**2 * PI_UP
    attended = PointSet(setting.contexts, 3, norm, Fraction(1, setting.n**2))
    return lambda keys, labels: paper_fields(keys, setting.contexts, attended.key_bits, label_bits(setting.C))


@register(
    "ks25-embedding",
    summary="token ids through an embedding table, then one averaging layer and one memory",
    formula="ks25-embedding, residual",
    description="ks25 on token ids: an embedding table replaces the token memory. Use it when tokens are "
    "symbols and the vocabulary is small.",
    ref=THEOREM,
    tasks=(Task.NEXT_TOKEN, Task.SEQ_TO_SEQ),
    options=(*SHARED, ATTENTION),
    assumptions=(SYMBOLS,),
)
@implements(
    THEOREM,
    statement="With an embedding table of omega ids: O(omega + sqrt(N)) parameters up to logarithms.",
    test="tests/build/ks25/test_embedding.py",
)
@implements(Ref("KS25", "Remark 4.2"), "Embedding layer, see Theorem E.1.", "tests/build/ks25/test_embedding.py")
def build_ks25_embedding(
    dataset: Dataset,
    *,
    seed: int = 0,
    progress: Progress = SILENT,
    form: str = "residual",
    constants: str = "measured",
    attention: str = "uniform",
) -> Construction:
    """The table stores (phi(x), x, 0) for every id x (eq. 135); averaging and the label memory are those of `ks25`."""
    style = BuildStyle.of(form, constants, seed)
    strides, ids, omega = token_ids(dataset)
    with progress.stage("numbering tokens and contexts", total=2) as stage:
        phi, sums = number_tokens(len(ids), multiset_index(dataset), style.constants, style.seed)
        stage.advance()
        keys = context_keys(phi, KeyLine((1,), 0, ids, 1), sums, dataset, style)
        stage.advance()
    label = KeyLookup.of(keys.keys, class_labels(dataset), label_choice(dataset, style, omega))
    number = dict(zip(ids, phi, strict=True))
    at_phi, at_x = place(style, "phi"), place(style, "x")
    table = Matrix.of([{at_phi: number.get(x, 0), at_x: x} for x in range(omega)], len(stream(style)))
    network = finished(
        dataset,
        [
            ("embedding", (Embedding(table, strides),)),
            ("averaging", (averaging(style, Kind(attention), dataset.n),)),
            *label_stages(label_layers(style, keys.weights, keys.bias, label.pieces, PLAIN_STREAM)),
        ],
    )
    return Construction(
        network,
        {"form": form, "constants": constants, "attention": attention},
        (f"{omega} token ids, {sum(v > 0 for v in phi)} of them distinguish the sequences; {label.fields}",),
    )
