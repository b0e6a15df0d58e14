"""Proofs of listed inputs: engines stay inside the enclosures, tampering is not proved, other folders are refused."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from byheart.certify import Verdict
from byheart.checkpoints.formats.folder import safetensors_bytes
from byheart.checkpoints.hosts._base import host
from byheart.checkpoints.proof.config import Undecided
from byheart.checkpoints.proof.decoder import Linear, Norm
from byheart.checkpoints.proof.listed import ListedCase, certify_listed
from byheart.checkpoints.proof.listed.bert import Bert
from byheart.checkpoints.proof.listed.certify import FAMILIES
from byheart.checkpoints.proof.listed.reading import Reader, open_files, shape_of
from byheart.checkpoints.proof.listed.rows import ALONE, Rows, attend, margins_of_rows, mixed, scores
from byheart.checkpoints.proof.listed.t5 import T5, Buckets
from byheart.checkpoints.proof.slack import weakened
from byheart.checkpoints.proof.storage import storage
from byheart.checkpoints.proof.tensors import open_folder
from byheart.checkpoints.suite.features.inputs import listed_cases, masked_cases, seq2seq_cases
from byheart.checkpoints.suite.write import fixture_memory

TEXT = "The boat left at dawn. Nobody saw who rowed it."
TYPES = ("float32", "bfloat16", "float16")


@pytest.fixture(scope="module", params=["bert", "t5"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target: Path = tmp_path_factory.mktemp("listed") / request.param
    fixture_memory(TEXT, "characters", request.param).to_huggingface(target, request.param)
    return target


def asked(folder: Path) -> list[ListedCase]:
    task, memory = host(folder.name).task, fixture_memory(TEXT, "characters", folder.name)
    cases = (masked_cases if task == "masked" else seq2seq_cases)(memory, folder)
    for case in cases:
        if "answers" in case:
            case["tokens"] = [[t, memory.lexicon.failure] for t in case["answers"]]
    return listed_cases(task, cases)


def test_every_listed_answer_is_proved(folder: Path) -> None:
    certificate = certify_listed(folder, asked(folder))
    assert certificate.verdict is Verdict.PROVED
    assert all(one.margin is not None and one.margin > 5 for one in certificate.types)
    assert certificate.margin is not None and certificate.types[0].margin > 20
    assert "no others" in certificate.lines()[2]


def test_another_answer_is_not_proved(folder: Path) -> None:
    first, *rest = asked(folder)
    wrong = ListedCase(first.ids, first.places, (first.answers[1], *first.answers[1:]), first.beside)
    assert first.answers[0] != first.answers[1]
    certificate = certify_listed(folder, [wrong, *rest], ["float32"])
    assert certificate.verdict is Verdict.UNDECIDED
    assert certificate.agree == sum(len(c.places) for c in rest) + len(first.places) - 1


def test_no_input_proves_nothing(folder: Path) -> None:
    assert certify_listed(folder, []).verdict is Verdict.UNDECIDED


def edited(folder: Path, target: Path, change: Callable[[dict[str, np.ndarray]], None]) -> Path:
    shutil.copytree(folder, target)
    files = open_folder(folder)
    assert files is not None
    tensors = {name: files.read(name).astype(np.float64) for name in files.entries}
    change(tensors)
    (target / "model.safetensors").write_bytes(safetensors_bytes(tensors, "bfloat16", {"format": "pt"}))
    return target


@pytest.mark.slow
def test_edited_tensors_are_never_proved_where_transformers_answers_wrongly(folder: Path, tmp_path: Path) -> None:
    """Every tensor is set to zero in turn: what is still proved must still be right in Transformers."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    files, cases = open_folder(folder), asked(folder)[:2]
    assert files is not None
    lost = 0
    for number, name in enumerate(sorted(files.entries)):
        if number % 3 and name != "shared.weight":
            continue
        broken = edited(folder, tmp_path / str(number), lambda tensors, name=name: tensors[name].fill(0))  # type: ignore[misc]
        if certify_listed(broken, cases, ["float32"]).verdict is not Verdict.PROVED:
            lost += 1
            continue
        kind = "MaskedLM" if folder.name == "bert" else "Seq2SeqLM"
        model = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(broken, dtype=torch.float32).eval()
        for case in cases:
            ids = torch.tensor([case.ids])
            with torch.inference_mode():
                given = {"input_ids": ids} if kind == "MaskedLM" else {
                    "input_ids": torch.tensor([case.beside]), "decoder_input_ids": ids
                }  # fmt: skip
                found = model(**given).logits[0].argmax(1)
            assert [int(found[p]) for p in case.places] == list(case.answers), name
    assert lost > 5


