"""Code words, scores, files: the parts of a checkpoint."""

from __future__ import annotations

import json

import numpy as np
import pytest

from byheart.export.huggingface.codes import code_book
from byheart.export.huggingface.folder import rounded, safetensors_bytes
from byheart.export.huggingface.rotary import best_mixture, duels, frequencies, look_back


@pytest.mark.parametrize(("symbols", "balanced"), [(128, False), (2048, False), (30, True), (1200, True)])
def test_words_are_as_far_apart_as_they_say(symbols: int, balanced: bool) -> None:
    book = code_book(symbols, balanced=balanced)
    words = book.words.astype(np.int64)
    products = words @ words.T
    np.fill_diagonal(products, -book.bits)
    assert (book.bits - products.max()) // 2 >= book.distance
    if balanced:
        assert not words.sum(axis=1).any()


def test_the_game_is_solved_as_scipy_solves_it() -> None:
    scipy = pytest.importorskip("scipy.optimize")
    payoff = np.random.default_rng(1).normal(size=(60, 9))
    weights = best_mixture(payoff)
    upper = np.concatenate([-payoff, np.ones((60, 1))], axis=1)
    found = scipy.linprog(
        np.r_[np.zeros(9), -1.0], A_ub=upper, b_ub=np.zeros(60), A_eq=[[*[1.0] * 9, 0.0]], b_eq=[1.0],
        bounds=[(0, None)] * 9 + [(None, None)],
    )  # fmt: skip
    assert (payoff @ weights).min() == pytest.approx(-found.fun, abs=1e-9)


@pytest.mark.parametrize(("offset", "window"), [(0, None), (3, None), (8, None), (10, 11)])
def test_the_wanted_place_leads_every_other(offset: int, window: int | None) -> None:
    wave = look_back(64, 1e4, offset, 2048, window)
    assert wave.gap > 0.07
    assert np.abs(wave.cosine).sum() + np.abs(wave.sine).sum() == pytest.approx(1)
    scores = {d: s for d, s in zip(range(-1, 2050), wave.scores(range(-1, 2050), frequencies(64, 1e4)), strict=True)}
    assert all(scores[a] - scores[b] >= wave.gap - 1e-9 for a, b in duels(offset, 2048, window))


def test_safetensors_reads_what_we_write(tmp_path) -> None:
    safetensors = pytest.importorskip("safetensors")
    torch = pytest.importorskip("torch")
    tensors = {"a": np.array([[1.0, -2.5], [1 / 3, 2.0**-14]]), "b": np.arange(3.0)}
    for dtype in ("float32", "float16", "bfloat16"):
        path = tmp_path / f"{dtype}.safetensors"
        path.write_bytes(safetensors_bytes(tensors, dtype, {"format": "pt"}))
        with safetensors.safe_open(path, "pt") as file:
            for name, array in tensors.items():
                found = file.get_tensor(name)
                assert found.dtype == getattr(torch, dtype)
                assert (found.double().numpy() == rounded(array, dtype)).all()
                assert (found == torch.tensor(array).to(found.dtype)).all()


def test_the_header_is_aligned() -> None:
    data = safetensors_bytes({"x": np.zeros(1)}, "float32", {})
    length = int.from_bytes(data[:8], "little")
    assert length % 8 == 0 and json.loads(data[8 : 8 + length])["x"]["shape"] == [1]
