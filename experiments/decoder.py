"""The numbers and pictures of docs/decoder.md: the paper's figure redone, closed form beside trained.

    python experiments/decoder.py stories.jsonl                       everything; an hour, most of it Adam
    python experiments/decoder.py stories.jsonl --parts conditions     only these parts: conditions, gap, parameters
    python experiments/decoder.py stories.jsonl --steps 2000 --documents 100 200      a smaller run

The paper's setting: the first 100, 200, … 1000 stories, words and punctuation, the first 10 tokens, d = 16, GELU,
m = 4 … 512, full-batch Adam with step size 1e-4 for 50,000 steps. Every closed form is certified; one that is not
proved stops the script.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from byheart.certify.next_token import certify_decoder
from byheart.compiler.distribution_table import table_of_factors
from byheart.constructions.decoder_fit import Fit, MixerKind, Shape
from byheart.constructions.madden24 import Features, closed_form
from byheart.constructions.madden24_lowrank import assemble, smallest_factors
from byheart.constructions.madden24_polish import few_neurons
from byheart.data.document_files import read_documents
from byheart.data.documents import Contexts, Corpus
from byheart.errors import BuildError
from byheart.ir.activation import Activation
from byheart.plots.style import colour, label_axes, marker, new_figure, save, styled

Table = list[list[str]]


def corpora(texts: list[str], sizes: Sequence[int]) -> dict[int, Corpus]:
    return {size: Corpus.of_texts(texts[:size], max_length=10) for size in sizes}


def proved(fit: Fit, contexts: Contexts, fraction: float) -> float:
    """The proved relative gap, or the script stops."""
    certificate = certify_decoder(fit.decoder, contexts, fraction=fraction)
    if certificate.verdict != "proved":
        raise SystemExit(f"{fit.construction}: {certificate.reason}")
    return certificate.gap_upper / certificate.entropy


# --- condition numbers, activations and mixers


def conditions(texts: list[str], docs: Path, arguments: argparse.Namespace) -> None:
    table: Table = [["documents", "contexts", "mixer", "activation", "condition number", "residual", "proved gap / 𝓗"]]
    for size, corpus in corpora(texts, (30, max(arguments.documents))).items():
        contexts = corpus.contexts()
        for mixer in MixerKind:
            for activation in Activation:
                fit = closed_form(contexts, corpus.vocabulary, Shape(mixer, activation))
                gap = proved(fit, contexts, 1e-3)
                row = [f"{size}", f"{contexts.count:,}", mixer.value, activation.value]
                table.append([*row, f"{fit.condition:,.0f}", f"{fit.residual:.1e}", f"{gap:.1e}"])
    hopeless = corpora(texts, (30,))[30]
    try:
        closed_form(hopeless.contexts(), hopeless.vocabulary, features=Features.RANDOM)
    except BuildError as error:
        print("random draw, 30 documents:", error)
    write(docs, "conditions", table)


# --- the gap against the neurons, for several numbers of contexts


def trained_gap(corpus: Corpus, neurons: int, steps: int, rate: float) -> tuple[float, int]:
    """(relative gap, parameters) after the paper's training."""
    from byheart.lab.config import Decoder, Training
    from byheart.lab.decoder_engine import DecoderEngine
    from byheart.lab.problem import Documents

    longest = max(map(len, corpus.documents))
    tokens = np.array([d + (-1,) * (longest - len(d)) for d in corpus.documents], dtype=np.int64)
    problem, model = Documents("stories", tokens, len(corpus.vocabulary)), Decoder(neurons)
    engine = DecoderEngine(problem, model, Training(epochs=steps, rate=rate, shape="constant"))
    losses = engine.epochs(steps)[:, 0]
    return float(losses.min()) / problem.entropy - 1, model.parameters(problem)


def gap(texts: list[str], docs: Path, arguments: argparse.Namespace) -> None:
    found = []
    for size, corpus in corpora(texts, arguments.documents).items():
        contexts = corpus.contexts()
        for neurons in (m for m in arguments.neurons if m < contexts.count):
            shape = Shape(activation=Activation.GELU, dimension=16)
            fit = few_neurons(
                contexts, corpus.vocabulary, shape, neurons, fraction=1e-3, iterations=arguments.iterations
            )
            loss = contexts.cross_entropy(fit.decoder.log_probabilities(contexts.tokens))
            adam, _ = trained_gap(corpus, neurons, arguments.steps, arguments.rate)
            found.append((size, contexts.count, neurons, loss / contexts.entropy - 1, adam))
            print(json.dumps(found[-1]), flush=True)
        exact = closed_form(contexts, corpus.vocabulary)
        found.append((size, contexts.count, contexts.count, proved(exact, contexts, 1e-3), None))
    table: Table = [["documents", "contexts", "neurons", "gap / 𝓗, closed form polished", "gap / 𝓗, Adam"]]
    for size, count, neurons, ours, adam in found:
        table.append([f"{size}", f"{count:,}", f"{neurons:,}", f"{ours:.2g}", "" if adam is None else f"{adam:.2g}"])
    write(docs, "gap", table, f"Adam: {arguments.steps:,} steps of size {arguments.rate:g}.")
    draw_gap(docs / "pictures" / "decoder-gap.png", found)


