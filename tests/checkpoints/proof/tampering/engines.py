"""What stock Transformers computes beside what is proved: every engine, row and place."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from byheart.certify import Verdict
from byheart.checkpoints.proof import TYPES, tokenize, verify_folder
from byheart.checkpoints.proof.check import _interpret
from byheart.checkpoints.proof.checkpoint import open_checkpoint
from byheart.checkpoints.proof.queries import answer, ask, unknown
from byheart.checkpoints.proof.recall import certify_recall
from byheart.checkpoints.windows.recall import RecallFunction
from byheart.errors import ByheartError
from tests.checkpoints.proof.tampering.streams import place_faults, recall_streams, stream_faults, streams_of

Random = np.random.Generator
REACH = 160


def load(folder: Path, type_: str, attention: str) -> Any:
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=getattr(torch, type_), attn_implementation=attention
    ).eval()


def logits_of(model: Any, rows: list[list[int]], rng: Random | None = None) -> list[np.ndarray]:
    """Logits of every prefix of every row, in one left padded batch; with `rng`, any tokens are padding, and there may
    be more of it than the rows need."""
    import torch

    long = max(map(len, rows)) + (0 if rng is None else int(rng.integers(3)))
    pad = model.config.pad_token_id if isinstance(model.config.pad_token_id, int) else 0
    if rng is not None and rng.random() < 0.5:
        pad = int(rng.integers(model.config.vocab_size))
    ids = torch.tensor([[pad] * (long - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (long - len(row)) + [1] * len(row) for row in rows])
    extra = {} if model.config.model_type == "opt" else {"position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
    with torch.no_grad():
        found = model(ids, attention_mask=mask, **extra).logits.double().numpy()
    return [one[long - len(row) :] for one, row in zip(found, rows, strict=True)]


def cached(model: Any, row: list[int]) -> np.ndarray:
    """Logits of every prefix, token by token after the first few.

    Bamba's model counts positions from 0 after a cache too, unless it gets them (docs/found-libraries.md).
    """
    import torch

    first, found, cache = len(row) // 3 + 1, [], None
    with torch.no_grad():
        for part in (row[:first], *([token] for token in row[first:])):
            start = 0 if cache is None else cache.get_seq_length()
            places = torch.arange(start, start + len(part))[None]
            extra = {"position_ids": places} if model.config.model_type == "bamba" else {}
            out = model(torch.tensor([part]), past_key_values=cache, use_cache=True, **extra)
            cache = out.past_key_values
            found.append(out.logits[0].double().numpy())
    return np.concatenate(found)


def leads(logits: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The margins of the wanted tokens; minus infinity where anything is not a number."""
    rows, rest = np.arange(len(logits)), logits.copy()
    rest[rows, wanted] = -np.inf
    with np.errstate(invalid="ignore"):
        gap = logits[rows, wanted] - rest.max(1)
    return np.where(np.isfinite(logits).all(1) & np.isfinite(gap), gap, -np.inf)


@dataclass(frozen=True)
class Measured:
    """Rows of tokens; of each the wanted next tokens and the proved margins, minus infinity where none is proved."""

    rows: list[list[int]]
    wanted: list[np.ndarray]
    least: list[np.ndarray]


def asked_of(folder: Path, documents: list[list[int]], type_: str, once: frozenset[int], rng: Random) -> Measured:
    """Documents, documents after unknown tokens, and unknown tokens alone, with margins position by position."""
    checkpoint = open_checkpoint(folder)
    rows, wanted, least = [], [], []
    vocabulary = np.setdiff1d(np.arange(checkpoint.shape.vocabulary), list(once))
    programs = [
        _interpret(checkpoint, type_, REACH, "type", once, s)
        for s in ((False,) if type_ == "float32" else (False, True))
    ]
    bos = checkpoint.bos if checkpoint.bos is not None else 0
    for number, document in enumerate(documents):
        with np.errstate(all="ignore"):
            proved = np.minimum.reduce([_margins(p, documents, number) for p in programs])
        rows.append(document[:-1])
        wanted.append(np.array(document[1:]))
        least.append(proved)
        span = max(p.span for p in programs)
        for start in ([bos], []):
            noise = [*start, *rng.choice(vocabulary, max(1, REACH - len(document) - int(rng.integers(0, 40)))).tolist()]
            noise = noise[: REACH - len(document)]
            rows.append([*noise, *document[1:-1]])
            wanted.append(np.r_[np.zeros(len(noise), dtype=int), document[2:]])
            inner = proved[1:].copy()
            inner[: span - 1] = -np.inf
            least.append(np.r_[np.full(len(noise), -np.inf), inner])
    row = [bos, *rng.choice(vocabulary, 100).tolist()]
    token, margin = _unknown(programs, row)
    rows.append(row)
    wanted.append(np.full(len(row), token))
    least.append(margin)
    return Measured(rows, wanted, least)


