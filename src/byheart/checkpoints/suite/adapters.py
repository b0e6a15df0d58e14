"""What the suite calls: an adapter for an engine, and ready ones for every engine that byheart opens.

An engine's author writes a class with `generate`; every other method is optional, and cases that need a missing one are
skipped with its name. `EngineAdapter` documents all methods. An adapter may return token ids or text: a server that
returns text only is compared by text.

    class Mine:
        def __init__(self, folder): self.model = my_engine.load(folder)
        def generate(self, ids, n): return self.model.greedy(ids, max_new_tokens=n)
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from byheart.checkpoints.engines._base import Reply, Session, find
from byheart.checkpoints.engines.threads import single_thread
from byheart.checkpoints.formats.inputs import task_of
from byheart.errors import MissingExtraError, OptionError

Opener = Callable[[Path], Any]


# What an engine does where a model continues more than a prompt, by task; see TransformersSession.
VERBS = {
    "causal": (), "masked": ("masked",), "seq2seq": ("translated", "translated_logits"),
    "picture": ("pictured", "pictured_logits"),
}  # fmt: skip


class EngineAdapter:
    """The methods that cases call. Only `generate` is required; remove or omit the others freely.

    Args:
        folder: a checkpoint folder (config.json, model.safetensors, tokenizer.json).
    """

    dtype = "float32"  # the type that the engine computes in: it decides the tolerance of logits

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def generate(self, ids: Sequence[int], n: int) -> Sequence[int] | str:
        """Return up to n tokens that follow `ids` greedily, up to and including the end token."""
        raise NotImplementedError

    def close(self) -> None:
        """Release the engine."""


class SessionAdapter(EngineAdapter):
    """An engine of `byheart.checkpoints.engines`."""

    def __init__(self, folder: Path, session: Session, dtype: str, resources: ExitStack) -> None:
        super().__init__(folder)
        self.session, self.dtype, self._resources = session, dtype, resources
        if session.shows_logits:
            self.logits, self.logprobs = self._logits, self._logprobs
        if session.batches:
            self.batch = self._batch

    def generate(self, ids: Sequence[int], n: int) -> Any:
        return self.session.generate([list(ids)], n)[0]

    def _batch(self, prompts: Sequence[Sequence[int]], n: int) -> list[Reply]:
        return self.session.generate([list(p) for p in prompts], n)

    def _logits(self, pieces: Sequence[Sequence[int]]) -> Any:
        """(tokens, vocabulary); None where the engine does not show logits of a text in pieces."""
        return self.session.logits(pieces[0]) if len(pieces) == 1 else self.session.continued(pieces)

    def _logprobs(self, ids: Sequence[int], count: int) -> list[tuple[int, float]]:
        row = self.session.logits(ids)[-1].astype(np.float64)
        values = row - (row.max() + math.log(np.exp(row - row.max()).sum()))
        best = np.argsort(-values, kind="stable")[:count]
        return [(int(t), float(values[t])) for t in best]

    def close(self) -> None:
        self._resources.close()


class TransformersAdapter(SessionAdapter):
    """Transformers with all methods: adapters by PEFT, drafts, chat, constraints, beams, samplers."""

    _helper: tuple[Path, Any] | None = None  # the draft that was used last

    def __init__(self, folder: Path, session: Session, dtype: str, resources: ExitStack) -> None:
        super().__init__(folder, session, dtype, resources)
        for verb in VERBS[task_of(folder)]:
            setattr(self, verb, getattr(session, verb))

    @property
    def model(self) -> Any:
        return self.session.model  # type: ignore[attr-defined]

    def lora(self, adapter: Path | None, ids: Sequence[int], n: int) -> list[int]:
        with self._adapted([adapter]) as (model, names):
            return self._rows(model, [ids], n, names)[0]

    def lora_batch(self, adapters: Sequence[Path | None], prompts: Sequence[Sequence[int]], n: int) -> list[list[int]]:
        with self._adapted(adapters) as (model, names):
            return self._rows(model, prompts, n, names)

    def lora_merged(self, adapter: Path, ids: Sequence[int], n: int) -> list[int]:
        with self._adapted([adapter]) as (model, _):
            model.set_adapter(next(iter(model.peft_config)))
            model.merge_adapter()
            try:
                return self._rows(model, [ids], n, None)[0]
            finally:
                model.unmerge_adapter()

    def lora_logits(self, adapter: Path, ids: Sequence[int]) -> Any:
        """Return the logits after every prefix, unmerged."""
        import torch

        with self._adapted([adapter]) as (model, _), torch.inference_mode():
            return model(input_ids=torch.tensor([list(ids)])).logits[0].float().numpy()

    @contextmanager
    def _adapted(self, adapters: Sequence[Path | None]) -> Iterator[tuple[Any, list[str]]]:
        """The model with these adapters loaded, and the name of each row's adapter."""
        try:
            from peft import PeftModel
        except ImportError:
            raise MissingExtraError("adapters in Transformers", "lora") from None
        paths = list(dict.fromkeys(path for path in adapters if path is not None))
        if not paths:
            yield self.model, []
            return
        names = {path: f"a{k}" for k, path in enumerate(paths)}
        wrapped = PeftModel.from_pretrained(
            self.model, str(paths[0]), adapter_name=names[paths[0]], autocast_adapter_dtype=False
        )
        try:
            for path in paths[1:]:
                wrapped.load_adapter(str(path), adapter_name=names[path], autocast_adapter_dtype=False)
            wrapped.eval().to(self.model.dtype)
            yield wrapped, ["__base__" if path is None else names[path] for path in adapters]
        finally:
            wrapped.unload()
            with contextlib.suppress(AttributeError):
                del self.model.peft_config

    def _rows(self, model: Any, prompts: Sequence[Sequence[int]], n: int, names: list[str] | None) -> list[list[int]]:
        import torch

        pad, end = self.model.config.pad_token_id, self.model.config.eos_token_id
        longest = max(map(len, prompts))
        ids = torch.tensor([[pad] * (longest - len(p)) + list(p) for p in prompts])
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
        extra = {"adapter_names": names} if names else {}
        with torch.inference_mode():
            out = model.generate(input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=n, **extra)
        rows = out[:, longest:].tolist()
        return [row[: row.index(end) + 1] if end in row else row for row in rows]

    def draft_sampled(
        self, draft: Path, ids: Sequence[int], n: int, k: int, temperature: float
    ) -> tuple[list[int], list[int], list[int]]:
        """Return the same with rejection sampling; margins of 24 nats leave nothing to chance."""
        return self.draft(draft, ids, n, k, do_sample=True, temperature=temperature, top_k=0)

    def draft(
        self, draft: Path, ids: Sequence[int], n: int, k: int, **how: Any
    ) -> tuple[list[int], list[int], list[int]]:
        """Return the text, and the tokens drafted and accepted in every step."""
        import torch

        torch.manual_seed(0)

        if self._helper is None or self._helper[0] != draft:
            settings = {"attention": str(self.model.config._attn_implementation)}
            opened = find("transformers").opener(Path(draft), self.dtype, settings)
            self._helper = (draft, opened.model)  # type: ignore[attr-defined]
        helper = self._helper[1]
        helper.generation_config.num_assistant_tokens_schedule = "constant"
        helper.generation_config.assistant_confidence_threshold = 0.0
        helper.generation_config.num_assistant_tokens = k
        with _observed("AssistedCandidateGenerator") as steps, torch.inference_mode():
            out = self.model.generate(
                torch.tensor([list(ids)]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                max_new_tokens=n, assistant_model=helper, **({"do_sample": False} | how),
            )  # fmt: skip
        return out[0, len(ids) :].tolist(), [s[0] for s in steps], [s[1] for s in steps]

    def lookup(self, ids: Sequence[int], n: int, k: int, ngram: int) -> tuple[list[int], list[int], list[int]]:
        import torch

        with _observed("PromptLookupCandidateGenerator") as steps, torch.inference_mode():
            out = self.model.generate(
                torch.tensor([list(ids)]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), do_sample=False,
                max_new_tokens=n, prompt_lookup_num_tokens=k, max_matching_ngram_size=ngram,
            )  # fmt: skip
        return out[0, len(ids) :].tolist(), [s[0] for s in steps], [s[1] for s in steps]

    def mtp(self, ids: Sequence[int], n: int) -> tuple[list[int], list[int], list[int]]:
        """Return the text, and the tokens that the multi-token prediction layer drafted and had accepted in every step.

        Transformers takes the layer from the file only if its number is that of the released checkpoint.
        """
        import torch

        self.model._keys_to_ignore_on_load_unexpected = [rf"model\.layers\.{self.model.config.num_hidden_layers}\."]
        with _observed("MTPCandidateGenerator") as steps, torch.inference_mode():
            out = self.model.generate(torch.tensor([list(ids)]), max_new_tokens=n, do_sample=False, use_mtp=True)
        ran = steps[1:]  # before the first one the target runs alone
        return out[0, len(ids) :].tolist(), [s[0] for s in ran], [s[1] for s in ran]

    def chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None, stop: Sequence[str]
    ) -> str:
        """Return the assistant's message as text, without the end token."""
        return self._chat(messages, tools, stop, None)

    def streamed(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None, stop: Sequence[str]
    ) -> list[str]:
        """Return the pieces of the message, as Transformers' streamer returns them."""
        pieces: list[str] = []
        whole = self._chat(messages, tools, stop, pieces)
        # The streamer does not stop before the end token or a stop string; a server does.
        return _cut(pieces, len(whole)) if "".join(pieces).startswith(whole) else pieces

    def _chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None, stop: Sequence[str],
        pieces: list[str] | None,
    ) -> str:  # fmt: skip
        import torch

        tokenizer = self._tokenizer
        ids = tokenizer.apply_chat_template(
            list(messages), tools=list(tools) if tools else None, add_generation_prompt=True, tokenize=True,
            return_tensors="pt", return_dict=True,
        )  # fmt: skip
        extra: dict[str, Any] = {"stop_strings": list(stop), "tokenizer": tokenizer} if stop else {}
        if pieces is not None:
            extra["streamer"] = _collector(tokenizer, pieces)
        with torch.inference_mode():
            out = self.model.generate(**ids, do_sample=False, max_new_tokens=400, **extra)
        text = str(tokenizer.decode(out[0, ids["input_ids"].shape[1] :], skip_special_tokens=False))
        text = text.removesuffix(str(tokenizer.eos_token))
        for word in stop:  # the servers of chat completions return the text before the stop string
            text = text.split(word)[0]
        return text

    @property
    def _tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.folder, local_files_only=True)

    def constrained(self, ids: Sequence[int], n: int, pattern: str) -> list[int]:
        """Greedy decoding in which every token must keep the text a prefix of a match of `pattern`."""
        import torch

        allowed = prefix_filter(self._tokenizer, pattern, len(ids), self.model.config.eos_token_id)
        with torch.inference_mode():
            out = self.model.generate(
                torch.tensor([list(ids)]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), do_sample=False,
                max_new_tokens=n, prefix_allowed_tokens_fn=lambda _, tokens: allowed(tokens.tolist()),
            )  # fmt: skip
        return list(out[0, len(ids) :].tolist())

    def schema(self, ids: Sequence[int], n: int, schema: Mapping[str, Any]) -> list[int]:
        """Greedy decoding under a JSON schema, by xgrammar."""
        import torch

        try:
            import xgrammar  # type: ignore[import-not-found]
        except ImportError:
            raise OptionError("a JSON schema in Transformers needs xgrammar; run: pip install xgrammar") from None
        end, size = self.model.config.eos_token_id, self.model.config.vocab_size
        info = xgrammar.TokenizerInfo.from_huggingface(self._tokenizer, vocab_size=size, stop_token_ids=[end])
        matcher = xgrammar.GrammarMatcher(xgrammar.GrammarCompiler(info).compile_json_schema(json.dumps(schema)))
        mask, reply = xgrammar.allocate_token_bitmask(1, size), list[int]()
        while len(reply) < n and not matcher.is_terminated():
            row = torch.from_numpy(np.array(self.session.logits([*ids, *reply])[-1:]))
            matcher.fill_next_token_bitmask(mask)
            xgrammar.apply_token_bitmask_inplace(row, mask)
            reply.append(int(row.argmax()))
            matcher.accept_token(reply[-1])
        return reply

    def penalized(self, ids: Sequence[int], n: int, settings: Mapping[str, float]) -> list[int]:
        """Greedy decoding with penalties, such as {"repetition_penalty": 1.2}."""
        import torch

        other = sorted(set(settings) - {"repetition_penalty"})
        if other:
            raise OptionError(f"Transformers has no {', '.join(other)}")
        with torch.inference_mode():
            out = self.model.generate(
                torch.tensor([list(ids)]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), do_sample=False,
                max_new_tokens=n, **settings,
            )  # fmt: skip
        return list(out[0, len(ids) :].tolist())

    def beams(self, ids: Sequence[int], n: int, width: int) -> list[list[int]]:
        """Return the sequences of the beams, best first, without length penalty."""
        import torch

        end, pad = self.model.config.eos_token_id, self.model.config.pad_token_id
        with torch.inference_mode():
            out = self.model.generate(
                torch.tensor([list(ids)]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), do_sample=False,
                max_new_tokens=n, num_beams=width, num_return_sequences=width, length_penalty=0.0, early_stopping=False,
                pad_token_id=pad,
            )  # fmt: skip
        rows = out[:, len(ids) :].tolist()
        return [row[: row.index(end) + 1] if end in row else row for row in rows]

    def sample(self, ids: Sequence[int], draws: int, settings: Mapping[str, float]) -> list[int]:
        """Return `draws` samples of the next token."""
        import torch

        torch.manual_seed(0)
        prompt = torch.tensor([list(ids)]).repeat(draws, 1)
        wish = {"top_k": 0, **settings}
        with torch.inference_mode():
            out = self.model.generate(
                prompt, attention_mask=torch.ones_like(prompt), do_sample=True, max_new_tokens=1, **wish
            )
        return list(out[:, -1].tolist())


