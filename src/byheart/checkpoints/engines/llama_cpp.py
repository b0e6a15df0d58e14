"""llama.cpp, through the wheel `xllamacpp`, which carries its server in process: the checkpoint as GGUF.

The server listens on this machine only. It returns the two likeliest tokens of every step, so margins
are known wherever it generates; it shows no logits of a prompt.
"""

from __future__ import annotations

import json
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from byheart.checkpoints.engines._base import Logits, Reply, Session, engine
from byheart.checkpoints.engines.queries import read_queries, read_texts
from byheart.checkpoints.formats.gguf import KINDS, write_gguf
from byheart.checkpoints.proof.tensors import read_json
from byheart.errors import ByheartError, OptionError

BATCH = 4  # sequences that the server decodes side by side
PATIENCE = 600  # seconds for one request
RECALL_REACH = 4096  # positions of a recall checkpoint's cache: longer prompts than the suite's are not sent


class LlamaCppSession(Session):
    shows_logits = False

    def __init__(self, server: Any, scratch: tempfile.TemporaryDirectory[str], end: int) -> None:
        self.server, self.scratch, self.end = server, scratch, end
        self.web = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the server is on this machine

    def logits(self, ids: Sequence[int]) -> Logits:
        raise OptionError("llama.cpp's server does not show the logits of a prompt")

    def generate(self, prompts: Sequence[Sequence[int]], count: int, *, cache: bool = True) -> list[Reply]:
        with ThreadPoolExecutor(min(BATCH, len(prompts))) as pool:
            return list(pool.map(lambda prompt: self._one(list(prompt), count), prompts))

    def _one(self, prompt: list[int], count: int) -> Reply:
        """The endpoint that lists every token: the others leave out those that end inside a character."""
        found = self._ask(
            "/completion",
            {
                "prompt": prompt,
                "n_predict": count,
                "temperature": 0.0,
                "top_k": 1,
                "n_probs": 2,
                "cache_prompt": False,
                "return_tokens": True,
            },
        )
        ids = [int(token) for token in found["tokens"]]
        if found.get("stop_type") == "eos" and ids[-1:] != [self.end]:
            ids.append(self.end)
        steps = found.get("completion_probabilities", [])
        best = [[entry["logprob"] for entry in step["top_logprobs"]] for step in steps]
        return Reply(tuple(ids), tuple(pair[0] - pair[1] for pair in best if len(pair) > 1))

    def tokenize(self, text: str) -> list[int] | None:
        return [int(t) for t in self._ask("/tokenize", {"content": text, "add_special": True})["tokens"]]

    def _ask(self, path: str, wish: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            self.server.listening_address + path, json.dumps(wish).encode(), {"Content-Type": "application/json"}
        )
        with self.web.open(request, timeout=PATIENCE) as answer:
            return json.load(answer)

    def close(self) -> None:
        del self.server
        self.scratch.cleanup()


@engine(
    "llama.cpp",
    extra="llama-cpp",
    packages=("xllamacpp",),
    types=tuple(KINDS),
    options={"flash": ("auto", "on", "off"), "cache": ("F16", "F32", "BF16", "Q8_0")},
    summary="llama.cpp's server in process (the wheel xllamacpp), reading GGUF",
)
def open_llama_cpp(folder: Path, dtype: str, options: Mapping[str, str]) -> Session:
    import xllamacpp

    reach, end, texts = _described(folder)
    scratch: tempfile.TemporaryDirectory[str] = tempfile.TemporaryDirectory()
    try:
        path = Path(scratch.name) / "model.gguf"
        write_gguf(folder, path, kind=dtype, texts=texts)
        server = _serve(xllamacpp, path, reach, options)
    except BaseException:
        scratch.cleanup()
        raise
    return LlamaCppSession(server, scratch, end)


def _described(folder: Path) -> tuple[int, int, tuple[str, ...]]:
    """Positions, end token and texts of a folder; a recall folder has no texts, and a cache as its cases need it."""
    recall = folder / "recall.json"
    if recall.is_file():
        value = read_json(recall)
        return min(int(value["context"]), RECALL_REACH), int(value["function"]["tokens"]["eos"]), ()
    queried = read_queries(folder)
    return queried.reach, queried.eos, read_texts(folder, queried)


def _serve(library: Any, path: Path, reach: int, options: Mapping[str, str]) -> Any:
    wish = library.CommonParams()
    wish.model.path = str(path)
    wish.n_ctx, wish.n_parallel, wish.n_gpu_layers = BATCH * reach, BATCH, 0  # each sequence gets its share
    wish.cpuparams.n_threads = wish.cpuparams_batch.n_threads = 1
    wish.warmup, wish.verbosity = False, -1
    wish.flash_attn_type = getattr(
        library.llama_flash_attn_type,
        {"auto": "LLAMA_FLASH_ATTN_TYPE_AUTO", "on": "LLAMA_FLASH_ATTN_TYPE_ENABLED",
         "off": "LLAMA_FLASH_ATTN_TYPE_DISABLED"}[options["flash"]],
    )  # fmt: skip
    wish.cache_type_k = wish.cache_type_v = getattr(library.ggml_type, f"GGML_TYPE_{options['cache']}")
    try:
        return library.Server(wish)
    except RuntimeError as error:
        raise ByheartError(f"llama.cpp could not load {path.name}: {error}") from error
