"""A paragraph for every construction: what it does, and when to take it."""

from __future__ import annotations

WORDS = {
    "nilsson65": "One hidden layer: all units read the row in the same direction and differ in where they start; their "
    "sum interpolates the labels. Simple and shallow, but it needs a unit per row and every unit reads the whole row. "
    "Take it for tiny tables, or as the textbook's answer.",
    "baum88": "Threshold units in pairs: each pair fires on the rows between two parallel hyperplanes, which are laid "
    "through as many rows of one class as the flattened row has numbers. Few units, and surprisingly small as long as "
    "rows are long and in general position; it grows with N all the same. Thresholds have no gradient.",
    "park21": "The first construction below N: neighbours share a shift that moves them into a table without "
    "collisions, and the table is a list of long words whose bits are read one by one. Grows like N^(2/3). "
    "Reconstructed from the theorem's order of growth.",
    "vardi22": "The optimal feed-forward network: rows are put on a line and cut into groups; the keys and labels of a "
    "group are two long words that are read bit by bit. Grows like the square root of N, but must see the whole row at "
    "once, which costs a column per number of the row.",
    "mahdavi24": "Attention alone: random heads look at the row, and their outputs are solved for. No feed-forward "
    "layer; one layer deep; short weights. Grows like N/n. Take it to see what attention can store by itself.",
    "ks24": "One softmax head of rank one adds the row's Boltzmann mean to each token, which tells all contexts apart; "
    "a hidden layer interpolates the labels. Very shallow and small for few contexts; a hidden unit per context. "
    "Softmax is irrational, so the proof is by enclosures.",
    "kim23": "Attention ranks the tokens: n rounds find the largest token that is left, count it and strike it out, so "
    "that a context becomes a list of numbers; then the feed-forward memory of vardi22. 2n attention layers, the "
    "square root of nN after that. Reconstructed from the theorem's order of growth.",
    "ks25": "One averaging layer between two bit-extracting memories: a token memory gives few tokens a number whose "
    "sums tell rows apart, averaging brings the sum to every token, and a label memory looks the context up. The "
    "square root of N, and the reason why one attention layer is enough.",
    "ks25-sparse": "ks25 with a global token: tokens attend to themselves and to it, so attention connects O(n) pairs "
    "instead of n².",
    "ks25-limited": "ks25 with a limit on the bits of every weight: shorter words, more layers.",
    "ks25-embedding": "ks25 on token ids: an embedding table takes the place of the token memory. Take it when tokens "
    "are symbols and the vocabulary is small.",
    "ks25-sets": "ks25 for sets: a sum takes the place of attention.",
    "madden24": "A one-layer decoder with a neuron per context that stores whole next-token distributions, not only a "
    "label: it needs ω numbers per context. Float64 weights. Take it when the distributions matter.",
    "madden24-average": "The same with averaged tokens in place of attention.",
    "compact": "A stream of one number: folds count parities of a hashed id, and the label is the parity. The smallest "
    "network here; its weights are long integers. Take it by default.",
    "native": "Every weight and every value is exact in float64, whatever the order of evaluation, so the exported "
    "model is bit-exact in PyTorch and ONNX Runtime. Take it to ship.",
    "python dict": "What most people would write. Answers only keys that it has, in constant time.",
    "sorted array": "Packed rows with labels, found by bisection: the smallest ordinary table.",
    "information limit": "The labels alone: what any store of arbitrary labels needs, even if the inputs were free.",
    "trained": "A network of KS25's form that gradient descent found on this data in the time given. It is checked in "
    "floating point, not proved.",
}


def words(name: str, summary: str) -> str:
    return WORDS.get(name, summary)
