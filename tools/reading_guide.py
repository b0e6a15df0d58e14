"""The paper beside the code: two pages, one section for each step of the proof of KS25's Theorem B.1.

docs/reading-guide.md goes from tokens to contexts, docs/reading-guide-memory.md from contexts to labels. A step names a
label of the paper and the function that builds it. Statement and test come from the registry of labels, the code from
the function itself, so the pages cannot drift from either: `python -m tools.pages --check` compares them.

    >>> [step.label for step in STEPS][:3]
    ['Lemma C.2', 'Lemma B.1', 'Lemma B.2']
"""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from byheart.paper import Entry


@dataclass(frozen=True)
class ProofStep:
    """One step of the proof: its result, its equation, its label, and byheart's function for it."""

    title: str
    words: str
    equation: str
    label: str
    code: str


_MEMORIZER = "byheart.build.ks25.memorizer"

STEPS = (
    ProofStep(
        "Tokens on a line",
        "A random direction, scaled, keeps the $V\\le nN$ tokens apart (Lemma G.1). $\\lfloor F(x)\\rfloor$ is the "
        "token's key.",
        r"0\le F(x)\le10r(nN)^2\delta^{-1}\sqrt{\pi d},\qquad|F(x)-F(x')|\ge2\quad(48),(49)",
        "Lemma C.2",
        "byheart.build.shared.projection.project",
    ),
    ProofStep(
        "Few tokens distinguish all multisets",
        "Take two multisets that agree on the tokens chosen so far, add a token on which they differ, repeat.",
        r"|A|\le N,\qquad m^{(i)}\ne m^{(j)}\Rightarrow m^{(i)}|_A\ne m^{(j)}|_A",
        "Lemma B.1",
        "byheart.build.ks25.sequence_ids.distinguishing_tokens",
    ),
    ProofStep(
        "Integers whose sums differ",
        "Each pair of multisets forbids at most one value of the next integer. This is the repaired proof, see "
        "[errata](errata.md).",
        r"\sum_xm^{(i)}(x)f(x)\ne\sum_xm^{(j)}(x)f(x)",
        "Lemma B.2",
        "byheart.build.ks25.sequence_ids.token_weights",
    ),
    ProofStep(
        "The token code",
        "The integers on $A$, zero elsewhere, and the line on which a memory looks them up.",
        r"\left|\sum_{k=1}^n\tilde\varphi(X^{(i)}_{:,k})-\sum_{k=1}^n\tilde\varphi(X^{(j)}_{:,k})\right|\ge1\quad(47)",
        "Lemma B.3",
        "byheart.build.ks25.sequence_ids.separate_multisets",
    ),
    ProofStep(
        "The first feed-forward network",
        "The token memory keeps $x$ and reserves a channel for the sum.",
        r"f_1(x)=(\tilde\varphi(x),F(x),0)^\top\quad(50)",
        "eq. (50)",
        "byheart.build.ks25.layers.token_layers",
    ),
    ProofStep(
        "One averaging layer",
        "Keys and queries are zero, so attention is the mean. byheart multiplies by $n$, so that ids are integers.",
        r"s_k=\left(\tilde\varphi(X_{:,k}),F(X_{:,k}),\frac1n\sum_{l=1}^n\tilde\varphi(X_{:,l})\right)^\top\quad(53)",
        "eq. (52)",
        "byheart.build.ks25.layers.averaging",
    ),
    ProofStep(
        "The label memory",
        "Lemma C.1 on the contexts $s_n$: find the group of the key, then scan its entries.",
        r"f_2(s_n^{(i)})=y^{(i)},\qquad\text{depth}"
        r"\lesssim\sqrt{N\log N}+\sqrt{N/\log N}\cdot\max\{\log R_2,\log C\}\quad(57)",
        "Lemma C.1",
        f"{_MEMORIZER}.memorizer_plan",
    ),
    ProofStep(
        "Inside an interval",
        "Two distances, and the indicator that is 1 where both are zero.",
        r"F(x)=1\ \text{on}\ [a,b],\qquad F(x)=0\ \text{where}\ x<a-\frac12\ \text{or}\ x>b+\frac12",
        "Lemma G.2",
        f"{_MEMORIZER}.distances",
    ),
    ProofStep(
        "Find the group",
        "Three layers per group add its words $u_j$ and $w_j$ where $x$ is inside its interval.",
        r"x\in[a_j,b_j]\Rightarrow F(x)=w_j",
        "Lemma G.3",
        f"{_MEMORIZER}.lookup_plan",
    ),
    ProofStep(
        "Read one bit",
        "Two points inside the cell of a word pass through the triangle function. Their order after $l$ foldings is "
        "bit $l$.",
        r"\mathrm{BIN}_l(x)=\sigma\!\left(2^{n+2-l}\left(\psi^l(z_2)-\psi^l(z_1)\right)\right)",
        "Lemma G.4",
        f"{_MEMORIZER}.read_bit",
    ),
    ProofStep(
        "Compare the key with x",
        "Both distances are zero where $x$ is in $[y,y+1]$, $y$ the key. Keys are 2 apart, so at most one entry "
        "matches.",
        r"F(x,y)=1\ \text{if}\ x\in[y,y+1],\qquad F(x,y)=0\ \text{if}\ x>y+\frac32\ \text{or}\ x<y-\frac12",
        "Lemma G.5",
        f"{_MEMORIZER}.misses",
    ),
    ProofStep(
        "The gate",
        "With the indicator $x$ of Lemma G.5 and the label $y$: $y$ where $x=1$, else 0. byheart has the two distances "
        "in place of $1-x$. At distance 1/2 or more the subtracted term exceeds every label of $c$ bits.",
        r"F^y(x,y)=\sigma\!\left(2^{c+1}x-2^{c+1}+y\right)\quad(158),\qquad"
        r"\sigma\!\left(\text{label}-2^{c+1}(\text{below}+\text{above})\right)",
        "eq. (158)",
        f"{_MEMORIZER}.gated",
    ),
    ProofStep(
        "Scan a group",
        "Entry after entry: read key and label, compare, add the gate's output to the sum.",
        r"G\circ F_{n-1}\circ\dots\circ F_0\circ H\quad(160)",
        "Lemma G.6",
        f"{_MEMORIZER}.scan_plan",
    ),
    ProofStep(
        "The whole network",
        "The stages in order. The checker then evaluates every row.",
        r"\mathcal F_2^{(\mathrm{FF})}\circ\mathcal F^{(\mathrm{UA})}\circ\mathcal F_1^{(\mathrm{FF})}"
        r"\left(X^{(i)}\right)_n=y^{(i)}\quad(60)",
        "Theorem B.1",
        "byheart.build.ks25.construction.build_ks25",
    ),
    ProofStep(
        "Cost",
        "The sum of the parts, before anything is built. The certificate compares it with the network.",
        r"\text{depth}\lesssim\sqrt{N\log N}+\sqrt{N/\log N}\cdot\max\{\log R,\log C\}\quad(61)",
        "eq. (61)",
        "byheart.theory.theorems.transformer",
    ),
)

