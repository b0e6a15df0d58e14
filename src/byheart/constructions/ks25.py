"""KS25's main theorem: a Transformer with one averaging layer and O(sqrt(N)) parameters that knows N sequences."""

from __future__ import annotations

from byheart.bounds import theorems
from byheart.bounds.theorems import Setting
from byheart.bounds.upper import Promise, label_bits
from byheart.constructions._base import Construction, register
from byheart.constructions.ks25_claims import claim, measured_promise, one_attention
from byheart.constructions.ks25_fields import measured_fields, paper_fields
from byheart.constructions.ks25_layers import PLAIN_STREAM, averaging, input_map, label_layers, token_layers
from byheart.constructions.ks25_options import ATTENTION, SHARED, Style
from byheart.constructions.ks25_parts import Choice, Memory, class_labels, code_tokens, context_keys, setting_of
from byheart.data.dataset import Dataset
from byheart.data.task import Task
from byheart.gadgets.residual_scan import DENSE
from byheart.ir.layers import Attention, Kind, Layer
from byheart.ir.network import Decode, Network, Read, Readout
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress

WIDTH = 14
THEOREM = Ref("KS25", "Theorem B.1")
COROLLARY = Ref("KS25", "Corollary 4.1")


def token_fields(setting: Setting, style: Style, hidden: int = DENSE) -> Choice:
    """How the token memory's words are divided: R_1 and C_phi of the proof, or what the data needs."""
    if not style.as_in_the_paper:
        return lambda keys, labels: measured_fields(style, keys, labels, hidden)
    bits = label_bits(theorems.token_labels(setting.N))
    return lambda keys, labels: paper_fields(style, keys, setting.N, setting.tokens.key_bits, bits)


def label_fields(setting: Setting, style: Style, hidden: int = DENSE) -> Choice:
    """How the label memory's words are divided: R_2 and C of the proof, or what the data needs."""
    if not style.as_in_the_paper:
        return lambda keys, labels: measured_fields(style, keys, labels, hidden)
    bits = label_bits(setting.C)
    return lambda keys, labels: paper_fields(style, keys, setting.contexts, setting.attended.key_bits, bits)


def finished(dataset: Dataset, stages: list[tuple[str, tuple[Layer, ...]]]) -> Network:
    """The network of these stages, read as the task asks; label 0 is no class."""
    read = {Task.NEXT_TOKEN: Read.LAST, Task.SEQ_TO_SEQ: Read.EACH, Task.SET: Read.POOLED}[dataset.encoder.task]
    layers = tuple(layer for _, part in stages for layer in part)
    readout = Readout(Decode.VALUE, classes=dataset.C, offset=1)
    return Network(layers, read, readout, tuple((name, len(part)) for name, part in stages))


def theorem_promise(dataset: Dataset, setting: Setting, style: Style) -> Promise:
    """Theorem B.1, or Corollary 4.1 for one label per token."""
    statement = theorems.seq_to_seq if dataset.encoder.task is Task.SEQ_TO_SEQ else theorems.next_token
    return statement(
        setting.N,
        setting.n,
        setting.d,
        setting.C,
        r_squared=setting.r_squared,
        delta_squared=setting.delta_squared,
        form=style.form,
    )


@register(
    "ks25",
    summary="one averaging layer between two bit-extracting memories: O(sqrt(N)) parameters, width 14",
    ref=THEOREM,
    tasks=(Task.NEXT_TOKEN, Task.SEQ_TO_SEQ),
    options=(*SHARED, ATTENTION),
)
@implements(
    THEOREM,
    statement="N consistently labelled sequences are memorized by a Transformer of width 14 with one averaging layer and "
    "depth O(sqrt(N log N) + sqrt(N / log N)·log max(R, C)).",
    test="tests/constructions/test_ks25.py",
)
@implements(Ref("KS25", "Theorem 4.1"), "Theorem B.1 without its constants.", "tests/constructions/test_ks25.py")
@implements(
    COROLLARY,
    statement="One label per token: width 14 and depth O(sqrt(nN)) up to logarithms.",
    test="tests/constructions/test_ks25.py",
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
    setting = setting_of(dataset)
    with progress.stage("building ks25", total=3) as stage:
        code = code_tokens(dataset, style)
        token = Memory.of(code.line.floors, code.labels, token_fields(setting, style))
        stage.advance()
        keys = context_keys(code.labels, code.line, code.sums, dataset, style)
        label = Memory.of(keys.keys, class_labels(dataset), label_fields(setting, style))
        stage.advance()
        averaged: tuple[Attention, ...] = (averaging(style, Kind(attention), dataset.n),)
        looked_up = label_layers(style, keys.weights, keys.bias, label.pieces, PLAIN_STREAM)
        network = finished(
            dataset,
            [
                ("E_in", (input_map(style, code.line),)),
                ("token code", token_layers(style, code.line, token.pieces, PLAIN_STREAM, DENSE)),
                ("averaging", averaged),
                ("label memory", looked_up[:-1]),
                ("E_out", looked_up[-1:]),
            ],
        )
        stage.advance()
    ref = COROLLARY if dataset.encoder.task is Task.SEQ_TO_SEQ else THEOREM
    if style.as_in_the_paper:
        promise = theorem_promise(dataset, setting, style)
    else:
        points, average = dataset.inputs.points.count, one_attention(setting, style)
        promise = measured_promise(setting, style, token, label, points, WIDTH, average)
    return Construction(
        network,
        claim(ref, style, promise),
        {"form": form, "constants": constants, "attention": attention},
        notes=(
            f"{sum(label > 0 for label in code.labels)} of {dataset.inputs.points.count} tokens tell the sequences apart",
            f"token memory: {token.fields}; label memory: {label.fields}",
        ),
    )
