"""Statements of the papers that no single function carries: definitions, remarks, figures, open problems.

Together with the labels in the code they make the paper map complete: every definition, lemma, theorem, corollary,
remark and footnote of KS25 and M24 has a row, and so has every equation that something here rests on; those of the main
text that have none are named in another's. A row names the code of the statement, or the reason why there is none.

    >>> from byheart.paper import find
    >>> [entry.status for entry in find("Open Problem")]
    ['out of reach: open; only a weak bound for softmax is known, `byheart.theory.capacity`', 'shown']
"""

from __future__ import annotations

from byheart.paper import Ref, state

IN_WORDS = "in words"  # nothing to compute: a word that the code uses as the paper defines it
CHECKED = "checked on the data"
SHOWN = "shown"

state(
    Ref("KS25", "Section 3.1"),
    "the norm of a vector; in print the square root over its sum of squares is missing (docs/errata-slips.md). r and δ "
    "are kept squared, so that no root is needed",
    IN_WORDS,
    code="byheart.data.separation.separation",
    test="tests/data/test_separation.py",
)
state(
    Ref("KS25", "Section 3.2"),
    "width max(m, sH, q) and depth L of a Transformer; L is our `blocks`, our `depth` counts layers",
    "checked",
    code="byheart.ir.size.measure",
    test="tests/ir/test_layers.py",
)
state(
    Ref("KS25", "Section 3.3"),
    "bit complexity: the longest parameter; total bits besides, the sum of all lengths",
    "checked",
    code="byheart.ir.size.weight_bits",
    test="tests/ir/test_layers.py",
)
state(
    Ref("KS25", "eq. (1)"),
    "hardmax: equal shares among the largest scores, exactly",
    "built",
    code="byheart.ir.attend.shares",
    test="tests/ir/test_ir.py",
)
state(
    Ref("KS25", "eq. (12)"),
    "hard attention, as a kind of layer: attention=hardmax",
    "built",
    code="byheart.ir.layers.Attention",
    test="tests/ir/test_ir.py",
)
state(
    Ref("KS25", "eq. (39)"),
    "uniform attention; softmax and hardmax with zero keys compute the same (attention=softmax|hardmax)",
    "built",
    code="byheart.build.ks25.layers.averaging",
    test="tests/build/ks25/test_ks25.py",
)
state(
    Ref("KS25", "Assumption 4.1"),
    "token-wise (r, δ)-separatedness: r² and δ² of the data, exactly",
    CHECKED,
    code="byheart.data.separation.separation",
    test="tests/data/test_separation.py",
)
state(
    Ref("KS25", "Assumption A.1"),
    "element-wise (r, δ)-separatedness of multisets: the same, for the elements of sets",
    CHECKED,
    code="byheart.data.separation.separation",
    test="tests/data/test_separation.py",
)
state(
    Ref("KS25", "eq. (5)"),
    "consistent labels: equal last tokens in equal multisets have equal labels; (10), (40), (129) and (143) state the "
    "same of their settings. Rows that contradict each other are refused, or skipped and counted",
    CHECKED,
    code="byheart.data.dataset.settle.settle",
    test="tests/data/dataset/test_settle.py",
)
state(
    Ref("KS25", "eq. (6)"),
    "the label at the last token: E_out ∘ F₂ ∘ F^(SA) ∘ F₁ ∘ E_in of a row is y, for every row; what every certificate "
    "of the task next-token decides",
    "built",
    code="byheart.build.ks25.construction.build_ks25",
    test="tests/build/ks25/test_ks25.py",
)
state(
    Ref("KS25", "eq. (11)"),
    "the same at every token k of every row, the task seq-to-seq",
    "built",
    code="byheart.build.ks25.construction.build_ks25",
    test="tests/build/ks25/test_ks25.py",
)
state(
    Ref("KS25", "eq. (13)"),
    "shattering: some parameters for every labelling of the nN tokens. What an architecture cannot shatter is decided; "
    "that it can is never claimed",
    "a number",
    code="byheart.theory.capacity.seq_to_seq_patterns",
    test="tests/theory/test_capacity.py",
)
state(
    Ref("KS25", "after Remark 4.3"),
    "a feed-forward network that reads the row as one vector needs d·n parameters: a weight for each of its numbers "
    "(the argument of Remark 4.3 with dn instead of d), and one for the answer",
    "a number",
    code="byheart.theory.lower.input_parameters",
    test="tests/theory/test_lower.py",
)
for _label, _count, _what in (("Remark 4.4", "N", "Theorem 4.1"), ("Remark 4.6", "nN", "Corollary 4.1")):
    state(
        Ref("KS25", _label),
        f"the other half: the network of {_what} has Õ({_count}) bits in all, parameters times bits of the longest; as "
        "a number, and built networks hold fewer (docs/research/ks25.md, Bits)",
        "a number",
        code="byheart.theory.theorems.transformer",
        test="tests/theory/test_theorems.py",
    )
