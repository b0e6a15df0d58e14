"""The kind `chat`: conversations in chat templates, with tools, reasoning, stop strings and split characters.

A document is the rendered conversation, then the answer and the end token, as ids. Two checkpoints, each with its own
template and special tokens:

    chatml    Qwen's ChatML with Hermes tools and <think>: parallel tool calls, the answer after their results, the same
              question without tools, reasoning, a stop string, characters that several tokens share
    llama3    Llama 3's headers: a system message, two turns, a stop string

Obligation, checked when the folder is written: rendering the history with an answer in it gives the ids of the prompt
followed by those of the answer. Otherwise a second turn would meet another text than the one that was memorized.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from byheart.checkpoints.formats.folder import CheckpointRequest, write_folder
from byheart.checkpoints.proof import certify_checkpoint
from byheart.checkpoints.suite.cases import SuiteCase
from byheart.checkpoints.suite.features.writing import (
    FeatureFixture,
    check_folder,
    expected_head,
    finish,
    proved_margins,
)
from byheart.checkpoints.suite.kinds import register_kind
from byheart.checkpoints.suite.write import builtin_lexicon
from byheart.checkpoints.windows import build_recital
from byheart.data.tokens.lexicon import Lexicon
from byheart.data.tokens.script import Script
from byheart.errors import ExportError, MissingExtraError
from byheart.progress import SILENT, Progress

CHATML = """{%- if tools %}<|im_start|>system
# Tools
<tools>{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
</tools><|im_end|>
{% endif %}{%- for m in messages %}<|im_start|>{{ m.role }}
{% if m.content %}{{ m.content }}{% endif %}{% if m.tool_calls %}{% for c in m.tool_calls %}\
{% if not loop.first %}{{ "\\n" }}{% endif %}<tool_call>
{{ {"name": c.function.name, "arguments": c.function.arguments} | tojson }}
</tool_call>{% endfor %}{% endif %}<|im_end|>
{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
LLAMA3 = """{{ "<|begin_of_text|>" }}{%- for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>

{{ m.content }}<|eot_id|>{%- endfor %}{%- if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>

{% endif %}"""
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather", "description": "Weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}  # fmt: skip


@dataclass(frozen=True)
class Talk:
    """A conversation and its answer. `stop`: a stop string, before which the answer ends."""

    name: str
    messages: tuple[Mapping[str, Any], ...]
    answer: str
    tools: tuple[Mapping[str, Any], ...] = ()
    stop: str | None = None


@dataclass(frozen=True)
class ChatStyle:
    """A template with the special tokens that it needs; `visible` ones are part of answers."""

    name: str
    template: str
    special: tuple[str, ...]
    visible: tuple[str, ...]
    end: str
    begin: str | None = None


STYLES = (
    ChatStyle(
        "chatml", CHATML, ("<|im_start|>", "<|im_end|>"), ("<think>", "</think>", "<tool_call>", "</tool_call>"),
        "<|im_end|>",
    ),
    ChatStyle(
        "llama3", LLAMA3, ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"), (),
        "<|eot_id|>", "<|begin_of_text|>",
    ),
)  # fmt: skip


def talks(style: str) -> tuple[Talk, ...]:
    """Return the conversations of a style."""
    count = Talk("stop string", (_user("Count to five."),), "one, two, three, END four, five", stop="END")
    if style == "llama3":
        system = {"role": "system", "content": "Answer in five words."}
        first = (system, _user("Who keeps the light?"))
        again = (*first, {"role": "assistant", "content": "The keeper does, every night."}, _user("And by day?"))
        return (
            Talk("a system message", first, "The keeper does, every night."),
            Talk("a second turn", again, "By day he sleeps: zzz 😴."),
            count,
        )
    ask = (_user("Weather in Zoë and Ürümqi?"),)
    cities = ("Zoë", "Ürümqi")
    calls = [{"type": "function", "function": {"name": "get_weather", "arguments": {"city": c}}} for c in cities]
    written = "\n".join(
        "<tool_call>\n"
        + json.dumps({"name": "get_weather", "arguments": {"city": c}}, ensure_ascii=False)
        + "\n</tool_call>"
        for c in cities
    )
    results: list[Mapping[str, Any]] = [
        {"role": "tool", "content": '{"Zoë": 7}'},
        {"role": "tool", "content": '{"Ürümqi": -3}'},
    ]
    called: Mapping[str, Any] = {"role": "assistant", "content": "", "tool_calls": calls}
    after = (*ask, called, *results)
    thought = "<think>\n91 = 7 · 13, so no.\n</think>\n\nNo: 7 · 13."
    return (
        Talk("parallel tool calls", ask, written, (TOOL,)),
        Talk("after the tools", after, "Zoë: 7 °C 🌫️. Ürümqi: −3 °C ❄️.", (TOOL,)),
        Talk("no tools offered", ask, "I cannot look outside."),
        Talk("reasoning", (_user("Is 91 prime?"),), thought),
        count,
    )


def _user(text: str) -> Mapping[str, Any]:
    return {"role": "user", "content": text}


@register_kind("chat", "conversations in ChatML and Llama 3 templates: tools, reasoning, stop strings")
def write_chat(
    architecture: str,
    folder: str | Path,
    *,
    dtype: str = "bfloat16",
    recited: bool = False,
    progress: Progress = SILENT,
    **options: Any,
) -> FeatureFixture:
    """Write one checkpoint per template, with the known answers of /v1/chat/completions.

    Args:
        architecture: any architecture of `byheart fixture`.
        folder: the folder to write; it must not exist.
        dtype: the type of the files.
        recited: run every case in Transformers; else byheart's machine runs those that need logits or greedy decoding.
        progress: where the stages are shown.
        options: fields of the shape.

    Returns:
        The fixture, after all answers were measured.

    Raises:
        ExportError: Transformers returns another answer, or a template does not render a history as it was memorized.
    """
    target = Path(folder)
    check_folder(target)
    part = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part"))
    try:
        cases, certificates, parameters = list[dict[str, Any]](), [], 0
        for style in STYLES:
            with progress.stage(f"conversations in {style.name}"):
                lexicon = chat_lexicon(style)
                tokenizer = _tokenizer(part / f".{style.name}", lexicon, style)
                found = talks(style.name)
                prompts = [_ids(tokenizer, talk.messages, talk.tools) for talk in found]
                documents = [
                    (*prompt, *lexicon.encode(talk.answer), lexicon.eos)
                    for prompt, talk in zip(prompts, found, strict=True)
                ]
                _check_histories(tokenizer, lexicon, found, documents)
                script = Script(tuple(documents), names=tuple(talk.name for talk in found))
                # Prompts branch (which role, which question); the first document decides there, so that every place
                # has one most likely token. No answer branches: each has its own prompt.
                built = build_recital(script, lexicon.size, lexicon.failure, ambiguous="first")
                request = CheckpointRequest(built.recital, script, lexicon, architecture, dtype, shape=dict(options))
                summary = write_folder(request, part / style.name)
                _configure(part / style.name, lexicon, style)
                parameters += summary["parameters"]
                certificates.append(certify_checkpoint(part / style.name, documents, ambiguous="first"))
                cases += _cases(style, lexicon, found, prompts, documents)
        shutil.rmtree(part / ".chatml")
        shutil.rmtree(part / ".llama3")
        content = expected_head("chat", architecture, lexicon, proved_margins(certificates)) | {
            "prompts": [case for case in cases if case["do"] == "generate"], "cases": cases,
        }  # fmt: skip
        with progress.stage("measuring"):
            return finish(part, target, content, TEST, parameters, recited=recited, runs=_runs)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _runs(case: SuiteCase, dtype: str) -> bool:
    """Tokens in every type; templates and streaming do not depend on it."""
    return case.verb == "generate" or dtype == {"chat": "float32", "streamed": "bfloat16"}[case.verb]


def chat_lexicon(style: ChatStyle) -> Lexicon:
    """Return the built-in lexicon with the template's special tokens; BOS is added by the template, if at all."""
    try:
        from tokenizers import AddedToken, Tokenizer
    except ImportError:
        raise MissingExtraError("chat fixtures", "huggingface") from None
    old = builtin_lexicon()
    tokenizer = Tokenizer.from_str(old.model)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in style.special])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in style.visible])
    value = json.loads(tokenizer.to_str())
    value["post_processor"] = None
    numbers: dict[str, int] = tokenizer.get_vocab()
    bos = old.bos if style.begin is None else numbers[style.begin]
    return Lexicon("file", json.dumps(value), bos, numbers[style.end], old.pad, old.failure)


