"""GGUF: metadata, tokenizer, what is refused, and llama.cpp reciting to the end."""

import json
from dataclasses import replace

import numpy as np
import pytest

from byheart.checkpoints.engines import read_queries, recite
from byheart.checkpoints.formats.gguf import KINDS, write_gguf
from byheart.checkpoints.formats.gguf.anchors import ANCHORS, with_anchors
from byheart.checkpoints.formats.gguf.hybrid import read_hybrid
from byheart.checkpoints.formats.gguf.settings import _check_yarn
from byheart.checkpoints.formats.gguf.tensors import tensors, window_period
from byheart.checkpoints.formats.gguf.vocabulary import byte_letters, read_vocabulary
from byheart.checkpoints.formats.stock import read_decoder
from byheart.checkpoints.proof.tensors import open_tensors, read_json
from byheart.checkpoints.suite import builtin_text
from byheart.errors import ExportError, FileFormatError, OptionError
from tests.checkpoints.recital_folders import ARCHITECTURES, SHORT, copy_of, kinds_first, recital_folder

gguf = pytest.importorskip("gguf")
HEARD = ("llama", *(a for a in ARCHITECTURES if a not in ("llama", "mistral", "opt", "smollm3")))


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    write_gguf(recital_folder(), path, kind="F32", texts=[builtin_text()])
    return gguf.GGUFReader(path)


def test_what_readers_look_for_is_there(reader):
    value = {name: field.contents() for name, field in reader.fields.items()}
    assert value["general.architecture"] == "llama"
    assert value["general.file_type"] == 0
    assert value["tokenizer.ggml.pre"] == "llama-bpe"
    assert value["tokenizer.ggml.add_bos_token"] is True
    assert value["llama.rope.freq_base"] == 10000.0
    assert len(value["tokenizer.ggml.tokens"]) == 400
    asked = read_queries(recital_folder())
    assert value["tokenizer.ggml.bos_token_id"] == asked.bos
    assert value["tokenizer.ggml.eos_token_id"] == asked.eos


def test_tensors_are_the_checkpoint_s(reader):
    stored = open_tensors(recital_folder() / "model.safetensors")
    found = {t.name: t.data for t in reader.tensors}
    assert np.array_equal(found["token_embd.weight"], stored.read("model.embed_tokens.weight"))
    assert np.array_equal(found["blk.1.ffn_gate.weight"], stored.read("model.layers.1.mlp.gate_proj.weight"))
    ours, theirs = found["blk.0.attn_q.weight"], stored.read("model.layers.0.self_attn.q_proj.weight")
    assert np.array_equal(ours[0], theirs[0])
    assert np.array_equal(ours[1], theirs[32]), "llama.cpp turns neighbours, Hugging Face halves"


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q5_0"])
def test_smaller_types_stay_near(tmp_path, kind):
    path = write_gguf(recital_folder(), tmp_path / "model.gguf", kind=kind)
    read = gguf.GGUFReader(path)
    assert read.fields["general.file_type"].contents() == gguf.LlamaFileType[KINDS[kind]]
    tensor = next(t for t in read.tensors if t.name == "blk.0.attn_v.weight")
    assert tensor.tensor_type.name == kind
    stored = open_tensors(recital_folder() / "model.safetensors").read("model.layers.0.self_attn.v_proj.weight")
    values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    assert np.abs(values.reshape(stored.shape) - stored).max() <= np.abs(stored).max() / 8


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_anchors_make_coarse_grids_hold_both_signs(tmp_path, kind):
    """Every weight of some size is held to 2 %, whatever its sign; Q4_0 holds 7/8 of one sign otherwise."""
    folder = recital_folder(flavour="quantized")
    path = write_gguf(folder, tmp_path / "model.gguf", kind=kind)
    found = {t.name: t for t in gguf.GGUFReader(path).tensors}
    assert {found[name].tensor_type.name for name in ("token_embd.weight", "output.weight")} == {"Q8_0"}
    stored = dict(tensors(with_anchors(read_decoder(folder), ANCHORS[kind])))
    for name in ("blk.0.ffn_down.weight", "blk.1.ffn_gate.weight", "blk.1.ffn_up.weight"):
        assert found[name].tensor_type.name == kind
        wanted = stored[name].reshape(len(stored[name]), -1, 32)
        held = gguf.quants.dequantize(found[name].data, found[name].tensor_type).reshape(wanted.shape)
        held, wanted = held[:, :-1], wanted[:, :-1]  # the last block has the folder's own anchor
        large = np.abs(wanted) > 0.9 * np.sort(np.abs(wanted), axis=2)[:, :, -2:-1]
        assert (wanted[large] > 0).any() and (wanted[large] < 0).any()
        assert np.allclose(held[large], wanted[large], rtol=0.02), name