def test_engines_stay_inside_the_enclosures(folder: Path) -> None:
    """The vectors that the head reads, in both 16-bit types and in float32, of stock Transformers."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    case, kind = asked(folder)[0], folder.name
    config, files = open_files(folder)
    shape = shape_of({k: v for k, v in config.items() if not k.startswith("relative_attention")}, FAMILIES[kind])
    for name in TYPES:
        reader = Reader(shape, FAMILIES[kind], files, storage(name), config)
        boxes = []
        for stored in (False, True):
            if kind == "bert":
                boxes.append(Bert(reader, stored).run([(case.ids, case.beside, case.places)]))
            else:
                boxes.append(T5(reader, stored).run(case.beside, case.ids)[np.array(case.places)])
        lo, hi = np.minimum(boxes[0].lo, boxes[1].lo), np.maximum(boxes[0].hi, boxes[1].hi)
        auto = "MaskedLM" if kind == "bert" else "Seq2SeqLM"
        model = getattr(transformers, f"AutoModelFor{auto}").from_pretrained(folder, dtype=getattr(torch, name)).eval()
        seen: list[np.ndarray] = []
        head = model.cls.predictions.transform if kind == "bert" else model.decoder.final_layer_norm
        head.register_forward_hook(lambda module, args, out, seen=seen: seen.append(out[0].double().numpy()))
        with torch.inference_mode():
            ids = torch.tensor([case.ids])
            model(input_ids=ids) if kind == "bert" else model(
                input_ids=torch.tensor([case.beside]), decoder_input_ids=ids
            )
        found = seen[-1][list(case.places)]
        assert ((lo <= found) & (found <= hi)).all(), name
        assert np.median(hi - lo) < 0.03 * np.abs(hi).max()


@pytest.mark.parametrize("key", ["hidden_act", "feed_forward_proj", "layer_norm_eps", "layer_norm_epsilon", "odd"])
def test_other_settings_are_refused(folder: Path, tmp_path: Path, key: str) -> None:
    shutil.copytree(folder, tmp_path / "other")
    config = json.loads((folder / "config.json").read_text())
    if key not in config and key != "odd":
        pytest.skip("another architecture's key")
    config[key] = "relu" if isinstance(config.get(key), str) else 1
    (tmp_path / "other" / "config.json").write_text(json.dumps(config))
    certificate = certify_listed(tmp_path / "other", asked(folder))
    assert certificate.verdict is Verdict.UNDECIDED
    assert "config.json" in certificate.reason


def test_a_tensor_without_a_role_is_refused(folder: Path, tmp_path: Path) -> None:
    odd = edited(folder, tmp_path / "odd", lambda tensors: tensors.update(odd=np.ones(3)))
    assert "odd, which has no role" in certify_listed(odd, asked(folder)).reason


def test_other_architectures_are_refused_by_name(tmp_path: Path) -> None:
    fixture_memory(TEXT, "characters", "llama").to_huggingface(tmp_path / "llama", "llama")
    assert "listed inputs are proved for bert, t5" in certify_listed(tmp_path / "llama", []).reason


def rows(lo: np.ndarray, hi: np.ndarray | None = None, name: str = "float32", stored: bool = False) -> Rows:
    return Rows(lo, lo if hi is None else hi, storage(name), stored)


RNG = np.random.default_rng(17)


def test_a_sampled_softmax_lies_inside() -> None:
    """Soft heads, and heads that copy; scores and values anywhere in their intervals."""
    for steep in (0.5, 30.0):
        middle, wide = steep * RNG.standard_normal((9, 9)), 0.05 * RNG.random((9, 9))
        value, spread = RNG.standard_normal((9, 4)), 0.1 * RNG.random((9, 4))
        for causal in (False, True):
            hidden = np.tri(9) == 0 if causal else np.zeros((9, 9), dtype=bool)
            ends = [np.where(hidden, -np.inf, middle + side * wide) for side in (-1, 1)]
            found = mixed(*ends, rows(value - spread, value + spread), causal)
            for _ in range(200):
                score = np.where(hidden, -np.inf, middle + wide * RNG.choice([-1.0, 1.0], wide.shape))
                weight = np.exp(score - score.max(1, keepdims=True))
                weight /= weight.sum(1, keepdims=True)
                exact = weight @ (value + spread * RNG.choice([-1.0, 1.0], spread.shape))
                assert ((found.lo <= exact) & (exact <= found.hi)).all()
        sharp = np.sort(middle, axis=1)
        assert (np.exp(sharp[:, -2] - sharp[:, -1]) < ALONE).any() == (steep > 1)


def test_scores_enclose_stored_ones() -> None:
    for name in TYPES:
        store = storage(name)
        query, key = RNG.standard_normal((5, 8)), RNG.standard_normal((6, 8))
        bias = RNG.standard_normal((5, 6)).round(2)
        lo, hi = scores(rows(query, name=name), rows(key, name=name), 8**-0.5, bias)
        for stores in range(4):
            found = store.nearest(query * 8**-0.5) @ key.T if stores & 1 else query @ key.T * 8**-0.5
            found = store.nearest(store.nearest(found) + bias) if stores & 2 else found + bias
            assert ((lo <= found) & (found <= hi)).all()


def test_a_parabola_loses_only_the_square_of_an_error() -> None:
    x = rows(np.array([[8.4, 0.99, 1.0]]), np.array([[8.6, 1.01, 1.0]]))
    first = Linear("gate", np.array([[2.0, -1.0, 0.0]]), None)
    second = Linear("up", np.array([[-2.0, 1.0, 32.0]]) / 256, None)
    found = x.gated(first, second, "gelu_tanh", False)
    plain = x.mapped(first).activated("gelu_tanh").times(x.mapped(second))
    assert (found.hi - found.lo) < 0.1 * (plain.hi - plain.lo)
    for _ in range(500):
        point = x.lo + (x.hi - x.lo) * RNG.random(x.lo.shape)
        exact = (point @ first.weight.T).item() * (point @ second.weight.T).item()
        assert found.lo.item() <= exact <= found.hi.item()


@pytest.mark.parametrize("centred", [True, False])
def test_norms_enclose_sampled_ones(centred: bool) -> None:
    weight, bias = RNG.standard_normal(24), RNG.standard_normal(24)
    norm = Norm("norm", weight, bias if centred else None, 1e-5, centred)
    lo = RNG.standard_normal((4, 24)) + 0.5
    hi = lo + 0.01 * RNG.random((4, 24))
    for name, stored in (("float32", False), ("bfloat16", False), ("bfloat16", True), ("float16", True)):
        found, store = rows(lo, hi, name, stored).normed(norm), storage(name)
        for _ in range(100):
            x = lo + (hi - lo) * RNG.choice([0.0, 1.0], lo.shape)
            mean = x.mean(1, keepdims=True) if centred else 0.0
            y = (x - mean) / np.sqrt(((x - mean) ** 2).mean(1, keepdims=True) + 1e-5) * weight
            y = y + bias if centred else y
            y = store.nearest(y) if stored else y
            assert ((found.lo <= y) & (y <= found.hi)).all()


def test_a_shared_factor_is_lost_by_no_sum() -> None:
    """Channels that cancel each other: the norm's factor is uncertain, their sum is not."""
    lo = np.tile([[1.0, -1.0] * 12], (3, 1))
    lo[:, :4] *= 0.9
    hi = lo.copy()
    hi[:, :4] *= 1.1
    hi, lo = np.maximum(lo, hi), np.minimum(lo, hi)
    normed = rows(lo, hi).normed(Norm("norm", np.ones(24), None, 1e-5, False))
    ones = Linear("sum", np.r_[np.zeros(4), np.ones(20)][None], None)
    assert (normed.mapped(ones).size < 1e-4).all()
    assert ((normed.hi - normed.lo) @ np.abs(ones.weight.T) > 0.05).all()


