"""Exported models answer as the exact network does: every target, task, float type, batch size and order of units."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from safetensors import safe_open

import byheart
from byheart.build.native.front import mean_attention
from byheart.data.dataset.dataset import load
from byheart.data.task import Task
from byheart.errors import ByheartError, DataError, ExportError, MissingExtraError
from byheart.export.recheck import codes_of_inputs, dense, draw_codes, inputs_of_codes, number, queries, recheck
from byheart.export.request import About, ExportRequest
from byheart.export.targets import onnx as onnx_layers
from byheart.export.targets.onnx import build_model, write_onnx
from byheart.export.targets.safetensors import run_arrays, write_safetensors
from byheart.export.targets.torch import build_torch, config_of, state_of
from byheart.export.torch_runtime import TorchMemory
from byheart.ir.evaluate import answers
from byheart.ir.layers import Affine, Matrix, Pattern
from byheart.ir.network import Decode, Network, Read, Readout
from byheart.memory import memorize_dataset
from tests.build.native.data import dataset
from tests.cases import Case, cases
from tests.certify.any_order.permuted import permuted

NAMES = ("one token", "symbols", "vectors", "ragged words", "ragged sets")
CASES = [pytest.param(case, id=str(case)) for task in Task for case in cases(task) if case.name in NAMES]


def build(case: Case, **options):
    return byheart.memorize(
        case.sequences,
        case.labels,
        task=case.task,
        construction="native",
        positions=case.positions,
        progress=False,
        **options,
    )


def module(network, encoder, dtype="float64") -> TorchMemory:
    state = {name: torch.from_numpy(array) for name, array in state_of(network, dtype).items()}
    return TorchMemory(config_of(network, encoder, dtype), state, {})


def session(model, threads: int = 1):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("case", CASES)
def test_every_target_agrees_on_every_task(case, tmp_path):
    """Writing rechecks every row, so that writing without an error is the test; the metadata records it."""
    dtype = "float32" if case.name in ("symbols", "ragged words") else "float64"
    memory = build(case, dtype=dtype)
    plain, fast = memory.to_torch(), memory.to_torch(fast=True)
    memory.to_onnx(tmp_path / "m.onnx")
    memory.to_safetensors(tmp_path / "m.safetensors")
    about = {p.key: p.value for p in onnx.load(tmp_path / "m.onnx").metadata_props}
    with safe_open(tmp_path / "m.safetensors", "numpy") as file:
        kept = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    for metadata in (plain.metadata, fast.metadata, about, kept):
        assert metadata["byheart.checked"] == f"every row of the data ({len(case.sequences)})"
        assert metadata["byheart.dtype"] == dtype and json.loads(metadata["byheart.labels"]) == [
            *memory.classes,
            "<unknown>",
        ]
    asked = queries(memory.network, memory.encoder, memory.dataset, dtype, certified=True)
    found = run_arrays(json.loads(kept["byheart.architecture"]), tensors, asked.tokens, asked.present)
    assert (found == asked.expected)[asked.expected != -2].all()


@pytest.mark.parametrize("n", [1, 3, 8, 49, 128])
def test_permuted_units_change_no_label(n):
    """The same function in other orders of summation, on both backends, on the data and off it."""
    data = dataset(60 if n > 1 else 30, 4, n, vocabulary=40)
    memory = memorize_dataset(data, construction="native", progress=False)
    tokens = np.concatenate([codes_of_inputs(data.inputs), draw_codes(data.encoder, 200, 1)])
    exact = answers(memory.network, inputs_of_codes(data.encoder, tokens))
    assert (exact[: data.N] == data.labels).all()
    for seed in range(2):
        network = permuted(memory.network, seed)
        model = module(network, data.encoder)
        for form in (model, model.fast()):
            assert (form.predict(torch.from_numpy(tokens)).numpy() == exact).all()
        found = session(build_model(network, data.encoder, "float64", {})).run(["class"], {"tokens": tokens})[0]
        assert (found == exact).all()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_batches_threads_and_logits(dtype, tmp_path):
    data = dataset(1000, 16, n=6)
    memory = memorize_dataset(data, construction="native", progress=False, dtype=dtype)
    tokens, labels = codes_of_inputs(data.inputs), data.labels
    plain = memory.to_torch()
    memory.to_onnx(tmp_path / "m.onnx")
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            runtime = session(onnx.load(tmp_path / "m.onnx"), threads)
            for batch in (1, 7, 1000):
                for start in range(0, min(1000, 6 * batch), batch):
                    part = slice(start, start + batch)
                    for form in (plain, plain.fast()):
                        assert (form.predict(torch.from_numpy(tokens[part])).numpy() == labels[part]).all()
                    found, logits = runtime.run(["class", "logits"], {"tokens": tokens[part]})
                    assert (found == labels[part]).all() and (logits.argmax(axis=-1) == labels[part]).all()
    finally:
        torch.set_num_threads(before)
    assert (plain(torch.from_numpy(tokens)).argmax(dim=-1).numpy() == labels).all()


def test_logits_of_what_is_unknown_favour_no_class(tmp_path):
    data = dataset(300, 5, n=4)
    memory = memorize_dataset(data, construction="native", progress=False, abstain_bits=12)
    memory.to_onnx(tmp_path / "m.onnx")
    tokens = np.random.default_rng(1).integers(1, len(data.encoder.symbols) + 1, (400, 4))
    found, printed = session(onnx.load(tmp_path / "m.onnx")).run(["class", "logits"], {"tokens": tokens})
    unknown = found == -1
    assert unknown.sum() > 300
    exact = np.array(memory.logits([[data.encoder.symbols[k - 1] for k in row] for row in tokens.tolist()]))
    for logits in (printed, memory.to_torch()(torch.from_numpy(tokens)).numpy(), exact):
        assert (logits[unknown] == 0).all() and (np.sort(logits[~unknown])[:, -2:] <= [-32, 0]).all()


def test_deep_stacks_become_scans(monkeypatch):
    data = dataset(200, 3, n=5)
    memory = memorize_dataset(data, construction="native", progress=False)
    monkeypatch.setattr(onnx_layers, "MOST_UNROLLED", 4)
    model = build_model(memory.network, data.encoder, "float64", {})
    assert sum(node.op_type == "Scan" for node in model.graph.node) >= 2
    found = session(model).run(["class"], {"tokens": codes_of_inputs(data.inputs)})[0]
    assert (found == data.labels).all()


def test_a_module_behaves_like_a_module(tmp_path):
    data = dataset(100, 3, n=4)
    memory = memorize_dataset(data, construction="native", progress=False)
    model = memory.to_torch()
    tokens = torch.from_numpy(codes_of_inputs(data.inputs))
    assert sum(p.numel() for p in model.parameters()) == memory.size.parameters
    copy = module(memory.network, data.encoder)
    for parameter in copy.parameters():
        parameter.data.zero_()
    copy.load_state_dict(model.state_dict())
    assert (copy.predict(tokens) == model.predict(tokens)).all()
    fast = copy.fast().to("cpu")
    weights = {name: value.clone() for name, value in fast.state_dict().items()}
    for value in fast.state_dict().values():
        value.zero_()
    fast.load_state_dict(weights)
    assert (fast.predict(tokens).numpy() == data.labels).all()
    assert model.encode([list(row) for row in data.sequences()[:3]]).tolist() == tokens[:3].tolist()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's own, on importing its compiler
def test_under_torch_compile():
    data = dataset(40, 2, n=3, vocabulary=9)
    memory = memorize_dataset(data, construction="native", progress=False)
    model = memory.to_torch()
    compiled = torch.compile(model)
    logits = compiled(torch.from_numpy(codes_of_inputs(data.inputs)))
    assert (logits.argmax(dim=-1).numpy() == data.labels).all()


FRESH = """
    import sys, json, numpy as np, onnxruntime
    sys.modules["byheart"] = None  # importing it would fail
    session = onnxruntime.InferenceSession({model!r}, providers=["CPUExecutionProvider"])
    about = session.get_modelmeta().custom_metadata_map
    code = {{symbol: i + 1 for i, symbol in enumerate(json.loads(about["byheart.symbols"]))}}
    labels = json.loads(about["byheart.labels"])
    rows, wanted = json.load(open({data!r}))
    tokens = np.array([[0] * (int(about["byheart.length"]) - len(row)) + [code[t] for t in row] for row in rows])
    found = session.run(["class"], {{"tokens": tokens}})[0]
    assert [labels[k] for k in found] == wanted
    print("right, without byheart")