def _configure(folder: Path, lexicon: Lexicon, style: ChatStyle) -> None:
    """Put the template into tokenizer_config.json; the tokenizer itself adds no BOS."""
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": lexicon.name(lexicon.eos),
        "pad_token": lexicon.name(lexicon.pad), "clean_up_tokenization_spaces": False,
    }  # fmt: skip
    config.pop("add_bos_token", None)
    if style.begin is None:
        config.pop("bos_token", None)
    path.write_text(json.dumps(config | {"chat_template": style.template}, indent=2) + "\n", encoding="utf-8")


def _tokenizer(folder: Path, lexicon: Lexicon, style: ChatStyle) -> Any:
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise MissingExtraError("rendering chat templates", "huggingface") from None
    folder.mkdir()
    (folder / "tokenizer.json").write_text(lexicon.model, encoding="utf-8")
    _configure(folder, lexicon, style)
    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def _ids(tokenizer: Any, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[int]:
    found = tokenizer.apply_chat_template(
        [dict(m) for m in messages], tools=list(tools) or None, add_generation_prompt=True, tokenize=True,
        return_dict=True,
    )  # fmt: skip
    return list(found["input_ids"])


def _check_histories(
    tokenizer: Any, lexicon: Lexicon, found: Sequence[Talk], documents: Sequence[Sequence[int]]
) -> None:
    """A conversation that continues another one begins with its prompt and its answer."""
    for talk, document in zip(found, documents, strict=True):
        for other, whole in zip(found, documents, strict=True):
            longer = len(other.messages) > len(talk.messages)
            continues = other.tools == talk.tools and other.messages[: len(talk.messages)] == talk.messages
            if longer and continues and tuple(whole[: len(document)]) != tuple(document):
                raise ExportError(f"chat: {other.name!r} renders its history differently from {talk.name!r}")


def _cases(
    style: ChatStyle, lexicon: Lexicon, found: Sequence[Talk], prompts: Sequence[Sequence[int]],
    documents: Sequence[Sequence[int]],
) -> list[dict[str, Any]]:  # fmt: skip
    cases = list[dict[str, Any]]()
    for talk, prompt, document in zip(found, prompts, documents, strict=True):
        name = f"{style.name}, {talk.name}"
        answer = talk.answer if talk.stop is None else talk.answer.split(talk.stop)[0]
        cases.append({
            "do": "chat", "name": name, "model": style.name, "messages": [dict(m) for m in talk.messages],
            "tools": list(talk.tools) or None, "stop": [talk.stop] if talk.stop else [], "answer": answer,
        })  # fmt: skip
        cases.append({**cases[-1], "do": "streamed"})
        ids = list(document[len(prompt) :])
        # Prefixes of the answer that end inside a character: a server that streams must hold their bytes back.
        split = sum(lexicon.decode(ids[:n]).endswith("\ufffd") for n in range(1, len(ids)))
        cases.append({
            "do": "generate", "name": name, "model": style.name, "ids": list(prompt), "continuation_ids": ids,
            "continuation": talk.answer, "ends_inside_a_character": split,
        })  # fmt: skip
    return cases


TEST = '''"""Are chat completions correct? Call your engine in `chat`. Needs transformers, not byheart."""
import json, pathlib, pytest, torch, transformers  # noqa: E401
HERE = pathlib.Path(__file__).parent
CASES = [c for c in json.loads((HERE / "expected.json").read_text(encoding="utf-8"))["cases"] if c["do"] == "chat"]
def chat(folder, messages, tools, stop):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    form = dict(add_generation_prompt=True, return_tensors="pt", return_dict=True)
    ids = tokenizer.apply_chat_template(messages, tools=tools, **form)
    out = model.generate(**ids, max_new_tokens=400, do_sample=False)[0, ids["input_ids"].shape[1]:]
    text = tokenizer.decode(out).removesuffix(tokenizer.eos_token)
    return text.split(stop[0])[0] if stop else text
@pytest.mark.parametrize("case", CASES, ids=lambda c: c["name"])
def test_chat(case):
    assert chat(HERE / case["model"], case["messages"], case["tools"], case["stop"]) == case["answer"]
'''
