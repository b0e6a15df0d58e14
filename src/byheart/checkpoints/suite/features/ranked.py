"""The kind `ranked`: known second and third tokens, for grammars, log-probabilities, beams and samplers.

In a recital the second-best logit is shared by many tokens, so an answer under a grammar that forbids the best token
is undefined. Here documents with one prompt have weights: at the branch the logits are log-probabilities, and after it
each document continues alone.

    JSON      three answers of weights 2^40, 2^20 and 1 (13.9 nats apart): free text, an object, a list. The
              unconstrained answer lies outside of both grammars, from its first token on.
    a tree    seven answers of small weights: top-5 log-probabilities, sets of top-k, top-p and min-p, and beams that
              differ from greedy decoding (40 = 22 + 18 against 30 = 29 + 1)
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from byheart.checkpoints.proof import MarginCertificate, certify_checkpoint
from byheart.checkpoints.recital import RecitalMemory
from byheart.checkpoints.suite.features.writing import (
    FeatureFixture,
    Margins,
    MeasuredText,
    check_folder,
    expected_head,
    finish,
    proved_margins,
)
from byheart.checkpoints.suite.kinds import register_kind
from byheart.checkpoints.suite.write import builtin_lexicon
from byheart.checkpoints.windows import build_recital
from byheart.checkpoints.windows.tables import Recital
from byheart.data.tokens.lexicon import Lexicon
from byheart.data.tokens.script import Script
from byheart.progress import SILENT, Progress

START = "Ask from the start"
TREE = {
    ", or open anywhere.": 22, ", or ask me.": 18, " and keep.": 29, " and know you need not sift.": 1,
    ": four words.": 9, "; I do not guess.": 5, " like fog.": 3,
}  # fmt: skip
QUESTION = "Zoë, 7 degrees: as JSON, please.\n"
ANSWERS = ("Sure! Here it is: {'city': Zoë}", '{"city": "Zoë", "degrees": 7}', "[7, 13]")
RANKS = (1 << 40, 1 << 20, 1)
PATTERNS = (r'\{"city": "[A-Za-zé-ë]+", "degrees": [0-9]+\}', r"\[[0-9]+(, [0-9]+)*\]")
SCHEMA = {
    "type": "object", "properties": {"city": {"type": "string"}, "degrees": {"type": "integer"}},
    "required": ["city", "degrees"], "additionalProperties": False,
}  # fmt: skip
TOLERANCE = {"float32": 0.005, "float16": 0.05, "bfloat16": 0.1}  # nats of a log-probability
VARIATION = 0.1  # of a distribution; how far each log-probability may be off decides what is proved of their order
GRAMMARS = (
    'root ::= "{\\"city\\": \\"" [A-Za-zé-ë]+ "\\", \\"degrees\\": " [0-9]+ "}"',
    'root ::= "[" [0-9]+ (", " [0-9]+)* "]"',
)  # the same as PATTERNS, for engines that take GBNF
DRAWS = 400
Ids = tuple[int, ...]


@register_kind("ranked", "known first, second and third tokens: grammars, log-probabilities, beams, samplers")
def write_ranked(
    architecture: str,
    folder: str | Path,
    *,
    start: str = START,
    tree: Mapping[str, int] | None = None,
    dtype: str = "bfloat16",
    recited: bool = False,
    progress: Progress = SILENT,
    **options: Any,
) -> FeatureFixture:
    """Write a checkpoint with known ranks.

    Args:
        architecture: any architecture of `byheart fixture`.
        folder: the folder to write; it must not exist.
        start: the prompt of the tree.
        tree: continuation -> weight; ratios of at least 1.2 keep their order in bfloat16.
        dtype: the type of the file.
        recited: run every case in Transformers; else byheart's machine runs those that need logits or greedy decoding.
        progress: where the stages are shown.
        options: fields of the shape.

    Returns:
        The fixture, after all answers were measured. A type's margin is proved if every answer is, and the order of the
        tokens at every branch.

    Raises:
        ExportError: Transformers returns another answer, for example because weights are too close.
    """
    target, lexicon = Path(folder), builtin_lexicon()
    check_folder(target)
    branches = dict(TREE if tree is None else tree)
    documents = [lexicon.document(QUESTION + answer) for answer in ANSWERS]
    documents += [lexicon.document(start + text) for text in branches]
    weights = [*RANKS, *branches.values()]
    script = Script(tuple(documents), tuple(weights))
    built = build_recital(script, lexicon.size, lexicon.failure)
    memory = RecitalMemory(built.recital, lexicon, script, built.summary())
    part = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part"))
    try:
        with progress.stage("writing"):
            summary = memory.to_huggingface(part / "model", architecture, dtype=dtype, **options)
        with progress.stage("proving"):
            certificate = certify_checkpoint(part / "model", documents, copies=weights, variation=VARIATION)
            margins, ranks = ordered(certificate, documents, weights)
        cases = _cases(documents, weights, lexicon, start)
        cases += _penalties(documents, weights, lexicon, start, built.recital)
        content = expected_head("ranked", architecture, lexicon, margins) | {
            "ranks": ranks, "schema": SCHEMA, "cases": cases,
            "prompts": [case for case in cases if case["do"] == "generate"],
        }  # fmt: skip
        with progress.stage("measuring"):
            texts = [MeasuredText("model", ids, _alone(ids, documents)) for ids in documents]
            return finish(part, target, content, TEST, summary["parameters"], recited=recited, texts=texts)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def ordered(
    certificate: MarginCertificate, documents: Sequence[Ids], weights: Sequence[int]
) -> tuple[Margins, dict[str, Any]]:
    """Return the proved margins, and per type the order of tokens at branches.

    Two log-probabilities keep their order if they are farther apart than twice the proved error of each.

    Args:
        certificate: of the distributions.
        documents: token ids.
        weights: how often each document counts.
    """
    branches = {document[:k] for document in documents for k in range(1, len(document))}
    gaps = []
    for prefix in branches:
        logs = [math.log(p) for p in distribution(documents, weights, prefix).values()]
        gaps += [a - b for a, b in pairwise(logs)]
    least, margins, ranks = min(gaps), proved_margins([certificate]), {}
    for found in certificate.types:
        proved = margins[found.type]["proved"] is not None and found.nats is not None and least > 2 * found.nats
        if not proved:
            margins[found.type]["proved"] = None
        ranks[found.type] = {"order": "proved" if proved else "measured", "error": found.nats, "least_gap": least}
    return margins, ranks


def distribution(documents: Sequence[Ids], weights: Sequence[int], prefix: Sequence[int]) -> dict[int, float]:
    """Return token -> probability after a prefix, the most likely first.

    >>> distribution([(1, 5, 2), (1, 6, 2)], [1, 3], [1])
    {6: 0.75, 5: 0.25}
    """
    found: dict[int, int] = {}
    for document, weight in zip(documents, weights, strict=True):
        if document[: len(prefix)] == tuple(prefix) and len(document) > len(prefix):
            found[document[len(prefix)]] = found.get(document[len(prefix)], 0) + weight
    total = sum(found.values())
    return {token: w / total for token, w in sorted(found.items(), key=lambda pair: -pair[1])}


def _alone(document: Ids, documents: Sequence[Ids]) -> int:
    """The first position at which no other document has the same prefix; branches have no margin of their own."""
    shared = [
        next((k for k, (a, b) in enumerate(zip(document, other, strict=False)) if a != b), 0)
        for other in documents
        if other != document
    ]
    return max(shared) + 1


def _penalties(
    documents: Sequence[Ids], weights: Sequence[int], lexicon: Lexicon, start: str, recital: Recital
) -> list[dict[str, Any]]:
    """The tree's prompt after one of its own answers: a penalty of 2 halves the best logit, so the second one wins.

    Every logit of the branch is positive, and the best one is at most ln 2 above the second, so the result does not
    depend on their size. A presence or frequency penalty of 1 takes a nat or more from the best one alone. A prompt
    that the recital does not continue (a window reaches farther back) gives no case.
    """
    prompt = documents[3][: 1 + len(lexicon.encode(start))]
    branch = distribution(documents, weights, prompt)
    best = next(iter(branch))
    before = next(ids for ids in documents[3:] if ids[len(prompt)] == best)
    ids = [*before[:-1], *prompt[1:]]
    if int(recital.next_tokens(ids)[-1]) != best:
        return []
    second = next(token for token in branch if token not in ids)
    return [
        {"do": "penalized", "name": f"{name.replace('_', ' ')} {size:g}", "model": "model", "ids": ids,
         "continuation_ids": [second], "settings": {name: size}}
        for name, size in (("repetition_penalty", 2.0), ("presence_penalty", 1.0), ("frequency_penalty", 1.0))
    ]  # fmt: skip


def kept(probabilities: Mapping[int, float], settings: Mapping[str, float]) -> list[int]:
    """Return the tokens that a sampler keeps: top_k, top_p (the least set that reaches p), min_p (times the best).

    What one of them keeps is a distribution again, before the next one.

    >>> p = {7: 0.5, 8: 0.3, 9: 0.2}
    >>> kept(p, {"top_k": 2}), kept(p, {"top_p": 0.6}), kept(p, {"min_p": 0.5}), kept(p, {"temperature": 2})
    ([7, 8], [7, 8], [7, 8], [7, 8, 9])
    """
    order = sorted(probabilities, key=lambda token: -probabilities[token])
    if "top_k" in settings:
        order = order[: int(settings["top_k"])]
    if "top_p" in settings:
        reached, count, total = 0.0, 0, sum(probabilities[token] for token in order)
        while reached < settings["top_p"]:
            reached += probabilities[order[count]] / total
            count += 1
        order = order[:count]
    if "min_p" in settings:
        order = [t for t in order if probabilities[t] >= settings["min_p"] * probabilities[order[0]]]
    return order


def _cases(documents: Sequence[Ids], weights: Sequence[int], lexicon: Lexicon, start: str) -> list[dict[str, Any]]:
    def case(verb: str, name: str, ids: Sequence[int], **more: Any) -> dict[str, Any]:
        return {"do": verb, "name": name, "model": "model", "ids": list(ids), **more}

    def continued(document: Ids, prompt: Ids) -> dict[str, Any]:
        ids = list(document[len(prompt) :])
        words = lexicon.decode([t for t in ids if t != lexicon.eos])
        return {"continuation_ids": ids, "continuation": words}

    question = documents[0][: 1 + len(lexicon.encode(QUESTION))]
    prompt = documents[3][: 1 + len(lexicon.encode(start))]
    found = [case("generate", "without a grammar", question, branches=True, **continued(documents[0], question))]
    for rank, pattern in enumerate(PATTERNS, 1):
        more = continued(documents[rank], question) | {"pattern": pattern, "gbnf": GRAMMARS[rank - 1]}
        found.append(case("constrained", f"a grammar that allows rank {rank + 1}", question, **more))
    found.append(case("schema", "a JSON schema", question, schema=SCHEMA, **continued(documents[1], question)))
    first = distribution(documents, weights, question)
    top = [[t, math.log(p)] for t, p in first.items()]
    found.append(case("logprobs", "three ranks", question, top=top, tolerance=TOLERANCE))
    branch = distribution(documents, weights, prompt)
    top = [[t, math.log(p)] for t, p in branch.items()][:5]
    found.append(case("logprobs", "top 5 of the tree", prompt, top=top, tolerance=TOLERANCE))
    greedy, ids = list[int](), list(prompt)
    while not greedy or greedy[-1] != lexicon.eos:
        greedy.append(next(iter(distribution(documents, weights, ids))))
        ids.append(greedy[-1])
    through = continued((*prompt, *greedy), prompt)
    found.append(case("generate", "greedily through the tree", prompt, branches=True, **through))
    tree = sorted(zip(documents[3:], weights[3:], strict=True), key=lambda pair: -pair[1])
    longest = max(map(len, documents[3:])) - len(prompt)
    for width in (2, 3, 4):
        best = [list(document[len(prompt) :]) for document, _ in tree[:width]]
        total = sum(weights[3:])
        scores = [math.log(weight / total) for _, weight in tree[:width]]
        found.append(case("beams", f"{width} beams", prompt, width=width, count=longest, sequences=best, scores=scores))
    # Of the last two each alone keeps two tokens, and so do both if the first leaves no distribution.
    both = {"top_k": 2, "top_p": 0.5}
    for settings in ({"temperature": 1.0}, {"top_k": 3}, {"top_p": 0.6}, {"min_p": 0.2}, both):
        name = ", ".join(f"{key} {value:g}" for key, value in settings.items())
        allowed = kept(branch, settings)
        found.append(case("sample", name, prompt, settings=settings, allowed=allowed, draws=DRAWS))
    return found


TEST = '''"""Are ranks, log-probabilities and sampling sets correct? Call yours in `logits`. Needs transformers."""
import json, pathlib, pytest, torch, transformers  # noqa: E401
HERE = pathlib.Path(__file__).parent
CASES = json.loads((HERE / "expected.json").read_text(encoding="utf-8"))["cases"]
MODEL = transformers.AutoModelForCausalLM.from_pretrained(HERE / "model", dtype=torch.float32)
def logits(ids):
    return MODEL(torch.tensor([ids])).logits[0, -1].double()
@pytest.mark.parametrize("case", [c for c in CASES if c["do"] == "logprobs"], ids=lambda c: c["name"])
def test_logprobs(case):
    found = torch.log_softmax(logits(case["ids"]), -1).topk(len(case["top"]))
    assert found.indices.tolist() == [token for token, _ in case["top"]]
    assert max(abs(a - b) for a, (_, b) in zip(found.values.tolist(), case["top"])) < case["tolerance"]["float32"]
@pytest.mark.parametrize("case", [c for c in CASES if c["do"] == "sample"], ids=lambda c: c["name"])
def test_sampling(case):
    ids = torch.tensor([case["ids"]] * case["draws"])
    out = MODEL.generate(ids, max_new_tokens=1, do_sample=True, **{"top_k": 0, **case["settings"]})[:, -1]
    assert set(out.tolist()) == set(case["allowed"])
'''