def _collector(tokenizer: Any, pieces: list[str]) -> Any:
    """A streamer that appends every piece of text to `pieces`."""
    from transformers import TextStreamer

    class Collector(TextStreamer):  # type: ignore[misc]
        def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
            pieces.append(text)

    return Collector(tokenizer, skip_prompt=True, skip_special_tokens=False)


def _cut(pieces: Sequence[str], length: int) -> list[str]:
    """The pieces up to `length` characters."""
    found = []
    for piece in pieces:
        found.append(piece[:length])
        length -= len(found[-1])
    return [piece for piece in found if piece]


@contextmanager
def _observed(name: str) -> Iterator[list[list[int]]]:
    """Record [drafted, accepted] of every step of assisted generation, which Transformers does not return."""
    from transformers.generation import candidate_generator

    owner: Any = getattr(candidate_generator, name)
    steps: list[list[int]] = []
    get, update = owner.get_candidates, owner.update_candidate_strategy

    def observed_get(self: Any, input_ids: Any, *args: Any, **options: Any) -> Any:
        out = get(self, input_ids, *args, **options)
        steps.append([int(out[0].shape[1] - input_ids.shape[1]), 0])
        return out

    def observed_update(self: Any, input_ids: Any, scores: Any, num_matches: Any) -> Any:
        steps[-1][1] = int(num_matches)
        return update(self, input_ids, scores, num_matches)

    owner.get_candidates, owner.update_candidate_strategy = observed_get, observed_update
    try:
        yield steps
    finally:
        owner.get_candidates, owner.update_candidate_strategy = get, update


