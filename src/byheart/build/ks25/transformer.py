"""KS25's Transformer from its parts: what it has to know, how its memories are divided, how tokens are mixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from byheart.build.ks25.fields import Room, measured_fields, paper_fields
from byheart.build.ks25.layers import PLAIN_STREAM, input_map, label_layers, token_layers
from byheart.build.ks25.options import Style
from byheart.build.ks25.parts import (
    Choice,
    ContextKeys,
    Lookup,
    class_labels,
    code_tokens,
    context_keys,
)
from byheart.build.ks25.sequence_ids.multiset_separation import TokenCode
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.ir.layers import Layer
from byheart.ir.network import Decode, Network, Read, Readout
from byheart.progress import Progress
from byheart.theory import theorems
from byheart.theory.promises.ks25 import context_part, setting_of, token_part
from byheart.theory.theorems import Setting
from byheart.theory.upper import DENSE, label_bits

WIDTH = 14


@dataclass(frozen=True, eq=False)
class Contents:
    """What is to be known: numbers for tokens, keys and labels for contexts."""

    dataset: Dataset
    style: Style
    setting: Setting
    code: TokenCode
    keys: ContextKeys
    labels: tuple[int, ...]

    @property
    def points(self) -> int:
        return self.dataset.inputs.points.count

    def note(self) -> str:
        """How many tokens carry the sequence ids, for people."""
        return f"{sum(label > 0 for label in self.code.labels)} of {self.points} tokens tell the sequences apart"


def contents_of(dataset: Dataset, style: Style, progress: Progress) -> Contents:
    """Lemma B.3 on the tokens, then keys for the contexts (phi, x, id)."""
    with progress.stage("numbering tokens and contexts", total=2) as stage:
        code = code_tokens(dataset, style)
        stage.advance()
        keys = context_keys(code.labels, code.line, code.sums, dataset, style)
        stage.advance()
    return Contents(dataset, style, setting_of(dataset), code, keys, class_labels(dataset))


def token_choice(dataset: Dataset, style: Style, hidden: int = DENSE, width: int = WIDTH) -> Choice:
    """How the token memory's words are divided: R_1 and C_phi of the proof, or what the data needs."""
    if not style.as_in_the_paper:
        room = Room(token_part(dataset, style.form), width)
        return lambda keys, labels: measured_fields(style, keys, labels, hidden, room)
    setting = setting_of(dataset)
    bits = label_bits(theorems.token_labels(setting.N))
    return lambda keys, labels: paper_fields(keys, setting.N, setting.tokens.key_bits, bits)


def label_choice(dataset: Dataset, style: Style) -> Choice:
    """How the label memory's words are divided: R_2 and C of the proof, or what the data needs."""
    if not style.as_in_the_paper:
        room = Room(context_part(dataset, style.form), WIDTH)
        return lambda keys, labels: measured_fields(style, keys, labels, DENSE, room)
    setting = setting_of(dataset)
    return lambda keys, labels: paper_fields(keys, setting.contexts, setting.attended.key_bits, label_bits(setting.C))


def memories_of(
    contents: Contents, token: Choice | None = None, label: Choice | None = None, piece: int | None = None
) -> tuple[Lookup, Lookup]:
    """The token memory and the label memory; `piece` is the number of keys per piece where bits are limited."""
    token = token or token_choice(contents.dataset, contents.style)
    label = label or label_choice(contents.dataset, contents.style)
    return (
        Lookup.of(contents.code.line.floors, contents.code.labels, token, piece),
        Lookup.of(contents.keys.keys, contents.labels, label, piece),
    )


def transformer(contents: Contents, token: Lookup, label: Lookup, mixing: tuple[Layer, ...]) -> Network:
    """E_in, token code, mixing, label memory, E_out."""
    style, code, keys = contents.style, contents.code, contents.keys
    return finished(
        contents.dataset,
        [
            ("E_in", (input_map(style, code.line),)),
            ("token code", token_layers(style, code.line, token.pieces, PLAIN_STREAM)),
            ("averaging", mixing),
            *label_stages(label_layers(style, keys.weights, keys.bias, label.pieces, PLAIN_STREAM)),
        ],
    )


Stage = tuple[str, tuple[Layer, ...]]


def label_stages(layers: tuple[Layer, ...]) -> list[Stage]:
    """The label memory and, as its last layer, E_out."""
    return [("label memory", layers[:-1]), ("E_out", layers[-1:])]


def finished(dataset: Dataset, stages: Sequence[Stage], readout: Readout | None = None) -> Network:
    """The network of these stages, read as the task asks; label 0 is not a class, unless stated otherwise."""
    read = {Task.NEXT_TOKEN: Read.LAST, Task.SEQ_TO_SEQ: Read.EACH, Task.SET: Read.POOLED}[dataset.encoder.task]
    layers = tuple(layer for _, part in stages for layer in part)
    readout = readout or Readout(Decode.VALUE, classes=dataset.C, offset=1)
    return Network(layers, read, readout, tuple((name, len(part)) for name, part in stages))
