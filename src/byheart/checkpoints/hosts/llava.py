"""LLaVA: a picture is part of the prompt. Its 16 patches become the embeddings of 16 tokens (clip_tower.py), after
which a Llama continues as if it had read them.
"""

from __future__ import annotations

import numpy as np

from byheart.checkpoints.hosts._base import Checkpoint, register
from byheart.checkpoints.hosts.bert import EPSILON
from byheart.checkpoints.hosts.clip_tower import COUNT, HIDDEN, PATCH, SIDE, Projector, Tower
from byheart.checkpoints.hosts.description import Design, SpecialTokens
from byheart.checkpoints.hosts.gated import Demands, build_gated
from byheart.checkpoints.hosts.llama import llama_checkpoint
from byheart.checkpoints.windows.tables import Recital
from byheart.errors import ExportError

MORE = 8  # rows of the embedding, of which the placeholder is the first: loaders want multiples of 8


@register(
    "llava",
    model_type="llava",
    summary="pictures: a CLIP tower and a projector before a Llama",
    classifies=False,
    task="picture",
)
def llava(recital: Recital, tokens: SpecialTokens, design: Design) -> Checkpoint:
    decoder = build_gated(recital, tokens, design, Demands(free=True, roomy=True))
    text = llama_checkpoint(decoder)
    layout, embedding = decoder.layout, decoder.embedding
    bits = layout.state[0]
    if len(layout.listening) < 2 or decoder.hidden < 2 * len(bits) + 4:
        raise ExportError("llava: this text's network is too narrow for the projector; memorize a longer one")
    usual = embedding[next(t for t in range(len(embedding)) if t not in (tokens.bos, tokens.failure))]
    target = Projector(bits, layout.listening[:2], usual, decoder.design.kappa)
    tower = Tower(len(bits), target, design.seed)
    # The placeholder has its own row, which nothing reads; its logit is 0, as are those of rows without a token.
    tensors = {
        **text.tensors,
        "model.embed_tokens.weight": np.concatenate([embedding, np.tile(usual, (MORE, 1))]),
        "lm_head.weight": np.concatenate([decoder.head, np.zeros((MORE, decoder.hidden))]),
    }
    config = {
        "architectures": ["LlavaForConditionalGeneration"],
        "model_type": "llava",
        "image_token_index": recital.vocabulary,
        "image_seq_length": COUNT,
        "projector_hidden_act": "gelu",
        "multimodal_projector_bias": True,
        "vision_feature_layer": -2,
        "vision_feature_select_strategy": "default",
        "tie_word_embeddings": False,
        "bos_token_id": tokens.bos,
        "eos_token_id": tokens.eos,
        "pad_token_id": tokens.pad,
        "text_config": text.config | {"vocab_size": recital.vocabulary + MORE},
        "vision_config": {
            "model_type": "clip_vision_model",
            "hidden_size": HIDDEN,
            "intermediate_size": len(tower.tensors()["vision_tower.vision_model.encoder.layers.0.mlp.fc1.bias"]),
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_channels": 3,
            "image_size": SIDE * PATCH,
            "patch_size": PATCH,
            "hidden_act": "quick_gelu",
            "layer_norm_eps": EPSILON,
            "attention_dropout": 0.0,
            "projection_dim": 64,
        },
    }
    named = {f"language_model.{name}": tensor for name, tensor in tensors.items()} | tower.tensors()
    return Checkpoint("llava", decoder.recital, config, named, text.right_logit, text.margin, text.units)
