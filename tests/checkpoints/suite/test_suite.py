"""Fixtures: what the folder holds, that its test runs, and that the answers in it are right."""

import http.server
import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from click.testing import CliRunner

from byheart.checkpoints.engines import read_queries, recite
from byheart.checkpoints.suite import builtin_lexicon, builtin_text, check_logits, write_fixture
from byheart.checkpoints.suite import write as writing
from byheart.checkpoints.suite.expected import LEAST, prompts_of
from byheart.checkpoints.windows.tables import ANY
from byheart.cli import commands
from byheart.errors import ByheartError, ExportError
from tests.checkpoints.recital_folders import ARCHITECTURES, SHORT, copy_of, recital_folder

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def fixture(tmp_path_factory):
    """A short text, so that it is proved and recited in seconds; the built-in one is written in the slow tests."""
    return write_fixture("llama", tmp_path_factory.mktemp("fixture") / "tiny-llama", text=SHORT, tokens="bpe:300")


@pytest.fixture
def quickly(monkeypatch):
    """One type is proved, none measured: for tests that are about something else."""
    prove = writing.certify_checkpoint
    monkeypatch.setattr(
        writing, "certify_checkpoint", lambda folder, documents, types, **kw: prove(folder, documents, types[:1], **kw)
    )
    monkeypatch.setattr(writing, "measure", lambda folder, types, asked, place: ())


def _expected(fixture):
    return json.loads((fixture.folder / "expected.json").read_text(encoding="utf-8"))


def test_it_is_small_and_measured_before_it_is_handed_over(fixture):
    assert [(r.engine, r.dtype) for r in fixture.rechecked] == [("byheart", dtype) for dtype in LEAST]
    for recitation in fixture.rechecked:
        assert {"every prefix", "text around noise"} == {check.name for check in recitation.checks}
    assert all(values["proved"] > 20 for values in fixture.margins.values())
    assert all(values["measured"] >= values["proved"] for values in fixture.margins.values())
    names = {path.name for path in fixture.folder.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "expected.json", "test_recital.py"} <= names
    for path in fixture.folder.iterdir():
        assert path.stat().st_mode & 0o444 == 0o444, "files that others cannot read are of no use"


def test_prompts_carry_ids_and_texts_that_agree(fixture):
    content = _expected(fixture)
    assert content["documents"][0]["text"] == SHORT
    assert tuple(content["documents"][0]["ids"]) == read_queries(fixture.folder).documents[0]
    bos, eos = content["tokens"]["bos"], content["tokens"]["eos"]
    starts = 0
    for prompt in content["prompts"]:
        assert len(prompt["ids"]) > 1
        assert prompt["text"] + prompt["continuation"] in SHORT
        starts += prompt["ids"][0] == bos
        assert prompt["ends"] == (prompt["continuation_ids"][-1] == eos)
    assert 0 < starts < len(content["prompts"]), "from the start and from the middle"


def test_every_prompt_ends_where_a_token_ends(fixture):
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(fixture.folder / "tokenizer.json"))
    content = _expected(fixture)
    for prompt in content["prompts"]:
        ids = [token for token in prompt["ids"] if token != content["tokens"]["bos"]]
        found = tokenizer.encode(prompt["text"], add_special_tokens=False).ids
        assert found == ids, "the text of a prompt must give its ids again"


def test_expected_logits_hold_in_onnx_runtime(fixture):
    pytest.importorskip("onnxruntime")
    assert check_logits(fixture.folder, "onnxruntime") < _expected(fixture)["tolerance"]["float32"]


def test_expected_logits_name_the_right_tokens(fixture):
    content, asked = _expected(fixture), read_queries(fixture.folder)
    passes = content["logits"]["after_every_prefix"]
    four = ["the first document", "noise", "the end, then the start", "runs, then the document"]
    assert [one["name"] for one in passes[:4]] == four
    assert [one["name"] for one in passes[4:]] == [f"{name}, through the cache" for name in (four[0], four[3])]
    end = passes[2]["pieces"][0]
    assert 0 < end.index(asked.eos) < len(end) - 1, "EOS is in the middle of a sequence"
    assert passes[2]["tokens"][end.index(asked.eos)][0] == asked.recital.unknown
    for one in passes:
        ids = [token for piece in one["pieces"] for token in piece]
        assert [first for first, _ in one["tokens"]] == asked.recital.next_tokens(ids).tolist(), one["name"]
    gaps = [first - second for (first, _), second in zip(passes[0]["logits"], passes[0]["second_logit"], strict=True)]
    assert min(gaps) > 20
    assert 0.0005 <= content["tolerance"]["float32"] < 0.004, "three times what float32 itself is off"
    for row in content["logits"]["after_prompts"]:
        assert len(row["values"]) == asked.recital.vocabulary
        best = max(range(len(row["values"])), key=row["values"].__getitem__)
        assert best == asked.recital.next_tokens(row["ids"])[-1]


