"""KS25's main theorem: a Transformer with one averaging layer and O(sqrt(N)) parameters that knows N sequences."""

from __future__ import annotations

from byheart.build._base import Construction, register
from byheart.build.ks25.layers import averaging
from byheart.build.ks25.options import ATTENTION, SHARED, Style
from byheart.build.ks25.transformer import contents_of, memories_of, transformer
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.ir.layers import Kind
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress

THEOREM = Ref("KS25", "Theorem B.1")
COROLLARY = Ref("KS25", "Corollary 4.1")


@register(
    "ks25",
    summary="one averaging layer between two bit-extracting memories: O(sqrt(N)) parameters, width 14",
    formula="ks25, residual",
    words="One averaging layer between two bit-extracting memories: a token memory gives few tokens a number whose "
    "sums tell rows apart, averaging brings the sum to every token, and a label memory looks the context up. "
    "The square root of N, and the reason why one attention layer is enough.",
    ref=THEOREM,
    tasks=(Task.NEXT_TOKEN, Task.SEQ_TO_SEQ),
    options=(*SHARED, ATTENTION),
)
@implements(
    THEOREM,
    statement="N consistently labelled sequences are memorized by a Transformer of width 14 with one averaging layer "
    "and depth O(sqrt(N log N) + sqrt(N / log N)·log max(R, C)).",
    test="tests/build/ks25/test_construction.py",
)
@implements(Ref("KS25", "Theorem 4.1"), "Theorem B.1 without its constants.", "tests/build/ks25/test_construction.py")
@implements(
    COROLLARY,
    statement="One label per token: width 14 and depth O(sqrt(nN)) up to logarithms.",
    test="tests/build/ks25/test_construction.py",
)
def build_ks25(
    dataset: Dataset,
    *,
    seed: int = 0,
    progress: Progress = SILENT,
    form: str = "residual",
    constants: str = "measured",
    attention: str = "uniform",
) -> Construction:
    """E_in, token code, averaging, label memory, E_out.

    The token code gives at most N - 1 tokens a positive integer phi, so that the sums of phi tell the sequences apart;
    averaging brings that sum to every token; (phi, x, sum) is the context, and the label memory looks it up.
    Departures from the proof: the head multiplies by n, so that the id is an integer; x is carried through the
    token memory, which needs it anyway, so the plain form has width 12 instead of 14.
    """
    style = Style.of(form, constants, seed)
    contents = contents_of(dataset, style, progress)
    token, label = memories_of(contents)
    network = transformer(contents, token, label, (averaging(style, Kind(attention), dataset.n),))
    return Construction(
        network,
        {"form": form, "constants": constants, "attention": attention},
        (contents.note(), f"token memory: {token.fields}; label memory: {label.fields}"),
    )
