"""Pictures and LLaVA's shape; answers are tested with the fixtures (suite/features/test_inputs.py)."""

from __future__ import annotations

import numpy as np

from byheart.checkpoints.hosts.bert import MEAN, SMALL
from byheart.checkpoints.hosts.clip_tower import COUNT, HALF, PATCH, SIDE, pictures
from byheart.checkpoints.suite.write import fixture_memory

TEXT = "a text of which a picture replaces sixteen tokens, and a decoder continues"


def test_a_patch_convolution_reads_the_bits() -> None:
    words = np.random.default_rng(3).choice([-1.0, 1.0], (COUNT, 16))
    picture = pictures(words, seed=4)
    assert picture.shape == (SIDE * PATCH, SIDE * PATCH, 3)
    assert set(np.unique(picture)) == {0, 255}
    checkpoint = fixture_memory(TEXT, "characters", "llava").request("llava").checkpoint()
    kernel = checkpoint.tensors["vision_tower.vision_model.embeddings.patch_embedding.weight"]
    position = checkpoint.tensors["vision_tower.vision_model.embeddings.position_embedding.weight"]
    pixels = picture.astype(float).transpose(2, 0, 1) / 127.5 - 1
    for number in range(COUNT):
        y, x = (PATCH * k for k in divmod(number, SIDE))
        stream = np.einsum("ocij,cij->o", kernel, pixels[:, y : y + PATCH, x : x + PATCH]) + position[1 + number] - MEAN
        read = stream[:HALF][np.abs(kernel[:HALF]).sum((1, 2, 3)) > 0] / SMALL
        assert (read[:8] == words[number, :8]).all()
        assert (read[8:] == words[number - 1, 8:]).all()
        assert (stream[:HALF] == -stream[HALF:]).all()
        assert (stream**2).mean() == SMALL**2


def test_the_placeholder_is_a_token_of_its_own() -> None:
    memory = fixture_memory(TEXT, "characters", "llava")
    checkpoint = memory.request("llava").checkpoint()
    assert checkpoint.config["image_token_index"] == memory.lexicon.size
    head = checkpoint.tensors["language_model.lm_head.weight"]
    assert len(head) % 8 == 0
    assert not head[memory.lexicon.size :].any()