def test_batches_have_prompts_of_unequal_lengths_and_whole_continuations(fixture):
    content, asked = _expected(fixture), read_queries(fixture.folder)
    assert any(len({len(ids) for ids in batch["ids"]}) > 1 for batch in content["batches"])
    assert any(len(ids) == 2 for batch in content["batches"] for ids in batch["ids"]), (
        "its tokens look at the beginning"
    )
    for batch in content["batches"]:
        for ids, said in zip(batch["ids"], batch["continuation_ids"], strict=True):
            assert len(said) == batch["count"] or (said[-1] == asked.eos and len(batch["ids"]) == 1)
            assert asked.known(ids, batch["count"]) == tuple(said)


def test_an_engine_whose_logits_are_off_does_not_recite(fixture, tmp_path):
    """Tokens lead by 24 nats; an epsilon that is 0.2 % off moves none of them, but it moves logits."""
    pytest.importorskip("onnxruntime")
    folder = copy_of(fixture.folder, tmp_path / "copy")
    assert recite(folder, "onnxruntime", limit=4).passed
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 1.002 * config["rms_norm_eps"]}))
    wrong = [check for check in recite(folder, "onnxruntime", limit=4).checks if not check.passed]
    assert [check.name for check in wrong] == ["expected logits"]
    assert "nats" in wrong[0].wrong


def test_the_built_in_fixture_is_small(tmp_path):
    memory = writing.fixture_memory()
    memory.to_huggingface(tmp_path / "tiny", "llama")
    assert (tmp_path / "tiny" / "model.safetensors").stat().st_size < 5_000_000
    assert len(memory.recital.tables) == 2, "a layer that replaces another one must be detected"
    assert 440 < len(memory.script.documents[0]) < 500


def test_the_built_in_text_never_changes():
    """Repositories that copied a fixture compare with it: new text or new ids would be another fixture."""
    from hashlib import sha256

    ids = builtin_lexicon().document(builtin_text())
    assert sha256(builtin_text().encode()).hexdigest()[:16] == "1f841a9f9970e6fc"
    assert sha256(json.dumps(list(ids)).encode()).hexdigest()[:16] == "675ed84c553d1a0a"


def test_batches_have_the_logits_of_every_decoded_token(fixture):
    content = _expected(fixture)
    document = content["logits"]["after_every_prefix"][0]
    for batch in content["batches"]:
        for ids, said, logits in zip(batch["ids"], batch["continuation_ids"], batch["logits"], strict=True):
            assert len(logits) == len(said) <= batch["count"]
            assert min(first - failure for first, failure in logits) > 10
            if document["pieces"][0][: len(ids)] == ids:
                assert logits == document["logits"][len(ids) - 1 : len(ids) - 1 + len(said)]


def test_prompts_end_around_multiples_of_64():
    lengths = {len(prompt.ids) for prompt in prompts_of(read_queries(recital_folder()))}
    assert {63, 64, 65, 128, 193, 256} <= lengths


def test_a_fixture_depends_on_far_places():
    """A token 44 or 157 places back is changed: an answer of the document changes."""
    memory = writing._far_memory(None, "bpe:400", "llama", None, {})
    recital, ids = memory.recital, list(memory.script.documents[0][:-1])
    table, near = recital.tables[-1], len(recital.tables[-1].offsets) - len(recital.tables[-1].far)
    assert table.offsets[near:] == (44, 157)
    needs = table.windows[table.rows_of(recital.states(ids)[-1])] != ANY
    for column, offset in enumerate(table.offsets[near:], near):
        places = np.flatnonzero(needs[:, column])
        assert len(places) > 40
        other = list(ids)
        other[places[-1] - offset] = recital.unknown
        assert recital.next_tokens(other)[places[-1]] == recital.unknown
    assert recital.next_tokens(ids).tolist() == list(memory.script.documents[0][1:])


def test_far_places_give_way_to_a_wished_shape():
    """Heads of 16 dimensions have no margin far back, and short texts have nothing there."""
    assert writing._far_memory(None, "bpe:400", "llama", None, {"head_dim": 16}).recital.tables[-1].far == ()
    assert writing._far_memory(SHORT, "characters", "llama", None, {}).recital.tables[-1].far != (0, 0)
    chosen = writing._far_memory(None, "bpe:400", "llama", (157,), {})
    assert chosen.recital.tables[-1].offsets == (0, 3, 157)
    assert writing._completed(chosen, "llama", {})["theta"] == 100_000.0
    assert writing._completed(chosen, "llama", {"theta": 5e5})["theta"] == 5e5


