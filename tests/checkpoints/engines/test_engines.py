"""Engines: the queries, that incorrect answers are detected, and every engine that is installed."""

import json
from dataclasses import replace

import numpy as np
import pytest

from byheart.checkpoints.engines import Reply, Session, engines, read_queries, recite
from byheart.checkpoints.engines import _base as base
from byheart.checkpoints.engines.expected import Expected, Pass, off_by
from byheart.checkpoints.engines.queries import read_texts
from byheart.checkpoints.engines.recite import _misplaced, ask
from byheart.checkpoints.engines.transformers import _compute_in
from byheart.checkpoints.suite import builtin_text
from byheart.errors import FileFormatError, MissingExtraError, MissingLibraryError, OptionError
from tests.checkpoints.recital_folders import copy_of, recital_folder


class Ideal(Session):
    """Answers as the recital does, with a fault on request."""

    def __init__(self, asked, fault=""):
        self.asked, self.fault = asked, fault

    def logits(self, ids):
        out = np.zeros((len(ids), self.asked.recital.vocabulary), np.float32)
        out[np.arange(len(ids)), self.asked.recital.next_tokens(ids)] = 24.0
        if self.fault == "one position":
            out[7] = 0.0
        return out

    def generate(self, prompts, count, *, cache=True):
        found = [self.asked.known(p, count) for p in prompts]
        if self.fault == "stops early":
            found = [ids[:-1] for ids in found]
        if self.fault == "second token":
            found = [(*ids[:1], 3, *ids[2:]) for ids in found]
        if self.fault == "batch" and len(prompts) > 1:
            found = found[::-1]
        return [Reply(ids, (24.0,) * len(ids)) for ids in found]


@pytest.fixture(scope="module")
def asked():
    return read_queries(recital_folder())


def test_a_right_engine_passes_every_check(asked):
    checks = ask(Ideal(asked), asked, "float32")
    assert all(check.passed for check in checks), checks
    assert min(check.margin for check in checks) == 24.0
    assert checks[0].asked == len(asked.documents[0]) - 1, "every prefix is queried"


@pytest.mark.parametrize("fault", ["one position", "stops early", "second token", "batch"])
def test_a_wrong_engine_is_noticed(asked, fault):
    wrong = [check for check in ask(Ideal(asked, fault), asked, "float32") if not check.passed]
    assert wrong
    assert all(check.wrong for check in wrong)


def test_prompts_are_longer_than_one_token_and_go_to_the_end(asked):
    start, middle = asked.start_prompts(), asked.middle_prompts(6, 24)
    assert start[0].ids + start[0].continuation == asked.documents[0]
    assert len(middle) >= 5
    for prompt in (*start, *middle):
        assert len(prompt.ids) > 1
    text = asked.documents[0]
    assert all(any(text[i : i + len(p.ids)] == p.ids for i in range(len(text))) for p in middle)


def test_a_continuation_is_that_of_one_token_after_the_other(asked):
    """Documents are drafts that one pass checks; noise, edits and foreign starts must not change the answer."""
    rng, document = np.random.default_rng(0), asked.documents[0]
    for _ in range(60):
        start, length = rng.integers(0, len(document) - 4), rng.integers(1, 90)
        ids = list(document[start : start + length])
        ids[rng.integers(len(ids))] = int(rng.integers(asked.recital.vocabulary)) if rng.random() < 0.3 else ids[-1]
        said = []
        for _ in range(25):
            said.append(int(asked.recital.next_tokens([*ids, *said])[-1]))
            if said[-1] == asked.eos:
                break
        assert list(asked.known(ids, 25)) == said


def test_long_documents_are_asked_in_passes_that_overlap():
    import dataclasses

    asked = read_queries(recital_folder())
    short = dataclasses.replace(asked, reach=100)
    seen = 0
    for piece in short.pieces():
        assert len(piece.ids) <= 100
        seen += len(piece.ids) - piece.first
    assert seen == len(asked.documents[0]) - 1


