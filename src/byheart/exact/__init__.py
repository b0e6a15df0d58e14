"""Integers and dyadics of any length, in batches."""

from byheart.exact.number import (
    Dyadic,
    Number,
    as_fraction,
    bit_length,
    check_number,
    dyadic,
    from_float,
    from_fraction,
    parts,
)

__all__ = [
    "Dyadic",
    "Number",
    "as_fraction",
    "bit_length",
    "check_number",
    "dyadic",
    "from_float",
    "from_fraction",
    "parts",
]