"""


def alone(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a script in a process that does not find byheart's sources."""
    words = [sys.executable, "-c", script]
    return subprocess.run(words, capture_output=True, text=True, cwd=folder, check=False, env={"PATH": "/usr/bin"})


def test_the_onnx_file_works_in_a_process_without_byheart(tmp_path):
    words = ["cat", "act", "dog", "god", "a", "to", "tot"]
    labels = ["noun", "verb", "noun", "noun", "article", "preposition", "noun"]
    memory = byheart.memorize(words, labels, construction="native", progress=False)
    memory.to_onnx(tmp_path / "m.onnx")
    (tmp_path / "d.json").write_text(json.dumps([[list(word) for word in words], labels]))
    script = textwrap.dedent(FRESH.format(model=str(tmp_path / "m.onnx"), data=str(tmp_path / "d.json")))
    done = alone(script, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "right" in done.stdout


def test_the_torch_file_works_with_its_own_source(tmp_path):
    case = next(iter(cases(Task.SET)))
    memory = build(case)
    from byheart.memory.export_memory import export_file

    written = export_file(memory, "torch", tmp_path / "m.pt")
    assert written["source"].endswith("m.py") and "import byheart" not in (tmp_path / "m.py").read_text()
    script = (
        "import m; x = m.load('m.pt'); c = x.encode([[3, 1, 2]]); print(x.labels[x.predict(c)[0]], x.fast().predict(c))"
    )
    done = alone(script, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(case.labels[0]))
    with pytest.raises(ExportError, match="hide"):
        export_file(memory, "torch", tmp_path / "m.py")


def test_a_memory_from_a_file_is_checked_on_drawn_inputs_or_given_data(tmp_path):
    case = list(cases(Task.CAUSAL))[3]
    memory = build(case)
    memory.save(tmp_path / "m.byheart")
    loaded = byheart.load(tmp_path / "m.byheart")
    assert loaded.to_torch().metadata["byheart.checked"] == "10000 inputs drawn at random"
    assert "every row" in loaded.to_torch(dataset=memory.dataset).metadata["byheart.checked"]
    with pytest.raises(DataError, match="causal takes a list"):
        loaded.to_torch(dataset=dataset(10, 2))


def test_vectors_need_their_data(tmp_path):
    case = next(case for case in cases(Task.NEXT_TOKEN) if case.name == "vectors")
    memory = build(case)
    memory.save(tmp_path / "m.byheart")
    loaded = byheart.load(tmp_path / "m.byheart")
    with pytest.raises(ExportError, match="--data"):
        loaded.to_onnx(tmp_path / "m.onnx")
    loaded.to_onnx(tmp_path / "m.onnx", dataset=memory.dataset)


def test_what_does_not_fit_is_refused_with_what_would_do(tmp_path):
    data = dataset(100, 2, n=3)
    memory = memorize_dataset(data, construction="native", progress=False)
    with pytest.raises(ExportError, match="fits float64: ask for dtype float64"):
        memory.to_onnx(tmp_path / "m.onnx", dtype="float32")
    exact = byheart.memorize(["ab", "ba", "bb"], [0, 1, 1], construction="ks25", progress=False)
    with pytest.raises(ExportError, match="construction native"):
        replace(exact, dataset=None).to_torch()
    with pytest.raises(ByheartError, match="bfloat16"):
        memory.to_torch(dtype="bfloat16")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("n", range(1, 129))
def test_permuted_units_change_no_label_for_any_length(n):
    test_permuted_units_change_no_label(n)


def test_a_wrong_answer_is_an_error_with_the_input():
    data = dataset(50, 2, n=3)
    memory = memorize_dataset(data, construction="native", progress=False)
    asked = queries(memory.network, data.encoder, data, "float64", certified=True)
    with pytest.raises(ExportError, match=r"for the tokens \[\d+"):
        recheck(lambda tokens, present: np.zeros(len(tokens), dtype=np.int64), asked, "toy")
    swapped = replace(asked, expected=1 - asked.expected)
    model = module(memory.network, data.encoder)
    with pytest.raises(ExportError, match="instead of"):
        recheck(lambda tokens, present: model.predict(torch.from_numpy(tokens)).numpy(), swapped, "toy")


def test_weights_are_never_rounded():
    assert number(3 << 60, "float32") == float(3 << 60)
    for weight, dtype in (((1 << 24) + 1, "float32"), ((1 << 53) + 1, "float64"), (1 << 2000, "float64")):
        with pytest.raises(ExportError, match="is not a float"):
            dense(Matrix.of([{0: weight}], 1), dtype)


def test_missing_libraries_are_named(monkeypatch, tmp_path):
    data = dataset(10, 2, n=2)
    memory = memorize_dataset(data, construction="native", progress=False)
    for library, call in (
        ("torch", lambda: memory.to_torch()),
        ("onnxruntime", lambda: memory.to_onnx(tmp_path / "m.onnx")),
        ("safetensors.numpy", lambda: memory.to_safetensors(tmp_path / "m.safetensors")),
    ):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, library, None)
            with pytest.raises(MissingExtraError, match="pip install"):
                call()