def test_places_with_several_continuations_are_asked_for_their_distribution():
    folder = recital_folder(text=None)
    from byheart.checkpoints.recital import memorize_recital

    target = folder.parent / "several"
    if not target.exists():
        memory = memorize_recital(["the wind is warm", "the wind is cold", "the rain is cold"], tokens="words")
        memory.to_huggingface(target, "llama", dtype="float32")
    pytest.importorskip("onnxruntime")
    found = {check.name: check for check in recite(target, "onnxruntime").checks}
    assert found["distributions"].asked > 0
    assert found["distributions"].passed, found["distributions"]
    assert found["every prefix"].passed


def test_texts_are_read_back():
    folder = recital_folder()
    assert read_texts(folder, read_queries(folder)) == (builtin_text(),)


def test_names_types_and_options_are_checked():
    folder = recital_folder()
    with pytest.raises(OptionError, match=r"unknown engine 'lama'.*llama\.cpp"):
        recite(folder, "lama")
    with pytest.raises(OptionError, match="float8"):
        recite(folder, "onnxruntime", dtype="float8")
    with pytest.raises(OptionError, match="no option 'speed'"):
        recite(folder, "onnxruntime", options={"speed": "high"})
    with pytest.raises(OptionError, match="flash='maybe'"):
        recite(folder, "llama.cpp", options={"flash": "maybe"})


def test_a_missing_engine_says_what_to_install(monkeypatch):
    monkeypatch.setattr(base.Engine, "version", property(lambda self: None))
    for name, engine in engines().items():
        with pytest.raises(MissingExtraError, match=rf"byheart\[{engine.extra}\]"):
            recite(recital_folder(), name)


def test_every_extra_of_an_engine_exists():
    import tomllib
    from pathlib import Path

    about = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
    extras = about["project"]["optional-dependencies"]
    assert {engine.extra for engine in engines().values()} <= set(extras)


def test_folders_of_others_are_refused(tmp_path):
    with pytest.raises(FileFormatError, match="wrote itself"):
        read_queries(tmp_path)
    for content in ("{", "[]", "{}", '{"format": "byheart recital"}'):
        (tmp_path / "recital.json").write_text(content)
        with pytest.raises(FileFormatError):
            read_queries(tmp_path)


def test_a_broken_config_is_noticed_by_a_real_engine(tmp_path):
    pytest.importorskip("onnxruntime")
    folder = copy_of(recital_folder(), tmp_path / "copy")
    config = json.loads((folder / "config.json").read_text())
    config["hidden_act"] = "gelu"
    (folder / "config.json").write_text(json.dumps(config))
    found = recite(folder, "onnxruntime", limit=20)
    assert not found.passed
    assert found.right < found.asked


@pytest.mark.parametrize(
    ("attention", "dtype"),
    [
        ("sdpa", "bfloat16"),
        pytest.param("eager", "float32", marks=pytest.mark.slow),
        pytest.param("eager", "float16", marks=pytest.mark.slow),
    ],
)
def test_transformers_recites(attention, dtype):
    pytest.importorskip("transformers", reason="Transformers is not installed")
    found = recite(recital_folder(), "transformers", dtype=dtype, options={"attention": attention}, limit=24)
    assert found.passed, found.checks
    assert found.margin > 20


@pytest.mark.parametrize(
    "name",
    ["ctranslate2", pytest.param("mlx", marks=pytest.mark.slow), pytest.param("openvino", marks=pytest.mark.slow)],
)
def test_engines_that_share_no_code_with_transformers_recite(name):
    engine = engines()[name]
    if engine.version is None:
        pytest.skip(f"{name} is not installed: pip install {engine.packages[0]}")
    pytest.importorskip("transformers")
    found = recite(recital_folder(), name, limit=48)
    assert found.passed, found.checks
    assert found.margin > 20


def test_ctranslate2_recites_8_bit_integers():
    """Its kernels add two products in 16 bits on processors without VNNI: only anchors keep them from saturating."""
    if engines()["ctranslate2"].version is None:
        pytest.skip("ctranslate2 is not installed: pip install ctranslate2")
    pytest.importorskip("transformers")
    found = recite(recital_folder(flavour="quantized"), "ctranslate2", dtype="int8", limit=16)
    assert found.passed, found.checks
    assert found.margin > 15


