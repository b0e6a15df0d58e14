"""byheart's smallest exact memory: a whole Transformer whose stream is one number."""

from byheart.build.compact import construction as construction