state(
    Ref("KS25", "eq. (7)"),
    "sums of φ as sequence ids, well separated: here different integers; (8) and (9) are steps of the same outline",
    "built",
    code="byheart.build.ks25.sequence_ids.separate_multisets",
    test="tests/build/ks25/test_sequence_ids.py",
)
state(
    Ref("KS25", "footnote 1"),
    "the outline assumes sequences distinct up to permutations; here equal ones share a multiset, and none is assumed",
    CHECKED,
    code="byheart.data.dataset.contexts.row_multisets",
    test="tests/data/dataset/test_dataset.py",
)
state(
    Ref("KS25", "Definition A.1"),
    "multisets, as numbers: rows with the same tokens in any order have one",
    IN_WORDS,
    code="byheart.data.dataset.contexts.row_multisets",
    test="tests/data/dataset/test_dataset.py",
)
state(
    Ref("KS25", "Definition A.2"),
    "support and cardinality of a multiset: its distinct tokens, and how many tokens a row has",
    IN_WORDS,
    code="byheart.data.dataset.contexts.row_multisets",
    test="tests/data/dataset/test_dataset.py",
)
state(
    Ref("KS25", "Definition B.1"),
    "the restriction of a multiset to A: counts of the distinguishing tokens only",
    IN_WORDS,
    code="byheart.build.ks25.sequence_ids.distinguishing_tokens",
    test="tests/build/ks25/test_sequence_ids.py",
)
_SEARCHED = "partly: byheart chooses integers one after the other and builds no v and no h; a test evaluates them"
for _label, _what, _status in (
    ("eq. (20)", "the direction v of Lemma B.2: with n = 2 some v that satisfy it give two multisets one sum after the "
     "shift f = h + ⌊2N²|S|√π⌋", _SEARCHED),
    ("eq. (23)", "sums of h are at most 2N²|S|√π·M in absolute value: a shift of more than twice this plus √|S| "
     "cancels no difference",
     _SEARCHED),
    ("eq. (31)", "sums of f over restrictions to A, √|A| apart; the printed proof does not imply it, the repair does",
     "partly: sums are 1 apart instead of √|A|"),
    ("eq. (47)", "sums of φ̃ differ by 1 or more. In print the sum over the support lacks the multiplicity m(x), and φ̃ "
     "also has the value 0; the printed proof does not imply it, the repaired Lemma B.2 does", "built"),
    ("eq. (55)", "context ids are 1/n apart, from (47): with n = 3 and one last token the printed proof gives two "
     "contexts one id. In print the lower bound is a minimum of two differences, one of which may be 0; the maximum is "
     "meant", "built"),
):  # fmt: skip
    state(
        Ref("KS25", _label),
        f"{_what}; docs/errata.md",
        _status,
        code="byheart.build.ks25.sequence_ids.token_weights",
        test="tests/build/ks25/test_separation_gap.py",
    )
