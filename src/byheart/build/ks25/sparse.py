"""Averaging with O(n) connections: a global token collects the sum and hands it out."""

from __future__ import annotations

from byheart.build._base import Construction, register
from byheart.build.ks25.claims import claim, measured_promise
from byheart.build.ks25.layers import head_layer, stream
from byheart.build.ks25.options import ATTENTION, SHARED, Style
from byheart.build.ks25.transformer import WIDTH, contents_of, memories_of, transformer
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.ir.layers import GlobalToken, Kind, Layer, Pattern
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress
from byheart.theory import theorems
from byheart.theory.theorems import Setting, attention_layer
from byheart.theory.upper import Promise

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


def star_connections(n: int) -> int:
    """Pairs (query, key) of both layers: (n + n + 1) + (2n + 1).

    >>> star_connections(10)
    42
    """
    return 4 * n + 2


def star_promise(setting: Setting, style: Style) -> Promise:
    """Two attention layers and the stream of the global token."""
    width = len(stream(style))
    return attention_layer(setting.n, style.form, layers=2).then(
        Promise(width, 0, width, (2 * setting.n + 4).bit_length())
    )


@register(
    "ks25-sparse",
    summary="ks25 with two attention layers over a star: 4n + 2 connections instead of n^2",
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
    setting = contents.setting
    token, label = memories_of(contents)
    network = transformer(contents, token, label, star(style, Kind(attention), dataset.n))
    if style.as_in_the_paper:
        promise = theorems.sparse(
            setting.N,
            setting.n,
            setting.d,
            setting.C,
            r_squared=setting.r_squared,
            delta_squared=setting.delta_squared,
            contexts=setting.contexts,
            form=style.form,
        )
    else:
        promise = measured_promise(setting, style, token, label, contents.points, WIDTH, star_promise(setting, style))
    return Construction(
        network,
        claim(REMARK, style, promise, properties=(f"connections: {star_connections(dataset.n)}",)),
        {"form": form, "constants": constants, "attention": attention},
        (contents.note(), f"{star_connections(dataset.n)} connections, averaging over all would have {dataset.n**2}"),
    )
