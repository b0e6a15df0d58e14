"""Recall as stock decoders: a function of every token sequence, in four layers (six where branches are parallel).

    positions    frequencies of rotary positions with their scaling, and which dimensions of a head turn with which
    matching     scores by content: which frequencies carry key bits, how large queries must be
    looking      scores by distance: heads that read one or two places back, at any context
    channels     which residual channel holds what
    stages       the attention maps and MLP units, over channels of +1 and -1
    gated        the stages as decoders with RMSNorm, gates and rotary positions
    plain        the stages as decoders with LayerNorm and biases
"""