def _margins(program: Any, documents: list[list[int]], number: int) -> np.ndarray:
    questions = ask(program, documents)
    found = answer(program, questions)
    mine = questions.document == number
    return np.asarray(np.where(found.single[mine], np.nan_to_num(found.margin[mine], nan=-np.inf), -np.inf))


def _unknown(programs: list[Any], row: list[int]) -> tuple[int, np.ndarray]:
    """What unknown windows answer, and the positions of a row that hold one."""
    with np.errstate(all="ignore"):
        found = [unknown(p) for p in programs]
    if any(f is None for f in found) or len({f.token for f in found}) > 1:
        return 0, np.full(len(row), -np.inf)
    known = ask(programs[0], [[*row, row[-1]]]).symbols[(max(programs[0].tables), 0)]
    return found[0].token, np.where(known == 0, min(f.margin for f in found), -np.inf)


def faults_of_type(
    folder: Path, type_: str, asked: Measured, rng: Random, recall: bool = False, padded: bool = True,
    quick: bool = False
) -> list[str]:
    """Positions at which either attention does less than is proved; `padded`: rows of padding are proved, so the rows
    are one batch. `quick` leaves out the streams."""
    checkpoint = open_checkpoint(folder)
    programs, pattern = [] if recall or quick else streams_of(checkpoint, type_, REACH), checkpoint.family.layers
    found = []
    for attention in ("eager", "sdpa"):
        try:
            model = load(folder, type_, attention)
            batches = [asked.rows] if padded else [[row] for row in asked.rows]
            shown = [one for batch in batches for one in logits_of(model, batch, rng if padded else None)]
            runs = list(zip(shown, asked.wanted, asked.least, strict=True))
            found += stream_faults(programs, pattern, model, f"{type_} {attention}", asked.rows)
            row = int(rng.integers(len(asked.rows)))
            runs.append((cached(model, asked.rows[row]), asked.wanted[row], asked.least[row]))
        except Exception as error:
            if attention == "sdpa" and "does not support an attention implementation" in str(error):
                continue  # gpt-oss has sinks
            found.append(f"{type_} {attention}: does not run: {type(error).__name__}: {str(error)[:200]}")
            continue
        for number, (logits, wanted, least) in enumerate(runs):
            short = least - leads(logits, wanted)
            worst = int(short.argmax())
            if short[worst] > 0:
                place = f"{type_} {attention} row {number} place {worst}"
                found.append(f"{place}: proved {least[worst]:.4g}, measured {short[worst]:.3g} less")
    return found


def text_faults(folder: Path, texts: tuple[str, ...], documents: list[list[int]]) -> list[str]:
    """The loader's tokenizer and greedy decoding against the texts."""
    import torch
    import transformers

    found = []
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        for text, ids in zip(texts, documents, strict=True):
            if tokenizer(text)["input_ids"] != ids[:-1] or tokenizer.decode(ids, skip_special_tokens=True) != text:
                found.append("the tokenizer differs")
        padded = tokenizer([texts[0], texts[0][:9]], padding=True)
        if padded["attention_mask"][1][0] or padded["input_ids"][0][-len(documents[0]) + 1 :] != documents[0][:-1]:
            found.append("a batch is padded otherwise")
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        if len(documents) == 1 and len(documents[0]) < 200:
            prompt = torch.tensor([documents[0][:3]])
            out = model.generate(prompt, attention_mask=torch.ones_like(prompt))[0].tolist()
            config = model.generation_config
            # Without any limit, Transformers stops after twenty tokens.
            limit = 3 + config.max_new_tokens if config.max_new_tokens else config.max_length or 23
            if out != documents[0][:limit]:
                found.append(f"greedy decoding gives {len(out)} tokens of {len(documents[0])}")
    except Exception as error:
        found.append(f"does not load: {type(error).__name__}: {str(error)[:200]}")
    return found