state(
    Ref("KS25", "eq. (53)"),
    "attention's output (φ̃, F, id) of a token; ours has n times the mean as id, an integer",
    "built",
    code="byheart.build.ks25.layers.averaging",
    test="tests/build/ks25/test_ks25.py",
)
state(
    Ref("KS25", "eq. (140)"),
    "Lemma F.1's chain of pieces, each adds its label to one sum; in print the pieces end one too early "
    "(docs/errata-slips.md)",
    "built",
    code="byheart.build.ks25.residual_memorizer.memorizer_blocks",
    test="tests/build/ks25/test_residual_memorizer.py",
)
state(
    Ref("KS25", "eq. (132)"),
    "Theorem E.1's network returns the label; in print the equation ends before “= y⁽ⁱ⁾”, and r, δ are not defined "
    "(docs/errata-slips.md)",
    "built",
    code="byheart.build.ks25.embedding.build_ks25_embedding",
    test="tests/build/ks25/test_embedding.py",
)
state(
    Ref("KS25", "eq. (142)"),
    "the output of Lemma F.1's chain; in print F̃ has the index i of the point instead of the index j of its piece "
    "(docs/errata-slips.md)",
    "built",
    code="byheart.build.ks25.residual_memorizer.memorizer_blocks",
    test="tests/build/ks25/test_residual_memorizer.py",
)
state(
    Ref("KS25", "eq. (153)"),
    "Lemma G.6 returns label j of the label word; in print the index uses ρ, fields of w have c bits, as (163) has it "
    "(docs/errata-slips.md)",
    "built",
    code="byheart.build.ks25.memorizer.scan_plan",
    test="tests/build/ks25/test_memorizer.py",
)
state(
    Ref("KS25", "eq. (157)"),
    "Lemma G.5 with x and a key read from u: 1 on a match; before it the network's domain is printed as R instead of "
    "R² (docs/errata-slips.md)",
    "partly: the two distances themselves close the gate of eq. (158); the indicator as such is not built",
    code="byheart.build.ks25.memorizer.misses",
    test="tests/build/ks25/test_memorizer.py",
)
for _label, _what in (
    ("eq. (162)", "the scan's output: the sum of the gates of all entries"),
    ("eq. (163)", "the sum where x matches entry j: its label, bits cj + 1 to c(j + 1) of the label word"),
):
    state(
        Ref("KS25", _label),
        _what,
        "built",
        code="byheart.build.ks25.memorizer.scan_plan",
        test="tests/build/ks25/test_memorizer.py",
    )
