"""The adapter for servers and the load driver, against a server of the standard library."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from byheart.checkpoints.suite.cases import read_cases
from byheart.checkpoints.suite.runner import decode, run_cases
from byheart.checkpoints.suite.server import ServerAdapter, drive, joined, loopback, written
from byheart.errors import OptionError
from tests.checkpoints.suite.conftest import ToyEngine


@pytest.fixture
def served(small_fixture):
    engine, state = ToyEngine(small_fixture), {"ids": True, "fault": 0, "count": 0, "most": 0, "now": 0}
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self._answer({"data": [{"id": "toy"}]})

        def do_POST(self):
            wish = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                state["count"] += 1
                state["now"] += 1
                state["most"] = max(state["most"], state["now"])
                broken = state["fault"] and state["count"] % state["fault"] == 0
            assert wish["model"] == "toy" and wish["temperature"] == 0
            if wish.get("stream"):
                lines = [json.dumps({"choices": [{"delta": {"content": c}}]}) for c in ("He", "llo")]
                self._send("".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode())
            elif "messages" in wish:
                self._answer({"choices": [{"message": {"content": "Hello"}}]})
            else:
                said = engine.generate(wish["prompt"][1:] if broken else wish["prompt"], wish["max_tokens"])
                choice = {"text": decode(small_fixture, said)} | ({"token_ids": said} if state["ids"] else {})
                self._answer({"choices": [choice]})
            with lock:
                state["now"] -= 1

        def _answer(self, value):
            self._send(json.dumps(value).encode())

        def _send(self, data):
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", state
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("ids", [True, False])
def test_a_server_is_compared_by_ids_or_by_text(served, small_fixture, ids):
    url, state = served
    state["ids"] = ids
    found = list(run_cases(read_cases(small_fixture), lambda folder: ServerAdapter(folder, url)))
    assert {r.status for r in found if r.case.verb in ("generate", "batch")} == {"correct"}
    adapter = ServerAdapter(small_fixture, url)
    hello = [{"role": "user", "content": "Hi"}]
    assert adapter.chat(hello, None, []) == "Hello" and adapter.streamed(hello, None, []) == ["He", "llo"]


def test_the_driver_checks_every_answer_and_stops(served, small_fixture):
    url, state = served
    cases = read_cases(small_fixture)
    good = drive(ServerAdapter(small_fixture, url), cases, requests=40, concurrency=6)
    assert (
        good.passed and good.requests == 40 and 1 < state["most"] <= 12
    )  # the toy server counts a request until after its answer is sent
    state["fault"] = 7
    bad = drive(ServerAdapter(small_fixture, url), cases, requests=40, concurrency=6)
    assert not bad.passed and 1 <= len(bad.incorrect) <= 8 and bad.to_json()["first_incorrect"]
    short = drive(ServerAdapter(small_fixture, url), cases, requests=100_000, concurrency=2, seconds=0.2)
    assert 0 < short.requests < 100_000 and short.seconds < 10
    assert not drive(ServerAdapter(small_fixture, url), [], requests=5).passed


@pytest.mark.parametrize("url", ["http://192.0.2.1:8000", "http://name.invalid", "ftp://127.0.0.1", "file:///x"])
def test_only_this_machine(url):
    with pytest.raises(OptionError, match="this machine only"):
        loopback(url)


def test_parsed_messages_are_written_as_the_model_wrote_them():
    call = {"function": {"name": "f", "arguments": '{"city": "Zoë"}'}}
    text = '<tool_call>\n{"name": "f", "arguments": {"city": "Zoë"}}\n</tool_call>'
    assert written({"content": None, "tool_calls": [call, call]}) == f"{text}\n{text}"


def test_streamed_tool_calls_are_put_together():
    first = {"index": 0, "function": {"name": "f", "arguments": '{"city": '}}
    rest = {"index": 0, "function": {"arguments": '"Zoë"}'}}
    second = {"index": 1, "function": {"name": "g", "arguments": "{}"}}
    found = joined([{"role": "assistant"}, {"tool_calls": [first]}, {"tool_calls": [rest]}, {"tool_calls": [second]}])
    calls = ['{"name": "f", "arguments": {"city": "Zoë"}}', '{"name": "g", "arguments": {}}']
    assert found == ["\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in calls)]