@pytest.mark.parametrize("target", ["torch", "onnx", "safetensors"])
def test_an_unwritable_place_is_an_error(target, tmp_path):
    from byheart.memory.export_memory import export_file

    memory = memorize_dataset(dataset(10, 2, n=2), construction="native", progress=False)
    with pytest.raises(ExportError, match="cannot write"):
        export_file(memory, target, tmp_path / "nowhere" / "m.bin")
    with pytest.raises(ByheartError, match="unknown export target"):
        export_file(memory, "tflite", tmp_path / "m.bin")


@pytest.mark.parametrize("positions", [False, True])
def test_a_network_that_reads_codes_as_numbers(positions, tmp_path):
    """Not only embeddings: a linear map of (code, position), a mean over two tokens, and the answer."""
    data = load(["ab", "ba", "bb", "aa"], [3, 3, 4, 2] if not positions else [4, 4, 5, 3], positions=positions)
    entry = Affine(Matrix.of([{0: 1, 1: 2} if positions else {0: 1}], 1 + positions), (0,))
    mean = mean_attention(1, Pattern.FULL, [0], [0], 2)
    network = Network((entry, mean, Affine(Matrix.of([{0: 1}], 1))), Read.LAST, Readout(Decode.VALUE, 20, 0))
    exact = answers(network, data.inputs)
    request = ExportRequest(network, data.encoder, About(tuple(range(20))), "float64", None)
    model = build_torch(request)
    write_onnx(request, tmp_path / "m.onnx")
    write_safetensors(request, tmp_path / "m.safetensors")
    assert len(set(exact.tolist())) == 4 and exact.min() >= 0
    assert (model.predict(torch.from_numpy(codes_of_inputs(data.inputs))).numpy() == exact).all()


