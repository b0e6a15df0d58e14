"""What is written is proved: every architecture, type and flavour; and what is proved holds in an engine."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from byheart.certify import Verdict
from byheart.checkpoints.proof import certify_checkpoint, tokenize, verify_folder
from tests.checkpoints.proof.folders import ARCHITECTURES, TEXT, write

REACH = 160


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_is_proved(architecture: str, tmp_path: Path) -> None:
    certificate = verify_folder(write(tmp_path / "folder", architecture), [TEXT], ("float32",), reach=REACH)
    assert certificate.verdict is Verdict.PROVED, certificate.reason
    assert certificate.asked == len(TEXT) + 1 == certificate.agree
    assert certificate.margin > 20


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_is_proved_in_every_type(architecture: str, tmp_path: Path) -> None:
    certificate = verify_folder(write(tmp_path / "folder", architecture), [TEXT], reach=REACH)
    assert certificate.verdict is Verdict.PROVED, certificate.reason
    assert certificate.margin > 20, {t.type: t.margin for t in certificate.types}


REFRAIN = "row your boat gently down the stream, merrily, merrily, life is but a dream; "
SONG = "".join(f"{who} went by. {REFRAIN}" for who in ("the captain", "a baker", "no miner", "her tailor"))


@pytest.mark.parametrize("architecture", ["llama", "gemma", "mistral", "mixtral", "gpt2", "gpt-neox"])
def test_long_repeats_are_proved_in_few_layers(architecture: str, tmp_path: Path) -> None:
    """A refrain is distinguished from itself by heads that look beyond it at once: errors have no layers to grow in."""
    folder = write(tmp_path / "folder", architecture, texts=(SONG,), form="sparse")
    config = json.loads((folder / "config.json").read_text())
    certificate = verify_folder(folder, [SONG], ("bfloat16",))
    assert certificate.verdict is Verdict.PROVED and certificate.margin > 20, certificate.lines()
    assert config.get("num_hidden_layers", config.get("n_layer")) <= 3
    assert certificate.span > len(REFRAIN)


def test_every_sequence_is_meant(llama: Path) -> None:
    """Without a scale probe nothing is assumed about the input; with it, BOS is at the start or nowhere."""
    certificate = verify_folder(llama, [TEXT], ("float32",), reach=REACH)
    assert certificate.once == (1,) and certificate.reach == REACH
    assert "occurs at the start or nowhere" in "\n".join(certificate.lines())


def test_without_scale_probe_all_sequences(tmp_path: Path) -> None:
    folder = write(tmp_path / "folder", scale_probe=False)
    assert verify_folder(folder, [TEXT], ("float32",), reach=REACH).once == ()


@pytest.mark.parametrize("flavour, form", [("plateau", "windows"), ("units", "rules")])
def test_flavours(flavour: str, form: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "folder", flavour=flavour, form=form)
    certificate = verify_folder(folder, [TEXT], ("float32", "float16"), reach=REACH)
    assert certificate.verdict is Verdict.PROVED and certificate.margin > 18, certificate.lines()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_symmetric_8_bit_weights(architecture: str, tmp_path: Path) -> None:
    """Rows are whole steps of their largest weight, those of the probes too."""
    folder = write(tmp_path / "folder", architecture)
    certificate = verify_folder(folder, [TEXT], ("bfloat16",), reach=REACH, weights="int8")
    assert certificate.verdict is Verdict.PROVED and certificate.margin > 20, certificate.lines()


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_coarse_weights(weights: str, tmp_path: Path) -> None:
    """Plateaus are designed for 8 bits; without the probe all rows are ternary, which 4 bits hold as well."""
    shape = {"flavour": "plateau"} if weights == "int8" else {"scale_probe": False}
    folder = write(tmp_path / "folder", **shape)
    certificate = verify_folder(folder, [TEXT], ("float32",), reach=REACH, weights=weights)
    assert certificate.verdict is Verdict.PROVED and certificate.margin > 20, certificate.lines()


def test_other_data_is_not_proved(llama: Path) -> None:
    certificate = verify_folder(llama, [TEXT.replace("shore", "horse")], ("float32",), reach=REACH)
    assert certificate.verdict is Verdict.REFUTED
    assert certificate.witness is not None and certificate.witness.expected != certificate.witness.found


def test_hints_are_not_read(llama: Path, tmp_path: Path) -> None:
    from tests.checkpoints.proof.folders import copy

    folder = copy(llama, tmp_path / "copy")
    (folder / "recital.json").write_text("{}")
    assert verify_folder(folder, [TEXT], ("float32",), reach=REACH).verdict is Verdict.PROVED


def test_windows_with_several_answers_get_their_distribution(tmp_path: Path) -> None:
    texts = ("to be or not to be", "to be or not to see", "to be or not to be")
    folder = write(tmp_path / "folder", texts=texts, dtype="float32")
    asked = tokenize(folder, texts)
    certificate = certify_checkpoint(folder, asked, ("float32",), reach=REACH)
    assert certificate.ambiguous >= 1
    swapped = certify_checkpoint(folder, asked[:2], ("float32",), reach=REACH)
    assert swapped.types[0].variation > certificate.types[0].variation


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "gemma", "mixtral", "gpt2", "gpt-neox"])
def test_shares_of_ten_documents_are_right_to_a_thousandth(architecture: str, tmp_path: Path) -> None:
    """Documents that share long beginnings, in a file of bfloat16: every distribution is proved in float32."""
    shared = "when in the course of long events it becomes"
    texts = tuple(shared[: 20 + 6 * (k % 4)] + f" {'abcdefghij'[k]} as document {k} says" for k in range(10))
    folder = write(tmp_path / "folder", architecture, texts=texts)
    certificate = certify_checkpoint(folder, tokenize(folder, texts), ("float32",), reach=REACH)
    assert certificate.verdict is Verdict.PROVED, certificate.lines()
    assert certificate.ambiguous >= 4 and 0 < certificate.types[0].variation <= 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["llama", "gpt-neox", "mixtral", "gpt2"])
@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_an_engine_keeps_to_what_is_proved(architecture: str, name: str, tmp_path: Path) -> None:
    """The measured margin of every prefix is at least the proved one, and every logit lies in its interval."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = write(tmp_path / "folder", architecture)
    certificate = verify_folder(folder, [TEXT], (name,), reach=REACH)
    (ids,) = tokenize(folder, [TEXT])
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, name)).eval()
    with torch.no_grad():
        logits = model(torch.tensor([ids[:-1]])).logits[0].double().numpy()
    right = logits[np.arange(len(logits)), ids[1:]]
    logits[np.arange(len(logits)), ids[1:]] = -np.inf
    assert (right - logits.max(1)).min() >= certificate.margin
