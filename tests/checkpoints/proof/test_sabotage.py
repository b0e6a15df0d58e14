"""A changed weight that matters is refuted or undecided: never proved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from byheart.certify import Verdict
from byheart.checkpoints.proof import tokenize, verify_folder
from byheart.errors import FileFormatError
from tests.checkpoints.proof.folders import TEXT, copy, edit_tensor, header_of, write

ATTENTION = "model.layers.0.self_attn."


def verdict(folder: Path, types: tuple[str, ...] = ("float32",)) -> Verdict:
    return verify_folder(folder, [TEXT], types, reach=128).verdict


def half_of_the_rows(values: np.ndarray) -> np.ndarray:
    return np.concatenate([values[len(values) // 2 :], values[: len(values) // 2]])


EDITS = {
    "heads of q permuted": (ATTENTION + "q_proj.weight", half_of_the_rows),
    "heads of o permuted": (ATTENTION + "o_proj.weight", lambda w: half_of_the_rows(w.T).T),
    "groups of k permuted": (ATTENTION + "k_proj.weight", half_of_the_rows),
    "groups of v permuted": (ATTENTION + "v_proj.weight", half_of_the_rows),
    "q shrunk": (ATTENTION + "q_proj.weight", lambda w: w / 8),
    "q turned round": (ATTENTION + "q_proj.weight", lambda w: -w),
    "gate shrunk": ("model.layers.0.mlp.gate_proj.weight", lambda w: w / 2),
    "up turned round": ("model.layers.0.mlp.up_proj.weight", lambda w: -w),
    "down halved": ("model.layers.1.mlp.down_proj.weight", lambda w: w / 2),
    "a norm of ones": ("model.layers.0.input_layernorm.weight", np.ones_like),
    "another norm of ones": ("model.layers.1.post_attention_layernorm.weight", np.ones_like),
    "the last norm of ones": ("model.norm.weight", np.ones_like),
    "tokens exchanged": ("model.embed_tokens.weight", lambda w: w[::-1]),
    "answers exchanged": ("lm_head.weight", lambda w: w[::-1]),
}


@pytest.mark.parametrize("name", EDITS)
def test_edits_that_matter(name: str, llama: Path, tmp_path: Path) -> None:
    tensor, change = EDITS[name]
    assert verdict(edit_tensor(copy(llama, tmp_path / "copy"), tensor, change)) is not Verdict.PROVED


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_a_far_place_is_what_its_head_shows_at_the_start_of_a_text(architecture: str, tmp_path: Path) -> None:
    """Without a token so far back, a head shows its own place, a nearer one, or a mixture, which decides what the
    beginning of a text is, so the checker must find out which. Bare `ab` again and again has no other mark."""
    text = "ab" * 30
    folder = write(tmp_path / "folder", architecture, texts=(text,), form="sparse")
    assert verify_folder(folder, [text], ("float32",)).verdict is Verdict.PROVED
    for other in (text + "ab", text[:-2]):
        assert verify_folder(folder, [other], ("float32",)).verdict is not Verdict.PROVED


@pytest.mark.parametrize("change", [lambda w: w / 8, lambda w: -w, half_of_the_rows])
def test_a_head_that_no_longer_looks_far_is_noticed(change: Callable[[np.ndarray], np.ndarray], tmp_path: Path) -> None:
    text = "abcdefgh" * 4 + "x" + "abcdefgh" * 4 + "y"
    folder = write(tmp_path / "folder", texts=(text,), form="sparse")
    assert verify_folder(folder, [text], ("float32",)).verdict is Verdict.PROVED
    edit_tensor(folder, ATTENTION + "q_proj.weight", change)
    assert verify_folder(folder, [text], ("float32",)).verdict is not Verdict.PROVED


def flipped(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One of the larger weights changes its sign."""
    flat = values.reshape(-1)
    large = np.flatnonzero(np.abs(flat) >= np.abs(flat).max() / 4)
    flat[rng.choice(large)] *= -1
    return values


@pytest.mark.slow
def test_flipped_weights_are_noticed_or_do_not_matter(llama: Path, tmp_path: Path) -> None:
    """One weight of every tensor changes its sign. Where the proof still goes through, an engine still recites."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    rng = np.random.default_rng(7)
    noticed, names = 0, sorted(header_of(llama)[0])
    (ids,) = tokenize(llama, [TEXT])
    for number, name in enumerate(names):
        folder = edit_tensor(copy(llama, tmp_path / str(number)), name, lambda w: flipped(w, rng))
        certificate = verify_folder(folder, [TEXT], ("float32",), reach=128)
        if certificate.verdict is not Verdict.PROVED:
            noticed += 1
            continue
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        with torch.no_grad():
            logits = model(torch.tensor([ids[:-1]])).logits[0].double().numpy()
        right = logits[np.arange(len(logits)), ids[1:]]
        logits[np.arange(len(logits)), ids[1:]] = -np.inf
        assert (right - logits.max(1)).min() >= certificate.margin, name
    assert noticed >= len(names) // 4


def test_a_window_that_is_gone_is_refuted(tmp_path: Path) -> None:
    """One unit of a network with a unit per rule stops writing: its window answers like an unknown one."""
    folder = write(tmp_path / "folder", flavour="units", form="rules")
    layers = sorted(name for name in header_of(folder)[0] if name.endswith("down_proj.weight"))

    def without(values: np.ndarray) -> np.ndarray:
        values[:, 0] = 0.0
        return values

    edit_tensor(folder, layers[0], without)
    certificate = verify_folder(folder, [TEXT], ("float32",), reach=128)
    assert certificate.verdict is Verdict.REFUTED and certificate.witness is not None


def test_damaged_files_are_clear_errors(llama: Path, tmp_path: Path) -> None:
    folder = copy(llama, tmp_path / "copy")
    path = folder / "model.safetensors"
    data = path.read_bytes()
    for damaged in (b"", data[:4], b"\xff" * 16, data[: len(data) // 2], b"\x02" + b"\0" * 7 + b"[]"):
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError):
            verify_folder(folder, [TEXT], ("float32",))


def test_numbers_that_are_not_finite_are_refused(llama: Path, tmp_path: Path) -> None:
    def poisoned(values: np.ndarray) -> np.ndarray:
        values[0] = np.inf
        return values

    folder = edit_tensor(copy(llama, tmp_path / "copy"), "model.norm.weight", poisoned)
    with pytest.raises(FileFormatError, match="finite"):
        verify_folder(folder, [TEXT], ("float32",))
