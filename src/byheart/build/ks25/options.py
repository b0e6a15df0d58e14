"""The options that KS25's constructions share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from byheart.build._base import Option
from byheart.build.shared.projection import Constants
from byheart.ir.layers import Kind


class Form(StrEnum):
    """How the feed-forward parts are written."""

    PLAIN = "plain"  # layers of arbitrary depth, as in the proofs
    RESIDUAL = "residual"  # the blocks of eq. (3), with skip connections


@dataclass(frozen=True)
class Style:
    """What the user chose."""

    form: Form
    constants: Constants
    seed: int

    @staticmethod
    def of(form: str, constants: str, seed: int) -> Style:
        return Style(Form(form), Constants(constants), seed)

    @property
    def plain(self) -> bool:
        return self.form is Form.PLAIN

    @property
    def as_in_the_paper(self) -> bool:
        return self.constants is Constants.PAPER


FORM = Option(
    "form",
    str,
    Form.RESIDUAL.value,
    "plain: feed-forward layers of any depth, as in the proof; residual: blocks with skip connections (eq. 3)",
    tuple(form.value for form in Form),
)
CONSTANTS = Option(
    "constants",
    str,
    Constants.MEASURED.value,
    "paper: ranges and group sizes as the theorem states them; measured: what the data needs, fewest parameters",
    tuple(constants.value for constants in Constants),
)
ATTENTION = Option(
    "attention",
    str,
    Kind.UNIFORM.value,
    "the averaging layer as uniform attention (eq. 39), or as softmax (eq. 2) or hardmax (eq. 12) with zero keys",
    tuple(kind.value for kind in Kind),
)
SHARED = (FORM, CONSTANTS)