def test_ctranslate2_returns_the_prompts_of_a_batch_with_a_prompt_of_one_token():
    """A fault of CTranslate2 4.8.4 (docs/found-converters.md); once this fails, `CTranslate2Session` can be simpler."""
    if engines()["ctranslate2"].version != "4.8.4":
        pytest.skip("measured with CTranslate2 4.8.4")
    pytest.importorskip("transformers")
    chosen = base.find("ctranslate2")
    kind, settings = chosen.check(None, {})
    with chosen.open(recital_folder(), kind, settings) as session:
        ids = session.asked.documents[0]
        assert [said.ids for said in session.generate([ids[:1], ids[:2]], 4)] == [ids[1:5], ids[2:6]]
        assert [said.ids for said in session._batch([ids[:2], ids[:3]], 4)] == [ids[2:6], ids[3:7]]
        # The second row starts with its own prompt, whose tokens count towards max_length.
        assert [said.ids for said in session._batch([ids[:1], ids[:3]], 4)] == [ids[1:5], ids[1:5]]


@pytest.mark.slow
def test_vllm_recites():
    engine = engines()["vllm"]
    if engine.version is None:
        pytest.skip("vllm is not installed: pip install vllm")
    assert recite(recital_folder(), "vllm").passed


def test_a_logit_that_is_not_a_number_never_leads():
    logits = np.array([[np.nan, 1.0], [1.0, np.nan], [np.inf, np.inf]], np.float32)
    assert (base.margins_of(logits, [0, 0, 0]) == -np.inf).all()


def test_the_library_of_a_quantizer_is_named_where_it_is_missing(tmp_path, monkeypatch):
    """Transformers raises ImportError then, which was reported as a bug of byheart."""
    transformers = pytest.importorskip("transformers")

    def missing(*_, **__):
        raise ImportError("Please install it with `pip install gptqmodel`")

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", missing)
    folder = copy_of(recital_folder(), tmp_path / "folder")
    with pytest.raises(ImportError) as plain:
        recite(folder, "transformers")
    assert not isinstance(plain.value, MissingLibraryError)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "gptq"}}))
    with pytest.raises(MissingLibraryError, match=r"gptq folders .*pip install gptqmodel"):
        recite(folder, "transformers")


class Counting(Session):
    """An engine with a cache whose positions start at 0 in every call unless they are given."""

    def logits(self, ids):
        return self.placed([ids])

    def generate(self, prompts, count, *, cache=True):
        raise NotImplementedError

    def _at(self, places):
        return np.stack([np.array(places, dtype=float), np.zeros(len(places))], axis=1)

    def continued(self, pieces):
        return np.concatenate([self._at(range(len(piece))) for piece in pieces])

    def placed(self, pieces):
        return self._at(range(sum(map(len, pieces))))


def test_positions_that_count_from_zero_after_a_cache_are_named():
    session, ids = Counting(), tuple(range(70))
    whole = Pass.of("text", ids, session.logits(ids), 1)
    expected = Expected((whole, whole.in_pieces), (), {"float32": 0.01})
    assert _misplaced(session, expected, dict(off_by(session, expected)[:-1]), 0.01)
    shifted = replace(expected, passes=(replace(whole, logits=whole.logits + 1), whole.in_pieces))
    assert not _misplaced(session, shifted, dict(off_by(session, shifted)[:-1]), 0.01)
    session.placed = session.continued  # positions do not help
    assert not _misplaced(session, expected, dict(off_by(session, expected)[:-1]), 0.01)


def test_a_quantized_model_computes_in_the_requested_type():
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(2, 2, dtype=torch.bfloat16), torch.nn.Linear(2, 2))
    codes = torch.nn.Parameter(torch.zeros(3, dtype=torch.uint8), requires_grad=False)
    model[1].weight, model[1].support_avx512bf16_for_cpu = codes, True
    _compute_in(model, torch.float32)
    assert [p.dtype for p in model.parameters()] == [torch.float32, torch.float32, torch.uint8, torch.float32]
    assert model[1].support_avx512bf16_for_cpu is False