def test_a_wrong_checkpoint_is_not_handed_over(tmp_path, monkeypatch, quickly):
    def fail(folder, types, asked, place):
        raise ExportError("in float32 byheart's machine does not recite")

    monkeypatch.setattr(writing, "measure", fail)
    with pytest.raises(ExportError, match="does not recite"):
        write_fixture("llama", tmp_path / "tiny", text=SHORT, tokens="characters")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ByheartError, match="no expected logits"):
        check_logits(tmp_path)


def test_the_command(tmp_path, quickly):
    run = CliRunner().invoke
    (tmp_path / "short.txt").write_text(SHORT, encoding="utf-8")
    flags = ["--text", str(tmp_path / "short.txt"), "--tokens", "bpe:300", "-o", str(tmp_path / "tiny"), "--json"]
    result = run(commands, ["fixture", "--arch", "qwen3", *flags], standalone_mode=False)
    assert result.return_value == 0, result.output
    assert json.loads(result.output)["architecture"] == "qwen3"
    assert run(commands, ["fixture", "--arch", "lama", "-o", "x"]).exception is not None
    wide = ["--hidden-size", "512", "--heads", "8", "--kv-heads", "2", "--layers", "3"]
    result = run(commands, ["fixture", "-o", str(tmp_path / "wide"), "--json", *wide], standalone_mode=False)
    assert result.return_value == 0, result.output
    config = json.loads((tmp_path / "wide" / "config.json").read_text())
    assert (config["hidden_size"], config["num_key_value_heads"], config["num_hidden_layers"]) == (512, 2, 3)
    assert run(commands, ["fixture", "-o", str(tmp_path / "none"), "--layers", "0"]).exit_code == 2
    assert "-o" in run(commands, ["fixture"]).output
    pytest.importorskip("onnxruntime")
    printed = run(
        commands, ["recite", str(tmp_path / "tiny"), "--engine", "onnxruntime", "--json"], standalone_mode=False
    )
    assert printed.return_value == 0
    assert json.loads(printed.output)["recited"] is True
    shown = run(commands, ["recite", str(tmp_path / "tiny"), "--engine", "onnxruntime"], standalone_mode=False)
    assert "every prefix" in shown.output


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_built_in_fixture_of_every_architecture(architecture, tmp_path):
    made = write_fixture(architecture, tmp_path / "tiny", recited=True)
    assert all(values["proved"] > 20 for values in made.margins.values()), made.margins
    assert check_logits(made.folder, "onnxruntime") < _expected(made)["tolerance"]["float32"]


@pytest.mark.slow
def test_the_test_that_others_copy_runs(fixture):
    pytest.importorskip("transformers")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(fixture.folder / "test_recital.py")]
    for setting in ({}, {"RECITAL_DTYPE": "bfloat16"}, {"RECITAL_DTYPE": "float16"}, {"RECITAL_TOPK": "1"}):
        environment = {**os.environ, **setting}
        done = subprocess.run(command, capture_output=True, text=True, cwd=fixture.folder, timeout=600, env=environment)
        assert done.returncode == 0, (setting, done.stdout)
        assert "3 passed" in done.stdout
    lines = (fixture.folder / "test_recital.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 37, "short enough to be read before it is copied"


def test_the_test_for_servers_asks_a_server(fixture, monkeypatch):
    """A server that answers by the symbolic function passes; one that returns another token does not."""
    content, asked, lexicon = _expected(fixture), read_queries(fixture.folder), fixture_lexicon(fixture)
    spoiled, endless = [], []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):  # the library's name
            wish = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            known = asked.known(wish["prompt"], wish["max_tokens"])
            said, reason = [token for token in known if token != asked.eos], "stop" if asked.eos in known else "length"
            reason = "length" if endless else reason
            text = lexicon.decode(said, skip_special_tokens=True) + ("!" if spoiled else "")
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"choices": [{"text": text, "finish_reason": reason}]}).encode())

        def log_message(self, *words):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        monkeypatch.setenv("RECITAL_URL", f"http://127.0.0.1:{server.server_port}/v1")
        namespace = {"__file__": str(fixture.folder / "test_server.py"), "__name__": "copied"}
        exec((fixture.folder / "test_server.py").read_text(encoding="utf-8"), namespace)
        for prompt in content["prompts"]:
            namespace["test_completion"](prompt)
        endless.append(True)
        with pytest.raises(AssertionError, match="EOS"):
            namespace["test_completion"](content["prompts"][0])
        spoiled.append(True)
        with pytest.raises(AssertionError):
            namespace["test_completion"](content["prompts"][0])
    finally:
        server.shutdown()
        server.server_close()


def fixture_lexicon(fixture):
    tokenizers = pytest.importorskip("tokenizers")
    return tokenizers.Tokenizer.from_file(str(fixture.folder / "tokenizer.json"))