def prefix_filter(tokenizer: Any, pattern: str, start: int, end: int) -> Callable[[Sequence[int]], list[int]]:
    """Return the function ids -> allowed next tokens, for texts (after the first `start` tokens) that match `pattern`.

    A token that ends inside a character is allowed where some character may follow. Needs the package `regex`, which
    matches prefixes.
    """
    try:
        import regex
    except ImportError:
        raise MissingExtraError("constrained decoding", "huggingface") from None
    compiled = regex.compile(pattern)
    count = len(tokenizer)

    def allowed(ids: Sequence[int]) -> list[int]:
        reply = list(ids[start:])
        found = []
        for token in range(count):
            text = str(tokenizer.decode([*reply, token], skip_special_tokens=False))
            open_end = text.endswith("\ufffd")
            if token != end and compiled.fullmatch(text.rstrip("\ufffd") + ("é" if open_end else ""), partial=True):
                found.append(token)
        if compiled.fullmatch(str(tokenizer.decode(reply, skip_special_tokens=False))):
            found.append(end)
        return found or [end]

    return allowed


def engine_adapter(name: str, dtype: str | None = None, options: Mapping[str, str] | None = None) -> Opener:
    """Return the opener of a ready adapter.

    Args:
        name: an engine of `byheart.checkpoints.engines`, or the URL of an OpenAI-compatible server on this machine.
        dtype: the type that the engine computes in, or reads.
        options: settings of the engine.

    Returns:
        folder -> adapter.

    Raises:
        OptionError: unknown engine, type or option.
    """
    if re.match(r"https?://", name):
        from byheart.checkpoints.suite.server import ServerAdapter

        return lambda folder: ServerAdapter(folder, name)
    chosen = find(name)
    kind, settings = chosen.check(dtype, options or {})
    if chosen.version is None:
        raise MissingExtraError(f"running {name} ({chosen.packages[0]})", chosen.extra)

    def opened(folder: Path) -> SessionAdapter:
        resources = ExitStack()
        # Two threads of one engine spend minutes on waiting for each other where the cores are shared.
        resources.enter_context(single_thread())
        session = resources.enter_context(chosen.open(Path(folder), kind, settings))
        made = TransformersAdapter if name == "transformers" else SessionAdapter
        return made(Path(folder), session, kind, resources)

    return opened


def open_adapter(opener: Any, folder: Path) -> Any:
    """Call an opener (a class, a function, or the name of an engine) on a folder.

    Raises:
        OptionError: the adapter has no method `generate`.
    """
    chosen = engine_adapter(opener) if isinstance(opener, str) else opener
    adapter = chosen(folder)
    if not any(callable(getattr(adapter, verb, None)) for verb in ("generate", "chat")):
        raise OptionError(f"{adapter!r} has no method generate(ids, n), which returns the ids that follow")
    return adapter