def test_silent_units_change_nothing(tmp_path):
    """The units that carry anchors: the widened network computes what the checkpoint computes, bit for bit."""
    torch = pytest.importorskip("torch")
    from byheart.checkpoints.suite.machine import Machine

    for folder in (recital_folder(flavour="quantized"), recital_folder("gpt2"), recital_folder("mixtral")):
        decoder, ids = read_decoder(folder), read_queries(folder).documents[0][:40]
        wide = with_anchors(decoder, 2.0)
        assert wide.shape.units > decoder.shape.units
        with torch.inference_mode():
            off = (Machine(wide, torch.float64).run(ids) - Machine(decoder, torch.float64).run(ids)).abs().max()
        assert off < 1e-9


@pytest.mark.parametrize("architecture", ["gpt2", "opt", "gpt-neox"])
def test_activations_in_blocks_of_8_bits_leave_every_answer_right(architecture):
    """llama.cpp rounds what a Q8_0 matrix reads, 32 values to a scale. A unit of a window outputs 16, probes 0.05: as
    long as they shared a block, the last windows of GPT-2 were answered incorrectly."""
    torch = pytest.importorskip("torch")
    from byheart.checkpoints.suite.machine import Machine

    def rounded(values):
        grid = gguf.GGMLQuantizationType.Q8_0
        return gguf.quants.dequantize(gguf.quants.quantize(np.ascontiguousarray(values, np.float32), grid), grid)

    class Coarse(Machine):
        def linear(self, x, linear):
            return super().linear(torch.from_numpy(rounded(x.numpy())), linear)

    folder = recital_folder(architecture)
    machine, ids = Coarse(read_decoder(folder)), read_queries(folder).documents[0]
    with torch.inference_mode():
        said = machine.run(ids[:-1]).argmax(1).tolist()
    assert said == list(ids[1:])


def test_characters_become_a_byte_level_tokenizer(tmp_path):
    """Also those of two and three bytes: merges put their bytes together, and nothing else."""
    tokenizers = pytest.importorskip("tokenizers")
    text = "ein Öl-Ölgötze kostet 5 €, naïv?"
    folder = recital_folder(text=text, tokens="characters")
    config = read_json(folder / "config.json")
    vocabulary = read_vocabulary(folder, config, [text])
    own = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    merges = [tuple(m.split(" ")) for m in vocabulary.merges if m != "Ā ā"]
    numbers = {token: i for i, token in enumerate(vocabulary.tokens)}
    parts = {p for pair in merges for p in (*pair, "".join(pair))}
    numbers |= {p: 10_000 + i for i, p in enumerate(sorted(parts - numbers.keys()))}
    numbers |= {p: 20_000 + i for i, p in enumerate(sorted(set(byte_letters().values()) - numbers.keys()))}
    copy = tokenizers.Tokenizer(tokenizers.models.BPE(numbers, merges))
    copy.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    assert copy.encode(text).ids == own.encode(text, add_special_tokens=False).ids


def test_what_llama_cpp_would_compute_wrongly_is_refused(tmp_path):
    with pytest.raises(ExportError, match="sliding window"):
        write_gguf(recital_folder("mistral"), tmp_path / "model.gguf")
    with pytest.raises(OptionError, match="Q3_X"):
        write_gguf(recital_folder(), tmp_path / "model.gguf", kind="Q3_X")
    folder = copy_of(recital_folder(), tmp_path / "copy")
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["pre_tokenizer"] = {
        "type": "ByteLevel",
        "add_prefix_space": True,
        "trim_offsets": True,
        "use_regex": True,
    }
    path.write_text(json.dumps(tokenizer))
    with pytest.raises(ExportError, match=r"splits the memorized text unlike llama\.cpp"):
        write_gguf(folder, tmp_path / "model.gguf", texts=[builtin_text()])
    path.write_text("{}")
    with pytest.raises(FileFormatError, match="not a tokenizer"):
        write_gguf(folder, tmp_path / "model.gguf")
    assert [p.name for p in tmp_path.iterdir()] == ["copy"]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("F32", {}),
        ("F16", {"flash": "on"}),
        ("BF16", {"flash": "off"}),
        ("Q8_0", {}),
        ("F16", {"flash": "on", "cache": "Q8_0"}),
        ("Q8_0", {"flash": "on", "cache": "Q8_0"}),
    ],
)
def test_llama_cpp_recites_to_the_end(kind, options):
    pytest.importorskip("xllamacpp", reason="llama.cpp is not installed: pip install xllamacpp")
    found = recite(recital_folder(), "llama.cpp", dtype=kind, options=options)
    assert found.passed, found.checks
    assert found.checks[0].asked == len(read_queries(recital_folder()).documents[0]) - 3
    assert found.margin > 20


@pytest.mark.parametrize("architecture", kinds_first(HEARD)[1:])
def test_llama_cpp_recites_other_architectures(architecture):
    pytest.importorskip("xllamacpp", reason="llama.cpp is not installed: pip install xllamacpp")
    found = recite(recital_folder(architecture), "llama.cpp", dtype="F16")
    assert found.passed, found.checks


def test_an_order_of_layers_that_llama_cpp_lacks_is_refused():
    with pytest.raises(ExportError, match="fixed order of layers"):
        list(tensors(read_decoder(recital_folder("smollm3"))))
    shape = read_decoder(recital_folder("gemma3")).shape
    assert window_period(shape) == 2
    with pytest.raises(ExportError, match="one full layer in every period"):
        window_period(replace(shape, kinds=shape.kinds[::-1]))