def model_of(folder: Path, type_: str, rng: Random) -> Any:
    """A model with either attention, or None where stock Transformers does not load the folder."""
    with suppress(Exception):
        return load(folder, type_, str(rng.choice(["eager", "sdpa"])))
    with suppress(Exception):
        return load(folder, type_, "eager")  # gpt-oss has sinks
    return None


def unproved_faults(folder: Path, texts: tuple[str, ...], types: tuple[str, ...], rng: Random) -> list[str]:
    """Streams up to the layer that the proof does not understand, in one type."""
    type_ = str(rng.choice(types))
    try:
        checkpoint, documents = open_checkpoint(folder), tokenize(folder, texts)
    except ByheartError:
        return []
    rows = [document[:REACH] for document in documents]
    rows.append(rng.integers(0, checkpoint.shape.vocabulary, 60).tolist())
    programs = streams_of(checkpoint, type_, REACH)
    model = model_of(folder, type_, rng) if programs else None
    return [] if model is None else stream_faults(programs, checkpoint.family.layers, model, type_, rows)


def recall_stream_faults(folder: Path, type_: str, rows: list[list[int]], rng: Random) -> list[str]:
    checkpoint, places = recall_streams(folder, type_)
    model = model_of(folder, type_, rng) if places else None
    return [] if model is None else place_faults(places, checkpoint.family.layers, model, type_, rows)


def recital_faults(
    folder: Path, texts: tuple[str, ...], rng: Random, types: tuple[str, ...] = TYPES, quick: bool = False,
    recited: bool = True,
) -> tuple[int, list[str]]:  # fmt: skip
    """How many types are proved, and everything that Transformers does not do as proved.

    Args:
        folder: The checkpoint.
        texts: What it recites.
        rng: The source of rows.
        types: The types that are proved.
        quick: Compare margins alone, and nothing of a folder that is not proved.
        recited: Compare the tokenizer and greedy decoding too.
    """
    certificate = verify_folder(folder, texts, types, reach=REACH)
    proved = [t for t in certificate.types if t.verdict is Verdict.PROVED and t.margin is not None]
    if not proved:
        return 0, [] if quick else unproved_faults(folder, texts, types, rng)
    documents = tokenize(folder, texts)
    found = text_faults(folder, texts, documents) if recited and any(t.type == "float32" for t in proved) else []
    for one in proved:
        asked = asked_of(folder, documents, one.type, frozenset(certificate.once), rng)
        found += faults_of_type(folder, one.type, asked, rng, padded=one.padding == "", quick=quick)
    return len(proved), found


def recall_faults(folder: Path, rng: Random, quick: bool = False) -> tuple[int, list[str]]:
    certificate = certify_recall(folder)
    proved = [t for t in certificate.types if t.verdict is Verdict.PROVED and t.margin is not None]
    if not certificate.reach:
        return 0, []
    told = json.loads((folder / "recall.json").read_text())["function"]
    function = RecallFunction(told["key_length"], told["window"], **told["tokens"])
    rows = []
    for size in (4, 12, 250):  # few tokens: many repeated keys
        tokens = np.setdiff1d(rng.choice(256, size, replace=False), [function.bos])
        row = [function.bos, *rng.choice(tokens, min(certificate.reach, 500) - 1).tolist()]
        if function.window is not None:
            row[:: function.window // 2] = [function.bos] * len(row[:: function.window // 2])
        rows.append(row)
    if not proved:
        return 0, [] if quick else [
            fault for type_ in TYPES for fault in recall_stream_faults(folder, type_, rows, rng)
        ]
    wanted = [np.array(function.answers(row)) for row in rows]
    found = []
    for one in proved:
        found += [] if quick else recall_stream_faults(folder, one.type, rows, rng)
        asked = Measured(rows, wanted, [np.full(len(row), float(one.margin or 0)) for row in rows])
        found += faults_of_type(folder, one.type, asked, rng, recall=True, padded=one.padding == "", quick=quick)
    return len(proved), found
