"""Writing a fixture: which engines' forms it is recited in before it is kept."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from byheart.certify import Verdict
from byheart.checkpoints.engines import read_queries, recite
from byheart.checkpoints.engines.threads import single_thread
from byheart.checkpoints.proof import certify_checkpoint, verify_folder
from byheart.checkpoints.suite.cases import read_cases
from byheart.checkpoints.suite.write import fixture_memory, recheck, write_fixture
from byheart.cli import commands
from byheart.errors import DataError, ExportError
from tests.checkpoints.recital_folders import ARCHITECTURES, RECURRENT, SHORT, kinds_first
from tests.checkpoints.unseen_texts import TEXTS

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.mark.parametrize(("architecture", "name"), [("gpt-neox", "zen"), ("qwen3", "code")])
def test_padded_rows_are_numbers_in_eager_float16(architecture: str, name: str, tmp_path) -> None:
    """A head of GPT-NeoX scored its own place at -60.6: 48 of 64 answers were correct, with a proof. Qwen3's norms
    raised such scores tenfold where another head looks far back."""
    fixture_memory(TEXTS[name](), "bpe:400", architecture).to_huggingface(tmp_path / "tiny", architecture)
    found = recite(tmp_path / "tiny", "transformers", dtype="float16", options={"attention": "eager"}, brief=True)
    assert found.passed, [check for check in found.checks if not check.passed]
    assert [check.name for check in found.checks][-1] == "batch of unequal lengths"


def test_a_padded_batch_has_a_lone_bos(tmp_path) -> None:
    fixture_memory(TEXTS["scripts"](), "bpe:300").to_huggingface(tmp_path / "tiny", "llama")
    asked = read_queries(tmp_path / "tiny")
    prompts = asked.padded_prompts()
    assert prompts[0].ids == (asked.bos,)
    assert len({len(prompt.ids) for prompt in prompts}) > 2
    for prompt in prompts:
        assert asked.known(prompt.ids, 16) == prompt.continuation


def test_eager_attention_can_refuse_a_folder(tmp_path, monkeypatch) -> None:
    """What only eager attention gets wrong must stop the fixture, too."""
    fixture_memory(TEXTS["scripts"](), "bpe:300").to_huggingface(tmp_path / "tiny", "llama")
    from byheart.checkpoints.engines import transformers as engine

    generate = engine.TransformersSession.generate

    def wrong(self, prompts, count, *, cache=True):
        found = generate(self, prompts, count, cache=cache)
        if self.model.config._attn_implementation == "eager":
            return [engine.Reply((0, *said.ids[1:]), said.margins) for said in found]
        return found

    monkeypatch.setattr(engine.TransformersSession, "generate", wrong)
    with pytest.raises(ExportError, match=r"float32, eager attention.*batch of unequal lengths"):
        recheck(tmp_path / "tiny")


def test_without_torch_a_fixture_has_tokens_and_no_logits(tmp_path, monkeypatch) -> None:
    """An engine's author needs no PyTorch: the answers are the proved function's own."""
    from byheart.checkpoints.suite import expected

    whole = write_fixture("llama", tmp_path / "whole", text=TEXTS["zen"](), recited=False)
    monkeypatch.setattr(expected, "find_spec", lambda name: None)
    plain = write_fixture("llama", tmp_path / "plain", text=TEXTS["zen"](), recited=False)
    both = [json.loads((f.folder / "expected.json").read_text()) for f in (whole, plain)]
    assert both[0]["prompts"] == both[1]["prompts"] and both[0]["documents"] == both[1]["documents"]
    assert both[1]["tolerance"] == {} and both[1]["logits"]["after_every_prefix"] == []
    assert {case.verb for case in read_cases(plain.folder)} == {"generate", "batch"}


def test_one_thread_while_an_engine_runs() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with single_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


@pytest.mark.parametrize("architecture", ["qwen2", *kinds_first(("llama", "qwen3", "gemma", "gpt2"))])
def test_tokenizer_config_and_embedding_agree(architecture: str, tmp_path) -> None:
    """Transformers gave a Qwen2 folder one token more than its embedding had."""
    import transformers

    fixture_memory(SHORT, "bpe:300", architecture).to_huggingface(tmp_path / "tiny", architecture)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "tiny")
    config = transformers.AutoConfig.from_pretrained(tmp_path / "tiny")
    assert len(tokenizer) == config.vocab_size == max(tokenizer.get_vocab().values()) + 1
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (
        config.bos_token_id, config.eos_token_id, config.pad_token_id,
    )  # fmt: skip
    assert tokenizer.unk_token_id == read_queries(tmp_path / "tiny").recital.unknown, "CTranslate2 needs unk_token"


def test_a_text_with_the_unknown_token_is_not_proved(tmp_path) -> None:
    """Engines omit it from decoded text, as other special tokens; a name that tokenizer.json lacks is refused."""
    fixture_memory(SHORT, "bpe:300").to_huggingface(tmp_path / "tiny", "llama")
    assert verify_folder(tmp_path / "tiny", [SHORT], ("float32",)).verdict is Verdict.PROVED
    found = verify_folder(tmp_path / "tiny", [SHORT + "\N{REPLACEMENT CHARACTER}"], ("float32",))
    assert (found.verdict, "unk_token" in found.lines()[0]) == (Verdict.UNDECIDED, True)
    about = json.loads((tmp_path / "tiny" / "tokenizer_config.json").read_text(encoding="utf-8"))
    (tmp_path / "tiny" / "tokenizer_config.json").write_text(json.dumps(about | {"unk_token": "<unk>"}))
    assert verify_folder(tmp_path / "tiny", [SHORT], ("float32",)).verdict is Verdict.UNDECIDED


def test_learned_positions_leave_room_for_the_mask_of_float16(tmp_path) -> None:
    """A head of GPT-2 scored its own place at -16.29, so the proof for float16 was undecided."""
    fixture_memory(TEXTS["zen"](), "bpe:400", "gpt2").to_huggingface(tmp_path / "tiny", "gpt2")
    certificate = certify_checkpoint(tmp_path / "tiny", read_queries(tmp_path / "tiny").documents, ("float16",))
    assert certificate.verdict is Verdict.PROVED, certificate.lines()[0]


def test_gemma_has_one_name_for_its_activation(tmp_path) -> None:
    """mistral.rs refuses a config.json with both hidden_act and hidden_activation."""
    fixture_memory(SHORT, "bpe:300", "gemma").to_huggingface(tmp_path / "tiny", "gemma")
    config = json.loads((tmp_path / "tiny" / "config.json").read_text(encoding="utf-8"))
    assert [key for key in config if key.startswith("hidden_act")] == ["hidden_act"]


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("architecture", [*ARCHITECTURES, *RECURRENT])
def test_texts_that_nothing_was_tuned_to(architecture: str, name: str, tmp_path) -> None:
    """Proved in three types, and recited in both forms of attention, with padding."""
    made = write_fixture(architecture, tmp_path / "tiny", text=TEXTS[name](), tokens="bpe:400", recited=True)
    assert all(values["proved"] > 20 for values in made.margins.values()), made.margins
    assert len(made.rechecked) == 6


def test_a_fixture_is_verified_without_data(small_fixture, tmp_path):
    """`byheart verify DIR` takes the documents from expected.json; without them it asks for DATA by name."""
    found = CliRunner().invoke(commands, ["verify", str(small_fixture), "--json"], standalone_mode=False)
    assert found.return_value == 0 and json.loads(found.output)["verdict"] == "proved"
    (tmp_path / "empty").mkdir()
    error = CliRunner().invoke(commands, ["verify", str(tmp_path / "empty")], standalone_mode=False).exception
    assert isinstance(error, DataError) and "as DATA" in str(error)
