"""One `memorize`, one `load`, and the same methods on every kind of memory."""

import pytest

import byheart
from byheart.api import load, memorize
from byheart.errors import FileFormatError, OptionError

METHODS = ("certificate", "predict", "generate", "verify", "export", "save")


def test_every_kind_of_memory_has_the_same_methods():
    rows = memorize(["cat", "dog"], ["a", "b"], construction="ks25", progress=False)
    text = memorize("to be or not to be", construction="recital", tokens="words")
    for memory in (rows, text):
        assert [name for name in METHODS if not hasattr(memory, name)] == []
        assert memory.certificate.verdict.value == "proved"


def test_load_opens_every_saved_file(tmp_path):
    memorize(["cat", "dog"], ["a", "b"], construction="ks25", progress=False).save(tmp_path / "rows.byheart")
    memorize(["a cat sat", "a dog ran"], construction="recital").save(tmp_path / "text.byheart")
    assert load(tmp_path / "rows.byheart").predict(["dog"]) == ["b"]
    found = load(tmp_path / "text.byheart")
    assert isinstance(found, byheart.RecitalMemory) and found.generate("a c") == "at sat"
    assert found.verify(["a cat sat", "a dog ran"]).verdict.value == "proved"
    assert found.verify(["a cat ran"]).verdict.value == "refuted"


def test_load_opens_a_recital_s_folder(tmp_path):
    memory = memorize(["a cat sat", "a dog ran"], construction="recital", names=["cat", "dog"])
    memory.export("huggingface", tmp_path / "pets", "gpt2")
    found = load(tmp_path / "pets")
    assert found.script.names == memory.script.names and found.generate("a d") == "og ran"
    assert found.verify(["a cat sat", "a dog ran"]).verdict.value == "proved"
    found.save(tmp_path / "pets.byheart")
    assert load(tmp_path / "pets.byheart").predict(["a "]) == memory.predict(["a "])
    for name, text in [("recital.json", '{"format": "byheart recital", "tokens": {}}'), ("recital.json", "[]")]:
        (tmp_path / "pets" / name).write_text(text)
        with pytest.raises(FileFormatError, match="pets"):
            load(tmp_path / "pets")


def test_folders_of_other_tasks_are_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "recital.json").write_text('{"format": "byheart recital", "task": "masked"}')
    with pytest.raises(FileFormatError, match="byheart suite"):
        load(tmp_path)


def test_load_opens_deployed_models(tmp_path):
    pytest.importorskip("onnxruntime")
    table = {"name": ["cat", "oak"], "kind": ["animal", "plant"]}
    byheart.deploy(table, tmp_path / "kinds.onnx", label="kind", progress=False)
    model = load(tmp_path / "kinds.onnx")
    assert model.predict([["oak", "elm"]]) == ["plant", byheart.UNKNOWN]
    assert model.verify(table).verdict == "proved"


@pytest.mark.parametrize("prompts", ["to be", [("to", 1)], [3]])
def test_recitals_predict_lists_of_texts(prompts):
    memory = memorize("to be or not to be", construction="recital", tokens="words")
    with pytest.raises(byheart.errors.DataError, match=r"list|not a text"):
        memory.predict(prompts)
    with pytest.raises(byheart.errors.DataError, match="not a text"):
        memory.generate(7)


def test_export_names_every_target(tmp_path):
    memory = memorize(["cat", "dog"], ["a", "b"], construction="native", progress=False)
    with pytest.raises(OptionError, match="huggingface, onnx, safetensors, torch; GGUF holds texts"):
        memory.export("gguf", tmp_path / "rows.gguf")


def test_files_that_are_not_memories_are_named(tmp_path):
    (tmp_path / "short").write_bytes(b'{"format":"byheart recital')
    for path in (tmp_path, tmp_path / "missing", tmp_path / "short"):
        with pytest.raises(FileFormatError, match=path.name):
            load(path)


@pytest.mark.parametrize("wrong", [{"labels": ["x"]}, {"label": "x"}, {"task": "set"}])
def test_recitals_refuse_options_without_a_meaning(wrong):
    with pytest.raises(OptionError, match="recital"):
        memorize(["to be"], construction="recital", **wrong)


def test_recitals_are_exported_to_stock_formats(tmp_path):
    memory = memorize("a rose is a rose is a rose", construction="recital")
    summary = memory.export("huggingface", tmp_path / "rose", "qwen3")
    assert summary["architecture"] == "qwen3" and (tmp_path / "rose" / "model.safetensors").exists()
    with pytest.raises(OptionError, match="huggingface"):
        memory.export("torch", tmp_path / "rose.pt")


def test_rows_are_exported_to_other_runtimes(tmp_path):
    memory = memorize(["cat", "dog"], ["a", "b"], construction="native", progress=False)
    memory.export("safetensors", tmp_path / "rows.safetensors")
    assert (tmp_path / "rows.safetensors").stat().st_size > 0
