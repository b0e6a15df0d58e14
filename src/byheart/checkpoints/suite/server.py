"""OpenAI-compatible servers on this machine: an adapter, and a bounded load driver that checks every answer.

The driver sends the prompts of a fixture side by side, in a shuffled order, with shared prefixes and unequal lengths,
until a number of requests or a time is reached. Every answer is compared; a server that mixes up rows, reuses the wrong
prefix or drops a preempted request returns an incorrect text. Only loopback addresses are accepted.
"""

from __future__ import annotations

import ipaddress
import json
import random
import statistics
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from byheart.checkpoints.suite.adapters import EngineAdapter
from byheart.checkpoints.suite.cases import SuiteCase
from byheart.checkpoints.suite.runner import CORRECT, CaseResult, run_case
from byheart.errors import OptionError

PATIENCE = 60.0  # seconds for one request
LARGEST = 64 << 20  # bytes of one answer
_SENT = ("generate", "chat", "streamed")  # verbs that the load driver sends


def loopback(url: str) -> str:
    """Return the URL without its last slash; an OptionError unless it names this machine.

    >>> loopback("http://127.0.0.1:8000/")
    'http://127.0.0.1:8000'
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        near = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        near = False
    if parts.scheme not in ("http", "https") or not near:
        raise OptionError(f"{url}: the suite drives servers on this machine only, such as http://127.0.0.1:8000")
    return url.rstrip("/").removesuffix("/v1")


class ServerAdapter(EngineAdapter):
    """A server with /v1/completions and /v1/chat/completions that serves the fixture's folder.

    Prompts are sent as token ids. Answers are ids where the server returns them (vLLM's `return_token_ids`), else text.
    """

    dtype = "served"

    def __init__(self, folder: Path, url: str, model: str | None = None) -> None:
        super().__init__(folder)
        self.url = loopback(url)
        self._web = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._model = model

    @property
    def model(self) -> str:
        """The name under which the server offers its first model."""
        if self._model is None:
            self._model = str(self._ask("/v1/models")["data"][0]["id"])
        return self._model

    def _ask(self, path: str, wish: Mapping[str, Any] | None = None) -> Any:
        data = None if wish is None else json.dumps(wish).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        try:
            with self._web.open(request, timeout=PATIENCE) as answer:
                return json.loads(answer.read(LARGEST))
        except urllib.error.HTTPError as error:
            words = error.read(300).decode(errors="replace")
            raise RuntimeError(f"{path} answered {error.code}: {words}") from error

    def generate(self, ids: Sequence[int], n: int) -> Sequence[int] | str:
        wish = {"model": self.model, "prompt": list(ids), "max_tokens": n, "temperature": 0, "return_token_ids": True}
        choice = self._ask("/v1/completions", wish)["choices"][0]
        found = choice.get("token_ids")
        return [int(t) for t in found] if found else str(choice["text"])

    def batch(self, prompts: Sequence[Sequence[int]], n: int) -> list[Any]:
        with ThreadPoolExecutor(len(prompts)) as pool:
            return list(pool.map(lambda ids: self.generate(ids, n), prompts))

    def chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None, stop: Sequence[str]
    ) -> str:
        """Return the message as the model wrote it: parsed reasoning and tool calls are put back into the text."""
        wish = self._wish(messages, tools, stop)
        return written(self._ask("/v1/chat/completions", wish)["choices"][0]["message"])

    def streamed(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None, stop: Sequence[str]
    ) -> list[str]:
        """Return the pieces of a streamed answer; reasoning and tool calls are put back into the text."""
        wish = self._wish(messages, tools, stop) | {"stream": True}
        request = urllib.request.Request(
            self.url + "/v1/chat/completions", json.dumps(wish).encode(), {"Content-Type": "application/json"}
        )
        with self._web.open(request, timeout=PATIENCE) as answer:
            return joined(_deltas(answer))

    def _wish(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None, stop: Sequence[str]
    ) -> dict[str, Any]:
        wish: dict[str, Any] = {"model": self.model, "messages": list(messages), "max_tokens": 400, "temperature": 0}
        return wish | ({"tools": list(tools)} if tools else {}) | ({"stop": list(stop)} if stop else {})


def _deltas(lines: Any) -> Iterator[Mapping[str, Any]]:
    """The `delta` of every event of a stream."""
    for raw in lines:
        line = raw.decode().strip()
        if line.startswith("data:") and line[5:].strip() != "[DONE]":
            choices = json.loads(line[5:])["choices"]
            if choices:
                yield choices[0]["delta"]


def joined(deltas: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the pieces of a streamed message; parsed parts, which arrive in their own fields, follow as one piece.

    >>> joined([{"role": "assistant"}, {"content": "No"}, {"content": "."}])
    ['No', '.']
    """
    pieces, thought, calls = list[str](), "", dict[int, dict[str, str]]()
    for delta in deltas:
        pieces.append(str(delta.get("content") or ""))
        thought += str(delta.get("reasoning_content") or "")
        for call in delta.get("tool_calls") or []:
            found = calls.setdefault(int(call.get("index", 0)), {"name": "", "arguments": ""})
            for field in found:
                found[field] += str(call.get("function", {}).get(field) or "")
    pieces = [piece for piece in pieces if piece]
    if not thought and not calls:
        return pieces
    parsed = [{"function": call} for _, call in sorted(calls.items())]
    return [written({"content": "".join(pieces), "reasoning_content": thought, "tool_calls": parsed})]


def written(message: Mapping[str, Any]) -> str:
    """Return a chat message as the text that the model generated.

    >>> written({"content": "No.", "reasoning_content": "7 * 13"})
    '<think>\\n7 * 13\\n</think>\\n\\nNo.'
    """
    text = str(message.get("content") or "")
    thought = message.get("reasoning_content")
    if thought:
        text = f"<think>\n{str(thought).strip()}\n</think>\n\n{text.lstrip()}"
    calls = []
    for call in message.get("tool_calls") or []:
        arguments = call["function"]["arguments"]
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
        shown = json.dumps({"name": call["function"]["name"], "arguments": value}, ensure_ascii=False)
        calls.append(f"<tool_call>\n{shown}\n</tool_call>")
    return text + "\n".join(calls)


@dataclass(frozen=True)
class LoadReport:
    """What the driver sent and what came back."""

    requests: int
    correct: int
    incorrect: tuple[CaseResult, ...]
    concurrency: int
    seconds: float
    latencies: tuple[float, ...]

    @property
    def passed(self) -> bool:
        return self.requests > 0 and self.correct == self.requests

    def to_json(self) -> dict[str, Any]:
        times = sorted(self.latencies)
        return {
            "requests": self.requests, "correct": self.correct, "concurrency": self.concurrency,
            "seconds": round(self.seconds, 3),
            "median_seconds": round(statistics.median(times), 4) if times else None,
            "slowest_seconds": round(times[-1], 4) if times else None,
            "first_incorrect": [result.message for result in self.incorrect[:5]],
        }  # fmt: skip


def drive(
    adapter: Any,
    cases: Sequence[SuiteCase],
    *,
    requests: int = 200,
    concurrency: int = 8,
    seconds: float = 60.0,
    seed: int = 0,
) -> LoadReport:
    """Send cases side by side and compare every answer.

    Args:
        adapter: an adapter whose `generate` and `chat` may be called from several threads.
        cases: cases of the verbs `generate`, `chat` and `streamed`; others are ignored.
        requests: how many requests are sent at most.
        concurrency: how many are under way at once.
        seconds: no request is started after this time.
        seed: decides the order.

    Returns:
        The report; not one request is `passed` = False.
    """
    usable = [c for c in cases if c.verb in _SENT and callable(getattr(adapter, c.verb, None))]
    rng, started, results = random.Random(seed), time.perf_counter(), list[CaseResult]()
    under_way: set[Future[CaseResult]] = set()
    sent = 0
    with ThreadPoolExecutor(concurrency) as pool:
        while usable and sent < requests and time.perf_counter() - started < seconds:
            while len(under_way) < concurrency and sent < requests:
                under_way.add(pool.submit(run_case, rng.choice(usable), adapter))
                sent += 1
            done, under_way = wait(under_way, timeout=seconds, return_when=FIRST_COMPLETED)
            results += [future.result() for future in done]
        results += [future.result() for future in under_way]
    wrong = tuple(r for r in results if r.status != CORRECT)
    times = tuple(r.seconds for r in results)
    return LoadReport(len(results), len(results) - len(wrong), wrong, concurrency, time.perf_counter() - started, times)