def draw_gap(path: Path, found: list[tuple[int, int, int, float, float | None]]) -> None:
    with styled():
        figure = new_figure()
        axes = figure.axes[0]
        for place, size in enumerate(dict.fromkeys(row[0] for row in found)):
            rows = [row for row in found if row[0] == size]
            label = f"{rows[0][1]:,} contexts"
            axes.plot(
                [r[2] for r in rows], [r[3] for r in rows], marker(place) + "-", color=colour(place),
                label=f"{label}, closed form (polished below {rows[-1][2]:,})",
            )  # fmt: skip
            axes.plot(
                [r[2] for r in rows if r[4] is not None], [r[4] for r in rows if r[4] is not None], marker(place) + ":",
                color=colour(place), label=f"{label}, Adam", fillstyle="none",
            )  # fmt: skip
        axes.axhline(0.01, color="#7F7F7F", linewidth=0.8)
        label_axes(axes, "Gap to the entropy", "neurons m", "gap / entropy")
        axes.set_xscale("log", base=2)
        axes.legend()
        save(figure, path)


# --- the fewest parameters against the contexts


def parameters(texts: list[str], docs: Path, arguments: argparse.Namespace) -> None:
    found = []
    for size, corpus in corpora(texts, arguments.documents).items():
        contexts = corpus.contexts()
        factors = smallest_factors(contexts, 0.01, arguments.effort, seed=0)
        fit = assemble(contexts, corpus.vocabulary, Shape(), factors, seed=0)
        proved(fit, contexts, 0.01)
        table_model = table_of_factors(contexts, factors, 0.01, seed=0)
        if table_model.certificate.verdict != "proved":
            raise SystemExit(table_model.certificate.reason)
        rank, omega = len(factors.columns), len(corpus.vocabulary)
        sizes = (fit.decoder.neurons, fit.decoder.parameters, table_model.parameters)
        found.append((size, contexts.count, omega, rank, *sizes))
        print(json.dumps(found[-1]), flush=True)
    table: Table = [
        ["documents", "contexts n", "vocabulary ω", "n(ω−1)", "rank", "neurons", "parameters", "per context"],
    ]
    table[0] += ["memory with a table", "per context"]
    for size, count, omega, rank, neurons, total, least in found:
        numbers = [size, count, omega, count * (omega - 1), rank, neurons, total]
        row = [*(f"{n:,}" for n in numbers), f"{total / count:.2f}", f"{least:,}", f"{least / count:.2f}"]
        table.append(row)
    write(docs, "parameters", table)
    draw_parameters(docs / "pictures" / "decoder-parameters.png", found)


def draw_parameters(path: Path, found: list[tuple[int, ...]]) -> None:
    with styled():
        figure = new_figure()
        axes = figure.axes[0]
        counts = [row[1] for row in found]
        lines = (
            (0, [row[5] for row in found], marker(0) + "-", "smallest decoder found, proved"),
            (2, [row[6] for row in found], marker(2) + "-", "exact memory with a table, proved"),
            (1, [13 * count for count in counts], ":", "13 per context: the paper's trained decoders"),
        )
        for place, values, style, label in lines:
            axes.plot(counts, values, style, color=colour(place), label=label)
        label_axes(axes, "Parameters for a gap below 1 % of the entropy", "contexts n", "parameters", log=False)
        axes.set_ylim(bottom=0)
        axes.legend()
        save(figure, path)


def write(docs: Path, name: str, table: Sequence[Sequence[str]], sentence: str = "") -> None:
    """Puts the table between `<!-- numbers: name -->` and `<!-- end -->` of decoder.md."""
    lines = ["| " + " | ".join(row) + " |" for row in table]
    lines.insert(1, "|" + "---|" * len(table[0]))
    text = "\n".join([*lines, *(["", sentence] if sentence else [])])
    page = docs / "decoder.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(f"<!-- numbers: {name} -->\n")
    _, end, after = rest.partition("<!-- end -->")
    if not end:
        raise SystemExit(f"{page} has no place for {name}")
    page.write_text(f"{before}<!-- numbers: {name} -->\n{text}\n{end}{after}", encoding="utf-8")
    print(text)


PARTS: dict[str, Any] = {"conditions": conditions, "gap": gap, "parameters": parameters}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stories", help="JSON Lines or text file with at least as many documents as asked for")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--documents", nargs="+", type=int, default=list(range(100, 1001, 100)))
    parser.add_argument("--neurons", nargs="+", type=int, default=[2**k for k in range(2, 10)])
    parser.add_argument("--steps", type=int, default=50_000, help="of Adam")
    parser.add_argument("--rate", type=float, default=1e-4, help="Adam's step size")
    parser.add_argument("--iterations", type=int, default=800, help="of L-BFGS")
    parser.add_argument("--effort", type=int, default=1, help="of the search for the smallest")
    parser.add_argument("--docs", type=Path, default=Path(__file__).parents[1] / "docs")
    arguments = parser.parse_args()
    texts = read_documents(arguments.stories, limit=max(arguments.documents))
    for name in arguments.parts:
        PARTS[name](texts, arguments.docs, arguments)


if __name__ == "__main__":
    main()
