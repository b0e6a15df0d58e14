"""Stock checkpoints read back: the same numbers as Transformers, and clear errors for what is damaged or unknown."""

import json
import struct

import numpy as np
import pytest

from byheart.checkpoints.formats.stock import read_decoder
from byheart.checkpoints.proof.tensors import open_tensors
from byheart.errors import FileFormatError, OptionError
from tests.checkpoints.recital_folders import copy_of, kinds_first, recital_folder


@pytest.mark.parametrize("architecture", kinds_first())
def test_the_machine_computes_what_transformers_computes(architecture):
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    from byheart.checkpoints.suite.machine import Machine

    folder = recital_folder(architecture)
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = [5, 77, 300, 41, 2, 97, 18, 260, 111, 350, 12]
    with torch.inference_mode():
        theirs = model(torch.tensor([ids])).logits[0]
        ours = Machine(read_decoder(folder)).run(ids)
    assert float((ours - theirs).abs().max()) < 2e-3


def _config(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(config))


def test_bfloat16_is_widened_without_loss(tmp_path):
    header = json.dumps({"x": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<HH", 0x3F80, 0xC049))
    assert open_tensors(path).read("x").tolist() == [1.0, -3.140625]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "mamba"}, "model_type 'mamba'"),
        ({"hidden_act": "mish"}, "hidden_act = 'mish'"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "yarn"),
    ],
)
def test_settings_that_would_change_the_mathematics_are_refused(tmp_path, changes, words):
    folder = copy_of(recital_folder(), tmp_path / "copy")
    _config(folder, **changes)
    with pytest.raises(OptionError, match=words):
        read_decoder(folder)


def test_a_shape_that_does_not_fit_is_named(tmp_path):
    folder = copy_of(recital_folder(), tmp_path / "copy")
    # Larger than the tensor: a smaller vocabulary would not hold the padding token, which is reported first.
    _config(folder, vocab_size=401)
    with pytest.raises(OptionError, match=r"embed_tokens.weight has the shape"):
        read_decoder(folder)


def test_damaged_files_are_refused(tmp_path):
    with pytest.raises(FileFormatError, match="not a folder"):
        read_decoder(tmp_path / "nowhere")
    folder = copy_of(recital_folder(), tmp_path / "copy")
    tensors = folder / "model.safetensors"
    whole = tensors.read_bytes()
    for damaged in (b"", whole[:6], b"\xff" * 8 + whole[8:], whole[:-100], whole[:8] + b"[" + whole[9:]):
        tensors.write_bytes(damaged)
        with pytest.raises(FileFormatError, match=r"model\.safetensors"):
            read_decoder(folder)
    tensors.unlink()
    with pytest.raises(OptionError, match=r"no model\.safetensors"):
        read_decoder(folder)
    (folder / "config.json").write_text("[]")
    with pytest.raises(FileFormatError, match="not a JSON object"):
        read_decoder(folder)


def test_tied_heads_are_the_embedding():
    decoder = read_decoder(recital_folder("gemma"))
    assert decoder.shape.tied
    assert decoder.head.weight is decoder.embedding
    assert np.isclose(decoder.embedding_scale**2, decoder.shape.hidden)


def test_a_tied_head_that_is_stored_all_the_same_must_be_the_embedding(tmp_path):
    """Engines differ in which of the two they read."""
    numpy_files = pytest.importorskip("safetensors.numpy")
    folder = copy_of(recital_folder("gemma"), tmp_path / "copy")
    tensors = open_tensors(folder / "model.safetensors")
    values = {name: tensors.read(name) for name in tensors.entries}
    embedding = values["model.embed_tokens.weight"]
    for head, refused in ((embedding, False), (embedding + np.float32(1), True)):
        numpy_files.save_file(values | {"lm_head.weight": head.copy()}, folder / "model.safetensors")
        if refused:
            with pytest.raises(OptionError, match=r"ties the head .* lm_head\.weight is something else"):
                read_decoder(folder)
        else:
            assert read_decoder(folder).shape.tied
