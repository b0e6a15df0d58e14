"""M24: one-layer decoders for next-token distributions."""

from byheart.build.madden24 import construction as construction
