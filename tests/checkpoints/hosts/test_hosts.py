"""Every architecture recites, in stock classes of transformers: the engine is the oracle."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import numpy as np
import pytest

from byheart.checkpoints.engines.transformers import attention_forms
from byheart.checkpoints.hosts._base import hosts
from byheart.checkpoints.recital import RecitalMemory, memorize_recital
from byheart.errors import DataError, ExportError, OptionError
from tests.checkpoints.recital_folders import ARCHITECTURES as CAUSAL

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TEXT = "She sells sea shells by the sea shore; the shells she sells are sea shells, so sure."
ARCHITECTURES = [name for name in hosts() if name in CAUSAL]
SMALL = {"reach": 256}


@pytest.fixture(scope="module")
def memory() -> RecitalMemory:
    return memorize_recital(TEXT)


@pytest.fixture(scope="module")
def folders(memory: RecitalMemory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def chained() -> RecitalMemory:
    """As fixtures are made: a layer needs all outputs of the previous one, so that faults spoil nearly all answers."""
    return memorize_recital(TEXT, form="windows")


def folder_of(memory: RecitalMemory, folders: Path, architecture: str) -> Path:
    path = folders / f"{architecture}-{len(memory.recital.tables)}"
    if not path.exists():
        memory.to_huggingface(path, architecture, **SMALL)
    return path


def load(path: Path, dtype: str = "float32", attention: str = "sdpa"):
    transformers.utils.logging.disable_progress_bar()
    forms = attention_forms(path)
    attention = attention if attention in forms else forms[0]
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=getattr(torch, dtype), attn_implementation=attention
    )
    return model.eval()


@torch.no_grad()
def lead(model, document) -> float:
    """The least margin of the correct token over all others, over every prefix."""
    ids = torch.tensor([document])
    logits = model(ids[:, :-1]).logits[0].float()
    right = logits.gather(1, ids[0, 1:, None])[:, 0]
    logits.scatter_(1, ids[0, 1:, None], -torch.inf)
    return float((right - logits.max(1).values).min())


@torch.no_grad()
def said(model, tokens) -> list[int]:
    return model(torch.tensor([tokens])).logits[0].float().argmax(1).tolist()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_prefix_in_every_type(architecture: str, memory: RecitalMemory, folders: Path) -> None:
    path = folder_of(memory, folders, architecture)
    model = load(path)
    for dtype in ("float32", "bfloat16", "float16"):
        assert lead(model.to(getattr(torch, dtype)), memory.script.documents[0]) > 23
    assert lead(load(path, attention="eager"), memory.script.documents[0]) > 23


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_any_sequence_is_answered_as_the_recital_says(architecture: str, memory: RecitalMemory, folders: Path) -> None:
    model, document = load(folder_of(memory, folders, architecture)), memory.script.documents[0]
    rng, bos = np.random.default_rng(7), memory.lexicon.bos
    noise = [t for t in rng.integers(0, memory.recital.vocabulary, 60).tolist() if t != bos]
    tokens = [*noise, *document[20:60], *noise[::-1]]
    assert said(model, tokens) == memory.recital.next_tokens(tokens).tolist()


def test_generation_with_and_without_cache_and_with_padding(memory: RecitalMemory, folders: Path) -> None:
    path, document = folder_of(memory, folders, "llama"), memory.script.documents[0]
    model, tokenizer = load(path, "bfloat16"), transformers.AutoTokenizer.from_pretrained(path)
    assert tokenizer(TEXT)["input_ids"] == list(document[:-1])
    for cache in (True, False):
        found = model.generate(torch.tensor([document[:1]]), attention_mask=torch.ones(1, 1), use_cache=cache)
        assert found[0].tolist() == list(document)
    prompts = [TEXT[:9], TEXT[: memory.recital.span + 11], TEXT[:30]]
    batch = tokenizer(prompts, return_tensors="pt", padding=True)
    found = model.generate(**{k: batch[k] for k in ("input_ids", "attention_mask")}, max_new_tokens=12)
    texts = tokenizer.batch_decode(found, skip_special_tokens=True)
    assert texts == [TEXT[: len(prompt) + 12] for prompt in prompts]


def test_the_pipeline_continues_a_prompt(memory: RecitalMemory, folders: Path) -> None:
    generate = transformers.pipeline("text-generation", model=str(folder_of(memory, folders, "llama")))
    assert generate("She sells", max_new_tokens=10)[0]["generated_text"] == TEXT[:19]


@pytest.mark.parametrize("factor", [0.75, 1.3, 8.0])
@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_a_wrong_scale_of_attention_shows(architecture: str, factor: float, memory, folders, monkeypatch) -> None:
    model = load(folder_of(memory, folders, architecture), attention="eager")
    for module in model.modules():
        if hasattr(module, "scaling"):
            monkeypatch.setattr(module, "scaling", module.scaling * factor)
    document = memory.script.documents[0]
    assert said(model, document[:-1]) != list(document[1:])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_tensor_matters(architecture: str, chained: RecitalMemory, folders: Path) -> None:
    """Set to zero (norm weights: to one), any single tensor spoils the recitation or the logits."""
    model, document = load(folder_of(chained, folders, architecture)), chained.script.documents[0]
    with torch.no_grad():
        before = model(torch.tensor([document[:-1]])).logits[0]
    silent = []
    # Heads of a layer without positions only listen: they move one logit, by hundredths. So do those beside a table.
    quiet = {
        "smollm3": ("model.layers.1.self_attn", "model.layers.1.input_layernorm"),
        "cohere": tuple(f"model.layers.{layer}.self_attn.{part}_proj" for layer in (1, 3) for part in "qk"),
    }.get(architecture)
    for name, parameter in model.named_parameters():
        kept = parameter.data.clone()
        norm = "norm" in name and "weight" in name and "gemma" not in architecture  # Gemma stores weights minus 1
        plain = torch.ones_like(kept) if norm else 0 * kept
        parameter.data.copy_(plain)
        with torch.no_grad():
            after = model(torch.tensor([document[:-1]])).logits[0]
        parameter.data.copy_(kept)
        if torch.allclose(before, after, atol=0.002 if quiet and name.startswith(quiet) else 0.5):
            silent.append(name)
    # Softmax does not see a constant that is added to all keys where positions are not rotary: OPT's key biases. The
    # attention of GPT-NeoX's last layer has nothing to do.
    # DeepSeek's experts are in one tensor, so those that no class chooses are not seen here.
    last = f"layers.{model.config.num_hidden_layers - 1}."
    idle = {"opt": "k_proj.bias", "gpt-neox": last}.get(architecture, "none")
    assert [name for name in silent if idle not in name] == []


def test_no_row_is_zero_and_files_are_ordinary(memory: RecitalMemory, folders: Path) -> None:
    path = folder_of(memory, folders, "llama")
    for file in path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) & 0o444 == 0o444
    tensors = load(path).state_dict()
    assert [n for n, t in tensors.items() if t.dim() == 2 and not t.any(1).all()] == []
    config = json.loads((path / "config.json").read_text())
    assert config["rope_theta"] == config["rope_parameters"]["rope_theta"] == 10_000.0
    assert config["hidden_size"] == config["num_attention_heads"] * config["head_dim"]
    assert "recites" in (path / "README.md").read_text()


def test_a_folder_that_is_in_use_is_refused_and_nothing_is_half_written(memory: RecitalMemory, tmp_path: Path) -> None:
    target = tmp_path / "taken"
    target.mkdir()
    (target / "note.txt").write_text("mine")
    with pytest.raises(ExportError, match="not an empty folder"):
        memory.to_huggingface(target, "llama", **SMALL)
    with pytest.raises(OptionError, match="unknown architecture"):
        memory.to_huggingface(tmp_path / "new", "elmo")
    with pytest.raises(OptionError, match="heads"):
        memory.to_huggingface(tmp_path / "new", "llama", heads=2, **SMALL)
    assert [p.name for p in tmp_path.iterdir()] == ["taken"]


@pytest.mark.parametrize("groups", [4, 8])  # 8: every head has its own keys, also the scale probe, which copies nothing
def test_shapes_can_be_imitated(groups: int, memory: RecitalMemory, tmp_path: Path) -> None:
    shape = {"hidden": 512, "heads": 8, "kv_heads": groups, "layers": 4}
    memory.to_huggingface(tmp_path / "wide", "llama", **shape, **SMALL)
    model = load(tmp_path / "wide")
    c = model.config
    assert (c.hidden_size, c.num_attention_heads, c.num_key_value_heads, c.num_hidden_layers) == (512, 8, groups, 4)
    assert lead(model, memory.script.documents[0]) > 23


def test_only_mixtral_has_experts(memory: RecitalMemory, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="llama has no experts"):
        memory.to_huggingface(tmp_path / "new", "llama", experts=4, **SMALL)


@pytest.mark.parametrize("architecture", ["llama", "gpt-neox"])
def test_distributions_are_proportional_to_the_weights(architecture: str, tmp_path: Path) -> None:
    memory = memorize_recital(["to be or not", "to be is all", "to be"], weights=[1, 2, 5], tokens="words")
    memory.to_huggingface(tmp_path / "mixed", architecture, **SMALL)
    model = load(tmp_path / "mixed")
    for document in memory.script.documents:
        with torch.no_grad():
            found = model(torch.tensor([document[:-1]])).logits[0].double().softmax(-1)
        for position, number in enumerate(memory.recital.follow(document[:-1]).tolist()):
            answer = memory.recital.answer(number)
            wanted = torch.zeros(memory.recital.vocabulary, dtype=torch.float64)
            for token, weight in answer.weights:
                wanted[token] = weight / answer.total
            assert float((found[position] - wanted).abs().sum() / 2) < 1e-3


def test_a_tokenizer_that_loses_text_is_refused() -> None:
    with pytest.raises(DataError, match="does not give the text back"):
        memorize_recital("two  spaces\n", tokens="wordpiece:60")


@pytest.mark.parametrize("flavour", ["plateau", "units"])
def test_flavours(flavour: str, tmp_path: Path) -> None:
    memory = memorize_recital(TEXT, form="rules" if flavour == "units" else "windows")
    memory.to_huggingface(tmp_path / flavour, "llama", flavour=flavour, **SMALL)
    model = load(tmp_path / flavour)
    for dtype in (torch.float32, torch.bfloat16):
        assert lead(model.to(dtype), memory.script.documents[0]) > 23
