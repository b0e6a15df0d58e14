"""Rows of padding: whatever they attend to, their numbers are finite, in every layer.

Nothing reads a row of padding: its weight is 0 in every other row. But 0 * inf and 0 * NaN are NaN, so all keys and
values of padding must be finite. What such a row attends to is the engine's choice. A fully masked row of eager
Transformers mixes all rows, later ones too, since its scores are all one number; in float16 they are not quite one
number, and the row mixes some of them. Other kernels give such a row zeros. So the claim here is about *any row*: its
token, position and mask are arbitrary, and every head returns any convex combination of the values of any rows, or
zero. Ordinary rows are such rows too, so values of all rows are enclosed at once.

*Mixtures.* A row may show one symbol of a part of `Bounds`, as elsewhere, or any convex combination of the part's rows.
Every head has its own one. Linear maps keep this form, and the extreme values are those of symbols.

*Norms.* A normed vector is factor times the stream; its length is at most the root of its size, whatever the stream.

*MLPs.* |act(g) u| is at most a convex, increasing function M of the pre-activation g (`_Majorant`). So a sum of
|weight| M(g) over units, as a function of mixtures and of the norm's factor, is largest for single symbols at an end of
the factor: a row that mixes windows moves no more than one that shows the worst window. What the units write is the
sum of their vectors with coefficients whose absolute sum is bounded in the same way: a mixture of multiples of those
vectors, so the next layer sees symbols again.

Cost: tables of symbols by channels for every head and of symbols by units for every MLP, in float16. Other types have
so much room that hulls are enough.
"""

from byheart.checkpoints.proof.padding.rows import PaddingRows, padding_gap

__all__ = ["PaddingRows", "padding_gap"]
