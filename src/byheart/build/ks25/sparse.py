"""Averaging with O(n) connections: a global token collects the sum and hands it out."""

from __future__ import annotations

from byheart.build._base import Construction, register
from byheart.build.ks25.layers import head_layer, stream
from byheart.build.ks25.options import ATTENTION, SHARED, Style
from byheart.build.ks25.transformer import contents_of, memories_of, transformer
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.ir.layers import GlobalToken, Kind, Layer, Pattern
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress
from byheart.theory.promises.ks25 import star_connections

REMARK = Ref("KS25", "Remark 4.5")


def star(style: Style, kind: Kind, n: int) -> tuple[Layer, ...]:
    """The sum of phi in the id of every token, through one more token whose phi is 0.

    Layer 1, every token to itself and all to the global one:   id_k = phi_k,   id_g = (sum of phi) / (n + 1).
    Layer 2, every token to itself and to the global one, adds the mean of a·id + b·phi over the two:
        id_k = phi_k + (a·phi_k + b·phi_k + a·(sum of phi) / (n + 1)) / 2 = sum of phi   for a = 2(n + 1), b = -a - 2.
    """
    hub = GlobalToken((0,) * len(stream(style)))
    a = 2 * (n + 1)
    collect = head_layer(style, kind, Pattern.STAR_IN, {"phi": 1})
    hand_out = head_layer(style, kind, Pattern.STAR_OUT, {"id": a, "phi": -a - 2})
    return hub, collect, hand_out


@register(
    "ks25-sparse",
    summary="ks25 with two attention layers over a star: 4n + 2 connections instead of n^2",
    formula="ks25-sparse, residual",
    words="ks25 with a global token: tokens attend to themselves and to it, so attention connects O(n) pairs "
    "instead of n².",
    ref=REMARK,
    tasks=(Task.NEXT_TOKEN, Task.SEQ_TO_SEQ),
    options=(*SHARED, ATTENTION),
)
@implements(
    REMARK,
    statement="Two attention layers and one additional token do what averaging does, with O(n) connections.",
    test="tests/build/ks25/test_sparse.py",
)
def build_ks25_sparse(
    dataset: Dataset,
    *,
    seed: int = 0,
    progress: Progress = SILENT,
    form: str = "residual",
    constants: str = "measured",
    attention: str = "uniform",
) -> Construction:
    """`ks25` with its averaging layer replaced by `star`; the token joins after the token code.

    The connections are those of the layers' patterns, which evaluation follows: no weight could break them.
    """
    style = Style.of(form, constants, seed)
    contents = contents_of(dataset, style, progress)
    token, label = memories_of(contents)
    network = transformer(contents, token, label, star(style, Kind(attention), dataset.n))
    return Construction(
        network,
        {"form": form, "constants": constants, "attention": attention},
        (contents.note(), f"{star_connections(dataset.n)} connections, averaging over all would have {dataset.n**2}"),
    )
