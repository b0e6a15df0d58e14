"""What a graded memory counts, and how far a network is from it."""

from __future__ import annotations

from dataclasses import dataclass

from byheart.data.tokens.script import Edits


@dataclass(frozen=True)
class Counted:
    """A document that the model counts; `role` is "member" or "background", `weights` has one number per level."""

    name: str
    ids: tuple[int, ...]
    copies: int
    weights: tuple[float, ...]
    role: str = "member"
    edits: Edits | None = None


@dataclass(frozen=True)
class Distance:
    """The measured distance between a network and its specification, over `places` places."""

    nats: float
    kl: float
    places: int
    dtype: str

    def __str__(self) -> str:
        return (
            f"measured in {self.dtype} at {self.places:,} places: at most {self.nats:.1e} nats per log-probability, "
            f"KL at most {self.kl:.1e}"
        )
