"""What the files of all lookups share: the finished model, and the proof that a file's graph does no more.

A file's contents are taken out of its graph; the graph of these contents is built again and must be the same, byte by
byte. So a reader of contents may trust any field of a file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from byheart.errors import FileFormatError
from byheart.export.onnx_table import GraphLabels, TableSignature, graph_outputs
from byheart.export.targets.onnx import Graph

Contents = TypeVar("Contents")


def finish_lookup(
    graph: Graph,
    inputs: list[Any],
    answers: GraphLabels,
    signature: TableSignature,
    about: dict[str, str],
    label: str,
) -> Any:
    """The model of a lookup in few bytes; its graph has the name of the label column."""
    graph.shorten((*signature.inputs, signature.label, signature.known))
    model = graph.model(inputs, graph_outputs(graph, answers, signature), about, label or "memory")
    model.ClearField("producer_name")  # the record names byheart
    return model


def proved_contents(
    model: Any, kind: str, take: Callable[[Any], Contents], build: Callable[[Contents, dict[str, str]], Any]
) -> Contents:
    """The contents of a file whose graph is the graph of these contents, node by node.

    Args:
        model: The `onnx.ModelProto` of the file.
        kind: What the file should be, for messages.
        take: The contents of the model's graph.
        build: The model of contents.

    Raises:
        FileFormatError: The graph differs, or has no contents.
    """
    try:
        found = take(model.graph)
        check_same_graph(build(found, {}), model)
    except FileFormatError:
        raise
    except Exception as error:
        raise FileFormatError(f"the graph is not a {kind} that this version writes ({error})") from None
    return found


def check_same_graph(built: Any, model: Any) -> None:
    """Raise a FileFormatError unless a file's model does what the model built from its tables does."""
    built.graph.name = model.graph.name
    same = built.graph.SerializeToString() == model.graph.SerializeToString()
    opsets = [sorted((part.domain, part.version) for part in one.opset_import) for one in (built, model)]
    if not same or opsets[0] != opsets[1] or model.functions:
        raise FileFormatError(
            "the graph differs from the graph of the tables that it contains; if another version of byheart wrote it, "
            "deploy the table again"
        )