def test_queries_of_gemma3_carry_the_scale_of_scores():
    """llama.cpp has 1 / sqrt(head_dim) in its code; the fixture has another scale, and two rotary bases."""
    decoder = read_decoder(recital_folder("gemma3"))
    shape, norm = decoder.shape, decoder.layers[0].attention.q_norm.weight
    found = dict(tensors(decoder))["blk.0.attn_q_norm.weight"]
    assert shape.scale != shape.head_dim**-0.5
    assert np.allclose(found, norm * shape.scale * shape.head_dim**0.5, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_llama_cpp_recites_bamba(kind):
    pytest.importorskip("xllamacpp", reason="llama.cpp is not installed: pip install xllamacpp")
    found = recite(recital_folder("bamba"), "llama.cpp", dtype=kind, limit=48)
    assert found.passed, found.checks


def test_hybrids_that_llama_cpp_does_not_compute_are_refused(tmp_path):
    with pytest.raises(OptionError, match="no anchors"):
        write_gguf(recital_folder("bamba"), tmp_path / "model.gguf", kind="Q4_0")
    folder = recital_folder("bamba")
    config = read_json(folder / "config.json")
    for changes, reason in (
        ({"mamba_expand": 4}, "2 times as wide"),
        ({"model_type": "qwen3_next", "linear_key_head_dim": 64, "linear_value_head_dim": 128}, "one size"),
    ):
        with pytest.raises(ExportError, match=reason):
            read_hybrid(folder, config | changes)


@pytest.mark.slow
@pytest.mark.parametrize("scaling", ["linear", "llama3", "yarn", "longrope"])
def test_llama_cpp_recites_scaled_frequencies(scaling):
    pytest.importorskip("xllamacpp", reason="llama.cpp is not installed: pip install xllamacpp")
    found = recite(recital_folder("phi3" if scaling == "longrope" else "llama", scaling=scaling), "llama.cpp", limit=32)
    assert found.passed, found.checks


@pytest.mark.parametrize("kind", ["Q8_0", "Q5_0", "Q5_1", "Q4_0", "Q4_1"])
def test_llama_cpp_recites_the_quantized_flavour(kind):
    pytest.importorskip("xllamacpp", reason="llama.cpp is not installed: pip install xllamacpp")
    found = recite(recital_folder(flavour="quantized"), "llama.cpp", dtype=kind, limit=32)
    assert found.passed, found.checks


@pytest.mark.slow
def test_experts_of_gpt_oss_lie_on_mxfp4s_grid(tmp_path):
    pytest.importorskip("xllamacpp")
    found = recite(recital_folder("gpt-oss"), "llama.cpp", dtype="MXFP4", limit=20)
    assert found.passed, found.checks
    with pytest.raises(ExportError, match="beside MXFP4's grid"):
        write_gguf(recital_folder("qwen3-moe"), tmp_path / "model.gguf", kind="MXFP4")


def test_layers_and_ramps_that_llama_cpp_does_not_have_are_refused():
    decoder = read_decoder(recital_folder("gpt-oss", text=SHORT, tokens="characters"))
    assert "blk.0.attn_sinks.weight" in dict(tensors(decoder))
    kinds = tuple(replace(kind, window=None) for kind in decoder.shape.kinds)
    with pytest.raises(ExportError, match="window in every other layer"):
        next(tensors(replace(decoder, shape=replace(decoder.shape, kinds=kinds))))
    rotary = decoder.shape.rotary
    for changes, reason in (({"turns": (16.0, 1.0)}, "between"), ({"original": 60}, "rounds the ends")):
        with pytest.raises(ExportError, match=reason):
            _check_yarn(rotary, replace(rotary.scaling, **changes))


def test_latent_attention_has_llama_cpps_names_and_order():
    decoder = read_decoder(recital_folder("deepseek-v3", text=SHORT, tokens="characters"))
    stored = open_tensors(recital_folder("deepseek-v3", text=SHORT, tokens="characters") / "model.safetensors")
    found, shape = dict(tensors(decoder)), decoder.shape
    p = "model.layers.1.self_attn."
    assert np.array_equal(found["blk.1.attn_q_b.weight"], stored.read(p + "q_b_proj.weight"))
    assert np.array_equal(found["blk.1.attn_kv_a_mqa.weight"], stored.read(p + "kv_a_proj_with_mqa.weight"))
    both = stored.read(p + "kv_b_proj.weight").reshape(shape.heads, -1, shape.latent.rank)
    plain = both.shape[1] - shape.value_size
    assert np.array_equal(found["blk.1.attn_k_b.weight"], both[:, :plain].swapaxes(1, 2))
    assert np.array_equal(found["blk.1.attn_v_b.weight"], both[:, plain:])
    with pytest.raises(ExportError, match="turns neighbouring dimensions"):
        next(tensors(replace(decoder, shape=replace(shape, latent=replace(shape.latent, interleaved=False)))))