state(
    Ref("KS25", "eq. (161)"),
    "H starts the scan; in print it has five outputs and G returns the fifth, the sum y makes six "
    "(docs/errata-slips.md)",
    "built",
    code="byheart.build.ks25.memorizer.scan_plan",
    test="tests/build/ks25/test_memorizer.py",
)
state(
    Ref("KS25", "eq. (50)"),
    "the token network (φ̃, F, 0); x is carried, so F needs no separate units",
    "built",
    code="byheart.build.ks25.layers.token_layers",
    test="tests/build/ks25/test_ks25.py",
)
state(
    Ref("KS25", "eq. (52)"),
    "the head that writes the mean of φ̃; ours multiplies by n, so that ids are integers",
    "built",
    code="byheart.build.ks25.layers.averaging",
    test="tests/build/ks25/test_ks25.py",
)
state(
    Ref("KS25", "eq. (61)"),
    "depth of the whole network with one R: log R is at least log R₁, log C₁ and log R₂ (docs/errata-slips.md)",
    "a number",
    code="byheart.theory.theorems.transformer",
    test="tests/theory/test_theorems.py",
)
state(
    Ref("KS25", "eq. (62)"),
    "bits of the longest weight of the whole network, with the same R as (61)",
    "a number",
    code="byheart.theory.theorems.transformer",
    test="tests/theory/test_theorems.py",
)
state(
    Ref("KS25", "eq. (74)"),
    "on every cell the inputs of block l are polynomials of the parameters, by induction over l in [L]; in print "
    "l is in [L - 1] and they are called the inputs of block l - 1 (docs/errata-slips.md)",
    "a number",
    code="byheart.theory.capacity.seq_to_seq_patterns",
    test="tests/theory/test_capacity.py",
)
state(
    Ref("KS25", "eq. (92)"),
    "W = md + L(4msH + 2mq + q + m) + m parameters of eq. (4); the paper prints 4msH + 2(m + 1)q per "
    "block and md for E_out (docs/errata-slips.md)",
    "a number",
    code="byheart.theory.capacity.Architecture",
    test="tests/theory/test_capacity.py",
)
state(
    Ref("KS25", "eq. (94)"),
    "the proof of Theorem 4.3, step by step: cells per layer, (71) to (89), and the sum W̄, (91); byheart adds every "
    "factor as it is, where the paper rounds them up to one power of 48en³N",
    "a number",
    code="byheart.theory.capacity.seq_to_seq_patterns",
    test="tests/theory/test_capacity.py",
)
state(
    Ref("KS25", "eq. (110)"),
    "depth of a memory: 2 + (3m + 2) + (3KM + 2K + 2) layers",
    "a number",
    code="byheart.theory.upper.plain_memory_depth",
    test="tests/theory/test_upper.py",
)
state(
    Ref("KS25", "eq. (111)"),
    "bits of a memory: max(KM + ρ, KM + 2), or the projection's",
    "a number",
    code="byheart.theory.upper.memory_bits",
    test="tests/theory/test_upper.py",
)
state(
    Ref("KS25", "eq. (112)"),
    "deep sets: ρ of the sum of φ",
    "built",
    code="byheart.ir.layers.Pool",
    test="tests/build/ks25/test_sets.py",
)
state(
    Ref("KS25", "eq. (128)"),
    "the embedding layer: a row of the table for every token id",
    "built",
    code="byheart.ir.layers.Embedding",
    test="tests/build/ks25/test_embedding.py",
)
state(
    Ref("KS25", "eq. (159)"),
    "the state between entries of the scan, missing in the text that we read: x, four trajectories and the sum y",
    "built",
    code="byheart.build.ks25.memorizer.scan_plan",
    test="tests/build/ks25/test_memorizer.py",
)
state(
    Ref("KS25", "eq. (160)"),
    "the scan G ∘ F_{n−1} ∘ … ∘ F_0 ∘ H, with the missing eq. (159) restored",
    "built",
    code="byheart.build.ks25.memorizer.scan_plan",
    test="tests/build/ks25/test_memorizer.py",
)
state(
    Ref("KS25", "Open Problem"),
    "does a softmax Transformer need Ω(√(nN)) parameters for one label per token?",
    "out of reach: open; only a weak bound for softmax is known, `byheart.theory.capacity`",
)
state(
    Ref("KS25", "Open Problem"),
    "the same question to trained networks: the fewest blocks with averaging, softmax and hardmax, beside √(nN); "
    "docs/lab-results.md discusses the evidence and its limits",
    SHOWN,
    code="byheart.lab.presets.ks25.least_blocks_by_attention",
    test="tests/lab/study/test_planner.py",
)
state(
    Ref("KS25", "Table 1"),
    "the papers side by side: built and measured on one data set by `byheart compare`, docs/table1.md",
    SHOWN,
    code="byheart.memory.compare.comparison.compare",
    test="tests/memory/compare/test_compare.py",
)
state(
    Ref("KS25", "footnote 3"),
    "embedding dimension 2 in the experiments, so that small data sets are hard already",
    SHOWN,
    code="byheart.lab.presets.ks25",
    test="tests/lab/test_problem.py",
)
for _label, _what in (
    ("eq. (165)", "the trained architecture: E_out, blocks, uniform attention, blocks, E_in"),
    ("Figure 1", "training losses and accuracies on MultiNLI, 1 to 50 blocks"),
    ("Figure 2", "the same on IMDb, 1 to 40 blocks"),
):
    state(
        Ref("KS25", _label),
        f"{_what}; trained by `byheart lab`, docs/lab-results.md lists which runs show it and which do not",
        SHOWN,
        code="byheart.lab.presets.ks25",
        test="tests/lab/study/test_study.py",
    )