@pytest.mark.filterwarnings("ignore:.*as construction native")
@pytest.mark.parametrize("name", sorted(set(byheart.constructions()) - {"recital"}))
def test_any_memory_can_be_asked(name, tmp_path):
    """Written and right, or refused with a reason: never a crash and never an incorrect answer."""
    task = byheart.constructions()[name].tasks[0]
    case = next(iter(cases(Task(task))))
    memory = byheart.memorize(
        case.sequences, case.labels, task=task, construction=name, positions=case.positions, progress=False
    )
    for write in (
        memory.to_torch,
        lambda: memory.to_onnx(tmp_path / "m"),
        lambda: memory.to_safetensors(tmp_path / "m"),
    ):
        try:
            write()
        except ExportError as error:
            assert "native" in str(error) or "float64" in str(error)


def test_what_a_module_does_not_know_is_named_and_never_a_label():
    memory = byheart.memorize([[1, 2], [2], [3, 1]], ["a", "b", "<unknown>"], construction="native", abstain_bits=16)
    module = memory.to_torch()
    with pytest.raises(ValueError, match=r"row 1: 99 \(int\) is a token that this memory has never seen"):
        module.encode([[1, 2], [1, 99]])
    with pytest.raises(ValueError, match=r"row 0 has 3 tokens; this memory reads 1 to 2"):
        module.encode([[1, 2, 3]])
    assert module.answers([[2], [99], [3, 1], [1, 1], [1, 2, 3]]) == [
        "b",
        "<<unknown>>",
        "<unknown>",
        *["<<unknown>>"] * 2,
    ]
    assert module.labels[-1] not in memory.classes
    each = byheart.memorize(["ab", "b"], [["x", "y"], ["y"]], task="seq-to-seq", construction="native").to_torch()
    assert each.answers(["ab", "b", "zz"]) == [["x", "y"], ["y"], ["<unknown>", "<unknown>"]]