def test_a_lead_is_no_more_than_a_sampled_one() -> None:
    weight, shift = RNG.standard_normal((7, 16)), RNG.standard_normal(7)
    lo = RNG.standard_normal((100, 16))
    for name, wide in itertools.product(TYPES, (0.02, 0.0)):
        hi = lo + wide * RNG.random(lo.shape)
        answers = ((lo + hi) / 2 @ weight.T + shift).argmax(1)
        found = margins_of_rows(rows(lo, hi, name), Linear("head", weight, shift), answers)
        places = np.arange(len(lo))
        for _ in range(20):
            x = lo + (hi - lo) * RNG.choice([0.0, 1.0], lo.shape)
            logits = storage(name).nearest(storage(name).nearest(x @ weight.T) + shift)
            own = logits[places, answers].copy()
            logits[places, answers] = -np.inf
            assert (found <= own - logits.max(1)).all()


@pytest.mark.parametrize(
    ("term", "check"),
    [
        ("leak of a copy", test_a_sampled_softmax_lies_inside), ("store of a score", test_scores_enclose_stored_ones),
        ("store of a logit", test_a_lead_is_no_more_than_a_sampled_one),
    ],
)  # fmt: skip
def test_without_a_term_its_check_fails(term: str, check: Callable[[], None]) -> None:
    if term == "leak of a copy":  # its own rows: what the leak moves is in the interval, the roundings are not
        value = rows(np.array([[1.0], [1.0 - 2.0**-12]]))
        low = np.array([[0.0, -8.0]])
        exact = (1.0 + np.exp(-8.0) * (1 - 2.0**-12)) / (1 + np.exp(-8.0)) * (1 + 4 * np.exp(-8.0))
        assert mixed(low, low, value, False).hi.item() >= exact
        with weakened(term, 0.0):
            assert mixed(low, low, value, False).hi.item() < exact
        return
    state = RNG.bit_generator.state
    with weakened(term, 0.0), pytest.raises(AssertionError):
        check()
    RNG.bit_generator.state = state


@pytest.mark.parametrize("both", [True, False])
def test_buckets_are_those_of_transformers(both: bool) -> None:
    torch = pytest.importorskip("torch")
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    distance = np.arange(-300, 300)
    if not both:
        distance = np.maximum(distance, 0)
    relative = torch.tensor(-distance)
    for count, farthest in ((64, 192), (32, 128)):
        wanted = t5.T5Attention._relative_position_bucket(relative, both, count, farthest).numpy()
        try:
            found = Buckets(count, farthest).of(distance, both)
        except Undecided:
            keep = np.abs(distance) < count // 4
            assert (Buckets(count, farthest).of(distance[keep], both) == wanted[keep]).all()
            continue
        assert (found == wanted).all()


def test_heads_are_side_by_side() -> None:
    query, key, value = (rows(RNG.standard_normal((6, 8))) for _ in range(3))
    both = attend(query, key, value, 2, scale=0.5)
    for head in range(2):
        at = slice(4 * head, 4 * head + 4)
        one = attend(query[:, at], key[:, at], value[:, at], 1, scale=0.5)
        assert (one.lo == both.lo[:, at]).all() and (one.hi == both.hi[:, at]).all()
