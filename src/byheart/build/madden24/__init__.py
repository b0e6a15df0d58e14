"""M24: one-layer decoders for next-token distributions."""

from byheart.build.madden24 import recipe as recipe
