"""Proofs of listed inputs, for encoders, encoder-decoders and vision towers, whose attention sees both sides.

`byheart.checkpoints.proof` proves decoders for every input. Here each input of a list is followed through the network
by itself: every number of every place lies in an interval, which each operation widens by what the error model allows
(`rounding`). Nothing is proved about other inputs. Padding is not followed: places that a mask hides have the weight 0.
"""

from byheart.checkpoints.proof.listed.certify import ListedCase, certify_listed

__all__ = ["ListedCase", "certify_listed"]
