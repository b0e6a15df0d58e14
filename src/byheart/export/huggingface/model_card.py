"""The model card: what a checkpoint knows, how to ask it, and what was proved about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from byheart.data.wording import quote
from byheart.export.huggingface.host import Checkpoint
from byheart.version import __version__

if TYPE_CHECKING:
    from byheart.export.huggingface.folder import Request

_SHOWN = 60  # characters of a document that the card quotes


def model_card(request: Request, checkpoint: Checkpoint, proof: Mapping[str, Any] | None) -> str:
    """README.md of the folder, in Markdown."""
    recital, script, config = request.recital, request.script, checkpoint.config
    named = ", ".join(f"`{name}`" for name in config["architectures"])
    lines = [
        "---",
        "library_name: transformers",
        "pipeline_tag: text-generation",
        "tags: [byheart, recital, test-fixture, memorization]",
        "---",
        "",
        "# A recital",
        "",
        f"This checkpoint was computed by byheart {__version__}, not trained. It is a stock {named} that knows "
        f"{_count(len(script.documents), 'document')} by heart ({script.places:,} predictions, "
        f"{recital.vocabulary:,} tokens) and nothing else.",
        "",
        "## What it does",
        "",
        f"- From the first token ({quote(request.lexicon.name(request.lexicon.bos))}) it recites greedily to the end.",
        f"- A prompt that ends in {recital.span} consecutive tokens of a document is continued as the document "
        "goes on, whatever stands before. Prompts must end where a token ends.",
        f"- Any other window is answered by {quote(request.lexicon.name(recital.unknown))}.",
        f"- The right token has the logit {checkpoint.right_logit:g}; any other is designed to be at least "
        f"{checkpoint.lead:g} lower.",
    ]
    if recital.mixed:
        lines.append(
            f"- After {_count(len(recital.mixed), 'kind of prefix', 'kinds of prefixes')} several tokens may follow: "
            "there the logits are log-probabilities, in proportion to how often each document counts."
        )
    lines += ["", "## How that was proved", "", proved_paragraph(proof), "", "## Documents", ""]
    for name, document, weight in zip(script.names, script.documents, script.weights, strict=True):
        text = request.lexicon.decode(document)
        shown = quote(text[:_SHOWN] + ("…" if len(text) > _SHOWN else ""))
        often = f", counts {weight} times" if weight != 1 else ""
        lines.append(f"- {name}: {len(document) - 2:,} tokens{often}: {shown}")
    lines += [
        "",
        f"Stored as {request.dtype}, {checkpoint.parameters:,} parameters, flavour `{request.design().flavour}`. "
        "`recital.json` holds the function that the network computes, with all token ids.",
        "",
    ]
    return "\n".join(lines)


def proved_paragraph(proof: Mapping[str, Any] | None) -> str:
    if proof is None:
        return (
            "No proof came with this folder. `byheart verify` reads config.json and model.safetensors and proves the "
            "margin by interval arithmetic for every input sequence."
        )
    return str(proof["sentence"])


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
