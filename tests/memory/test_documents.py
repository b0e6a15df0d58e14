"""Documents through the one pipeline: memorize, file, verify, predict, generate, in Python and on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import byheart
from byheart.cli import commands
from byheart.data.dataset.targets import Distribution, Target
from byheart.data.tokens.tokenizer import Tokenizer
from byheart.errors import ConflictError, DataError, ExportError, FileFormatError, OptionError
from byheart.files import canonical, digest
from byheart.memory.documents import as_table, memorize_documents
from tests.corpora import TEXTS, random_texts

NAMES = ("madden24", "madden24-average")
SHAPES = [
    {},
    {"mixer": "average", "activation": "arctan"},
    {"activation": "gelu", "dimension": 5, "heads": 2, "skip": True},
    {"objective": "low-rank"},
    {"objective": "size", "activation": "gelu"},  # gelu has no low rank, so it is the table
]


@pytest.mark.parametrize("options", SHAPES, ids=["attention", "average", "heads", "low rank", "table"])
def test_file_round_trip(tmp_path: Path, options: dict) -> None:
    memory = memorize_documents(TEXTS, **options)
    assert memory.certificate.verdict == "proved" and memory.target is Target.DISTRIBUTION
    memory.save(tmp_path / "m.byheart")
    again = byheart.load(tmp_path / "m.byheart")
    assert again.network == memory.network and again.certificate == memory.certificate and again.claim == memory.claim
    assert again.generate("a cat") == memory.generate("a cat") == "a cat sat"
    assert again.probabilities(["a cat"]) == memory.probabilities(["a cat"])
    checked = again.verify(TEXTS)
    assert checked.verdict == "proved" and checked.gap == memory.certificate.gap
    assert (checked.rows, checked.asked, checked.left_out) == (8, 7, {"a single token, which nothing follows": 1})


def test_every_damaged_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "m.byheart"
    memorize_documents(["a b", "a c"]).save(path)
    data = path.read_bytes()
    for k in range(0, len(data), 31):
        path.write_bytes(data[:k] + bytes([data[k] ^ 1]) + data[k + 1 :])
        with pytest.raises(FileFormatError):
            byheart.load(path)


def forged(path: Path, change) -> Path:
    """The file with `change` applied to its body and the checksum made again."""
    document = json.loads(path.read_text())
    change(document["memory"])
    document["sha256"] = digest(document["memory"])
    path.write_text(canonical(document))
    return path


@pytest.mark.parametrize(
    ("where", "value", "words"),
    [
        (("decoder", "bias", 0), "0x1p2000", "float64"),
        (("decoder", "bias", 0), "0x3p-1076", "float64"),
        (("decoder", "activation"), "relu", "unknown"),
        (("decoder", "mixer", "kind"), "mean", "unknown mixer"),
        (("decoder", "embedding", "columns"), 1 << 40, "entries"),
        (("decoder", "hidden", "columns"), 77, "fit"),
        (("decoder", "output"), [], "fit"),
        (("inputs",), [0, 0], "distinct"),
        (("classes", 0), 99, "distinct"),
        (("read",), "pooled", "pooled"),
        (("read",), "last", "does not fit the task"),
        (("known",), "0", "hexadecimal"),
        (("known",), "f" * 16 + "0" * 16, "ascend"),
    ],
)
def test_a_forged_decoder_is_refused_with_a_reason(tmp_path: Path, where, value, words: str) -> None:
    path = tmp_path / "m.byheart"
    memorize_documents(["a b c", "a c b"]).save(path)

    def change(body) -> None:
        *path_, last = where
        part = body["network"]
        for name in path_:
            part = part[name]
        part[last] = value

    with pytest.raises(FileFormatError, match=words):
        byheart.load(forged(path, change))


@pytest.mark.parametrize(
    ("where", "value", "words"),
    [
        (("codes",), [1, 2], "fit"),
        (("length",), 1 << 40, "do not fit a decoder"),
        (("columns", "columns"), 1 << 40, "entries"),
        (("network", "read"), "each", "fit"),
        (("network", "layers"), [], "layer"),
    ],
)
def test_a_forged_table_is_refused_with_a_reason(tmp_path: Path, where, value, words: str) -> None:
    path = tmp_path / "m.byheart"
    memorize_documents(["a b c", "a c b"], objective="size", activation="gelu").save(path)

    def change(body) -> None:
        *path_, last = where
        part = body["network"]["decoder"]
        for name in path_:
            part = part[name]
        part[last] = value

    with pytest.raises(FileFormatError, match=words):
        byheart.load(forged(path, change))


def test_a_table_whose_rows_are_exchanged_is_refuted(tmp_path: Path) -> None:
    path = tmp_path / "m.byheart"
    memorize_documents(TEXTS, objective="size", activation="gelu").save(path)

    def exchange(body) -> None:
        rows = body["network"]["decoder"]["coordinates"]["rows"]
        rows[0], rows[1] = rows[1], rows[0]

    checked = byheart.load(forged(path, exchange)).verify(TEXTS)
    assert checked.verdict == "refuted" and checked.differ > 0


def test_what_a_file_says_about_its_gap_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "m.byheart"
    memorize_documents(TEXTS, gap=100.0, objective="size").save(path)
    assert byheart.load(path).certificate.verdict == "proved"
    checked = byheart.load(path).verify(TEXTS)
    assert checked.verdict == "refuted" and any("--gap 100" in remark for remark in checked.remarks)
    assert byheart.load(path).verify(TEXTS, gap=100.0).verdict == "proved"


def test_renumbered_tokens_are_asked_as_the_file_numbers_them(tmp_path: Path) -> None:
    """Two outputs exchanged in `classes` give every answer wrongly, whatever the records state."""
    path = tmp_path / "m.byheart"
    memorize_documents(["a b c", "b a c"]).save(path)

    def exchange(body) -> None:
        classes = body["network"]["classes"]
        classes[0], classes[1] = classes[1], classes[0]

    assert byheart.load(forged(path, exchange)).verify(["a b c", "b a c"]).verdict == "refuted"


def test_a_file_cannot_shorten_the_documents_that_it_is_asked(tmp_path: Path) -> None:
    path, texts = tmp_path / "m.byheart", ["a b c d e", "a b c e d"]
    memorize_documents(texts, max_length=3).save(path)
    memory = byheart.load(path)
    whole = memory.verify(texts)
    assert whole.verdict == "refuted" and whole.differ == 2 and any("--max-length 3" in r for r in whole.remarks)
    assert memory.verify(texts, max_length=3).verdict == "proved"
    (tmp_path / "t.txt").write_text("\n".join(texts) + "\n")
    assert run("verify", path, tmp_path / "t.txt").return_value == 1
    assert run("verify", path, tmp_path / "t.txt", "--max-length", 3).return_value == 0


def test_the_fewest_parameters_are_the_fewest() -> None:
    texts = random_texts(60, 12, 6, seed=2)
    sizes = [memorize_documents(texts, objective=o).size.parameters for o in ("closed-form", "low-rank", "size")]
    assert sizes == sorted(sizes, reverse=True) and sizes[2] < sizes[0] / 2


def test_characters() -> None:
    memory = memorize_documents(["hello", "help"], tokenizer=Tokenizer("characters"))
    assert memory.certificate.verdict == "proved" and memory.generate("hell") == "hello"


def test_other_data_is_refuted() -> None:
    memory = memorize_documents(TEXTS)
    assert memory.verify(["a cat down"]).verdict == "refuted"
    other = memory.verify([*TEXTS, "the cat"])
    assert other.verdict == "refuted" and (other.agree, other.differ) == (5, 3), "three documents begin with `the`"
    assert "the first is document 6" in other.reason
    strange = memory.verify([*TEXTS, "a zebra ran"])
    assert strange.verdict == "refuted" and "zebra" in strange.reason and strange.gap is None
    part = memory.verify(["a cat sat"] * 5)
    assert any("not exactly" in remark for remark in part.remarks)


def test_labels_are_distributions_of_one_class() -> None:
    memory = byheart.memorize(["ab", "ba"], ["x", "y"], construction="madden24", progress=False)
    assert memory.target is Target.CLASS and memory.certificate.gap is None
    assert memory.certificate.verdict == "proved" and memory.predict(["ab", "ba"]) == ["x", "y"]
    with pytest.raises(ConflictError):
        byheart.memorize(["ab", "ab"], ["x", "y"], construction="madden24", progress=False)


def test_labels_that_are_distributions() -> None:
    labels = [Distribution.of({"x": 0.25, "y": 0.75}), Distribution.of({"y": 1})]
    memory = byheart.memorize(["ab", "ba"], labels, construction="madden24", progress=False)
    assert memory.certificate.verdict == "proved" and memory.predict(["ab"]) == ["y"]
    assert memory.verify(["ab", "ba"], labels).verdict == "proved"
    assert memory.verify(["ab", "ba"], labels[::-1]).verdict == "refuted"
    assert memory.verify(["ab", "ba"], [labels[0], Distribution.of({"z": 1})]).verdict == "refuted"
    with pytest.raises(OptionError, match="not distributions; those are for madden24"):
        byheart.memorize(["ab", "ba"], labels, construction="ks25", progress=False)


def test_what_documents_cannot_be() -> None:
    with pytest.raises(DataError, match="a list of them"):
        as_table("one text")
    with pytest.raises(DataError, match="no next token to store"):
        as_table(["a", "b"])
    with pytest.raises(OptionError, match="needs two tokens"):
        as_table(["a b"], Tokenizer("words", max_length=1))
    with pytest.raises(DataError, match="labels are missing"):
        byheart.memorize(["a b"], progress=False)


def test_no_export_guarantees_what_it_cannot_keep(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="float64"):
        memorize_documents(TEXTS).to_onnx(tmp_path / "m.onnx")


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    path = tmp_path / "docs.jsonl"
    path.write_text("".join(json.dumps({"text": text, "kind": "x"}) + "\n" for text in TEXTS))
    return path


def run(*words: object):
    return CliRunner().invoke(commands, [str(word) for word in words], standalone_mode=False)


def test_memorize_verify_predict_recite_report(documents: Path, tmp_path: Path) -> None:
    saved = tmp_path / "docs.byheart"
    result = run("memorize", documents, "--construction", "madden24", "-o", saved, "--json")
    found = json.loads(result.stdout)
    guaranteed = {
        "contexts",
        "vocabulary",
        "entropy",
        "cross_entropy",
        "gap",
        "parameters",
        "condition_number",
        "verdict",
    }
    assert guaranteed <= set(found) and result.return_value == 0
    assert (found["verdict"], found["task"], found["construction"]) == ("proved", "causal", "madden24")
    assert found["cross_entropy"] == pytest.approx(found["entropy"] + found["gap"])
    assert np.isfinite(found["condition_number"]) and found["left_out"]
    checked = run("verify", saved, documents, "--json")
    again = json.loads(checked.stdout)
    assert checked.return_value == 0 and again["same_data"] and again["gap"] == found["gap"]
    assert (again["rows"], again["asked"], again["agree"], again["differ"], again["left_out"]) == (8, 7, 7, 0, 1)
    part = run("verify", saved, documents, "--max-rows", 2, "--json")
    assert json.loads(part.stdout)["same_data"] is False
    assert json.loads(run("predict", saved, "a cat", "--json").stdout)["labels"] == [["cat", "sat"]]
    said = json.loads(run("recite", saved, "--prompt", "a cat", "--json").stdout)
    assert said["text"] == "a cat sat" and said["prompt_known"]
    assert isinstance(run("recite", saved).exception, OptionError)
    page = tmp_path / "page.html"
    assert run("report", saved, documents, "-o", page).return_value == 0 and "madden24" in page.read_text()


def test_a_table_of_labels_is_a_table_for_decoders_too(tmp_path: Path) -> None:
    path = tmp_path / "names.csv"
    path.write_text("name,label\nab,0\nba,1\n")
    result = run("memorize", path, "--construction", "madden24", "--task", "next-token", "-o", tmp_path / "m", "--json")
    assert json.loads(result.stdout)["verdict"] == "proved" and json.loads(result.stdout)["N"] == 2
    assert run("verify", tmp_path / "m", path).return_value == 0


@pytest.mark.parametrize(
    "flags",
    [
        ["--construction", "madden24-average"],
        ["--option", "activation=gelu"],
        ["--option", "objective=low-rank"],
        ["--option", "objective=size"],
        ["--tokens", "characters", "--max-length", "4"],
        ["--max-rows", "2"],
        ["--max-length", "2"],
    ],
    ids=" ".join,
)
def test_flags_for_documents(documents: Path, tmp_path: Path, flags: list[str]) -> None:
    construction = [] if "--construction" in flags else ["--construction", "madden24"]
    result = run("memorize", documents, "-o", tmp_path / "m", "--json", *construction, *flags)
    assert result.exception is None and json.loads(result.stdout)["verdict"] == "proved"


def test_what_became_of_the_decoder_command(documents: Path) -> None:
    error = run("decoder", documents).exception
    assert "memorize DOCS --construction madden24" in error.message


@pytest.mark.parametrize(
    "flags",
    [
        ["--option", "gap=0"],
        ["--option", "gap=nan"],
        ["--option", "objective=low-rank", "--option", "activation=gelu"],
        ["--sequence-column", "nothing"],
    ],
    ids=" ".join,
)
def test_flags_that_cannot_be(documents: Path, tmp_path: Path, flags: list[str]) -> None:
    result = run("memorize", documents, "--construction", "madden24", "-o", tmp_path / "m", *flags)
    assert isinstance(result.exception, OptionError | DataError) and not (tmp_path / "m").exists()


def test_json_stays_json_for_one_context(tmp_path: Path) -> None:
    path = tmp_path / "one.txt"
    path.write_text("a b\n")
    for flags in ([], ["--option", "objective=low-rank"], ["--option", "objective=size"]):
        result = run("memorize", path, "--construction", "madden24", "-o", tmp_path / "m", "--json", *flags)
        assert json.loads(result.stdout, parse_constant=pytest.fail)["verdict"] == "proved"


def test_not_proved_is_exit_status_one(documents: Path, tmp_path: Path) -> None:
    saved = tmp_path / "loose.byheart"
    loose = ["--option", "gap=0.2", "--option", "objective=size", "--max-length", 10]
    run("memorize", documents, "--construction", "madden24", *loose, "-o", saved)
    result = run("verify", saved, documents, "--gap", "1e-9", "--max-length", 10, "--json")
    assert json.loads(result.stdout)["verdict"] == "refuted" and result.return_value == 1


def test_the_mixer_is_an_option_of_both_names() -> None:
    one, two = (memorize_documents(TEXTS, construction=name, mixer="average") for name in NAMES)
    assert one.network == two.network and str(one.claim.ref) == str(two.claim.ref) == "M24, Theorem 7"