CONTEXTS, MEMORY = "reading-guide.md", "reading-guide-memory.md"
_FIRST_OF_MEMORY = [step.label for step in STEPS].index("Lemma C.1")

INTRODUCTIONS = {
    CONTEXTS: """\
# The paper beside the code

Each step of the proof of KS25's Theorem B.1 (Theorem 4.1 with its constants), in the order of the proof: the equation,
the function that builds it, and its test. This page goes from tokens to contexts; [the label
memory](reading-guide-memory.md) follows. The form is `plain`, the proof's feed-forward networks. `make pages` writes
both pages from the [paper map's](paper-map.md) registry and the functions themselves; docstrings are dropped here. Read
[KS25, built](ks25.md) for the results, and [the errata](errata.md) for the gap in Lemma B.2.
""",
    MEMORY: """\
# The paper beside the code: the label memory

The proof of KS25's Theorem B.1, continued from [tokens to contexts](reading-guide.md): the memory of Lemma C.1, the
whole network, and its cost. The token memory of step 5 is the same gadget. `make pages` writes this page, too.
""",
}


def render(entries: Sequence[Entry]) -> dict[str, str]:
    """Both pages, from the registry's entries.

    Args:
        entries: every registered entry.

    Returns:
        The Markdown of every page by its file name.

    Raises:
        LookupError: if a step's label and function are not registered together.
    """
    sections = [_section(number, step, entries) for number, step in enumerate(STEPS, start=1)]
    parts = {CONTEXTS: sections[:_FIRST_OF_MEMORY], MEMORY: sections[_FIRST_OF_MEMORY:]}
    return {name: "\n".join([INTRODUCTIONS[name], *found]) for name, found in parts.items()}


def _section(number: int, step: ProofStep, entries: Sequence[Entry]) -> str:
    entry = entry_of(step, entries)
    return (
        f"## {number}. {step.title}\n\n{step.words}\n\n$${step.equation}$$\n\n"
        f"**{entry.ref}** ({entry.status}): {' '.join(entry.statement.split())}\n\n"
        f"`{entry.code}`, tested by `{entry.test}`:\n\n```py\n{source_of(step.code)}\n```\n"
    )


def entry_of(step: ProofStep, entries: Sequence[Entry]) -> Entry:
    """The registry's entry of a step; a LookupError if there is none."""
    for entry in entries:
        if entry.ref.paper == "KS25" and entry.ref.label == step.label and entry.code == step.code:
            return entry
    raise LookupError(f"{step.code} is not registered for {step.label}: update `tools.reading_guide.STEPS`")


def source_of(code: str) -> str:
    """The function's source without decorators and docstring.

    >>> print(source_of("byheart.build.ks25.memorizer.inside"))
    def inside() -> Form:
        return 1 - 2 * wire("below") - 2 * wire("above")
    """
    module, _, name = code.rpartition(".")
    text = textwrap.dedent(inspect.getsource(getattr(importlib.import_module(module), name)))
    (tree,) = ast.parse(text).body
    assert isinstance(tree, ast.FunctionDef)
    lines = text.splitlines()
    kept = list(range(tree.lineno - 1, len(lines)))
    if ast.get_docstring(tree) is not None:
        first = tree.body[0]
        kept = [k for k in kept if not first.lineno - 1 <= k < (first.end_lineno or first.lineno)]
    return "\n".join(lines[k] for k in kept).rstrip()