state(
    Ref("KS25", "Figure 3"),
    "fewest blocks for N = 600 to 1700: √N, then a jump; trained by `byheart lab`, docs/lab-results.md",
    "partly: the jump exists; up to N = 1200 one block is enough with our vectors, so √N and a constant both fit",
    code="byheart.lab.presets.ks25",
    test="tests/lab/study/test_study.py",
)
state(
    Ref("KS25", "Appendix H, length"),
    "the blocks needed do not depend on the length n of the sequences; trained by `byheart lab`, docs/lab-results.md",
    "partly: the same for n = 10, 100 and 1000, and enough for 10,000; our stream is six numbers wide instead of two",
    code="byheart.lab.presets.ks25",
    test="tests/lab/study/test_study.py",
)
state(
    Ref("M24", "Section 2"),
    "a generic property fails only on the zeros of a nontrivial analytic function, which have measure zero; softmax, "
    "tanh, arctan and GELU are analytic and definable. Here parameters are sampled, and the result is proved for them",
    IN_WORDS,
)
state(
    Ref("M24", "Definition 1"),
    "memory capacity: the largest n such that after any n contexts every choice of positive distributions can be had. "
    "Lemma 1 and Theorem 5 bound it; a construction shows it for the given contexts and distributions only",
    "a number",
    code="byheart.theory.madden.distribution_capacity",
    test="tests/theory/test_madden.py",
)
state(
    Ref("M24", "Equation (1)"),
    "contexts, their counts and the empirical next-token distributions of documents",
    CHECKED,
    code="byheart.data.dataset.dataset.find_distributions",
    test="tests/data/dataset/test_targets.py",
)
state(
    Ref("M24", "Equation (2)"),
    "the one-layer decoder: embedding, positions, softmax attention of the last token, one hidden layer, V",
    "built",
    code="byheart.ir.decoder.Decoder",
    test="tests/build/madden24/test_construction.py",
)
state(
    Ref("M24", "Lemma 2"),
    "the cross-entropy is at least the entropy, and a model that reaches all distributions has it as infimum: the gap "
    "is enclosed and never negative",
    CHECKED,
    code="byheart.certify.next_token.prove_gap",
    test="tests/certify/balls/test_balls.py",
)
state(
    Ref("M24", "Remark after eq. (2)"),
    "with the skip connection Theorems 4 and 5 hold as well: the option skip",
    "built",
    code="byheart.build.madden24.fit.reader_on_line",
    test="tests/build/madden24/test_construction.py",
)
state(
    Ref("M24", "Remark after Theorem 4"),
    "softmax to another base a is softmax of scores times ln a: keys and queries scaled by √(ln a). In print the "
    "examples of the proof are scaled by that, too; they need 1/√(ln a) (docs/errata.md)",
    "in words",
)
state(
    Ref("M24", "Table 1"),
    "upper and lower bounds on the capacity, here as parameters: an upper bound on the capacity is a lower one on the "
    "parameters (`distribution_parameters`, `document_parameters`), and the other way round (`decoder_parameters`, "
    "`averaging_parameters`)",
    "a number",
    code="byheart.theory.madden",
    test="tests/theory/test_madden.py",
)
state(
    Ref("M24", "Figure 1"),
    "the gap against neurons and contexts, and the parameters that close it, trained: docs/lab-results.md",
    "partly: all 80 cells, and the parameters that close the gap beside the authors' own; a run that memorizes ends "
    "there, so gaps below 1 % are not shown",
    code="byheart.lab.presets.madden24",
    test="tests/lab/study/test_study.py",
)
state(
    Ref("MA24", "Assumption 2"),
    "the n tokens of every row are linearly independent: for every row",
    "checked on the data",
    code="byheart.build.table1.mahdavi24.assumption_notes",
    test="tests/build/table1/test_mahdavi24.py",
)
