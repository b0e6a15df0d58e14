"""Proof that a recall checkpoint answers correctly after every token sequence up to its context.

    layout     recall.json: which channel plays which role; nothing in it is trusted
    words      the embedding: signs, code words, and that the code is linear
    stream     a stream of signs with magnitudes; norms; rows that read few channels
    turning    which dimensions of a head turn together, and which are not rotated
    looking    heads that read a fixed distance, by rotation or by learned positions
    content    heads that match keys by content: least match, sink, greatest other
    updates    what attention and units write, compared with the function channel by channel
    check      the theorem, per type; the only place that makes a certificate

Theorem. For every sequence x_0 = BOS, x_1 ... x_t with t < context (and, with a sliding window, a BOS in every
window), in every engine of the error model, the logit of the oracle's answer exceeds every other by at least the
margin.

*Freshness.* The key that place i holds is the key that place i - 1 looks for. So `stale` at i, which is `found` at i
- 1, is +1 exactly if a place before i holds the same key. Of all holders of a key exactly one is fresh, the first. A
holder that is not fresh has no content in the last layer, and the softmax has one winner: the fresh holder, or, if no
place holds the key, the places of BOS, which all hold the word of NONE. Several winners with one value need no
order.
"""

from byheart.checkpoints.proof.recall.check import RecallCertificate, certify_recall, is_recall

__all__ = ["RecallCertificate", "certify_recall", "is_recall"]
