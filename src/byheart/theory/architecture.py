"""The architecture of KS25 eq. (4), as the six numbers that its lower bounds need."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields

from byheart.errors import OptionError


@dataclass(frozen=True)
class Architecture:
    """d input numbers, stream m, head size s, H heads, q hidden units, L blocks of attention and feed-forward.

    KS25 counts 2(m+1)q per feed-forward layer, eq. (92); weights and biases of eq. (3) are 2mq + q + m.

    >>> small = Architecture.parse("8,9,1,1,10,40")
    >>> small.block, small.parameters, small.parameters_without_scores
    (235, 9481, 8761)
    """

    d: int
    m: int
    s: int
    H: int
    q: int
    L: int

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or value < 1:
                raise OptionError(f"architecture {astuple(self)}: {field.name} = {value!r} must be an integer >= 1")

    @classmethod
    def parse(cls, text: str) -> Architecture:
        """From "d,m,s,H,q,L"."""
        parts = text.split(",")
        try:
            numbers = [int(part) for part in parts]
        except ValueError:
            numbers = []
        if len(numbers) != 6:
            raise OptionError(f"architecture {text!r}: give six integers d,m,s,H,q,L, such as 8,9,1,1,10,40")
        return cls(*numbers)

    def __str__(self) -> str:
        return ",".join(map(str, astuple(self)))

    @property
    def block(self) -> int:
        """Parameters of one block: K, Q, V, O of every head, W₁, b₁, W₂, b₂."""
        return 4 * self.m * self.s * self.H + 2 * self.m * self.q + self.q + self.m

    @property
    def block_without_scores(self) -> int:
        """The same without K and Q, which drop out when all tokens are equal."""
        return self.block - 2 * self.m * self.s * self.H

    @property
    def parameters(self) -> int:
        """W = md + LP + m: E_in, the blocks, E_out."""
        return self.m * self.d + self.L * self.block + self.m

    @property
    def parameters_without_scores(self) -> int:
        return self.m * self.d + self.L * self.block_without_scores + self.m

    @property
    def summed_without_scores(self) -> int:
        """W̄′ = W′ + Σ_l (parameters that the l-th feed-forward layer's signs depend on): Theorem 4.2."""
        m, L = self.m, self.L
        P = self.block_without_scores
        return self.parameters_without_scores + m * self.d * L + P * L * (L + 1) // 2 - L * m * (self.q + 1)

    @property
    def summed(self) -> int:
        """W̄ of eq. (91), Theorem 4.3."""
        m, L = self.m, self.L
        signs = 4 * m * self.s * self.H + (m + 1) * self.q
        return self.parameters + 2 * m * self.d * L + self.block * L * (L - 1) + L * signs
