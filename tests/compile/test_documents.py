"""From texts to a file and back to text; the command line."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from click.testing import CliRunner

from byheart.build.madden24.fit import MixerKind, Shape
from byheart.cli.decoder import command
from byheart.compile.decoder_file import is_decoder_file, load_decoder, save_decoder
from byheart.compile.documents import memorize_documents
from byheart.data.tokens.tokenizer import Tokenizer
from byheart.errors import DataError, FileFormatError, OptionError, UnknownSymbolError
from byheart.ir.activation import Activation
from tests.corpora import TEXTS


@pytest.mark.parametrize(
    "shape",
    [Shape(), Shape(MixerKind.AVERAGE, Activation.ARCTAN), Shape(MixerKind.ATTENTION, Activation.GELU, 5, 2, True)],
    ids=["attention", "average", "heads"],
)
def test_file_round_trip(tmp_path, shape: Shape) -> None:
    memory = memorize_documents(TEXTS, shape=shape)
    save_decoder(memory, tmp_path / "x.decoder")
    again = load_decoder(tmp_path / "x.decoder")
    assert all((a == b).all() for a, b in zip(memory.decoder.matrices, again.decoder.matrices, strict=True))
    assert again.certificate == memory.certificate and again.decoder.reader.skip == shape.skip
    assert again.generate("a cat") == memory.generate("a cat")
    assert is_decoder_file(tmp_path / "x.decoder") and not is_decoder_file(tmp_path / "missing")


def test_every_damaged_byte_is_noticed(tmp_path) -> None:
    path = tmp_path / "x.decoder"
    save_decoder(memorize_documents(["a b", "a c"]), path)
    data = path.read_bytes()
    for k in range(0, len(data), 7):
        path.write_bytes(data[:k] + bytes([data[k] ^ 1]) + data[k + 1 :])
        with pytest.raises(FileFormatError):
            load_decoder(path)
    for cut in (0, 5, 30, len(data) - 1):
        path.write_bytes(data[:cut])
        with pytest.raises(FileFormatError):
            load_decoder(path)
    with pytest.raises(FileFormatError, match="cannot read"):
        load_decoder(tmp_path / "missing")


def test_generation() -> None:
    memory = memorize_documents(["a b a b a", "a b a c a"], max_length=5)
    assert memory.generate("a b a", limit=3) == "a b a"
    drawn = {memory.generate("a", temperature=1.0, seed=s) for s in range(30)}
    assert drawn == {"a b a b a", "a b a c a"}
    assert memory.generate("a", temperature=1.0, seed=1) == memory.generate("a", temperature=1.0, seed=1)
    with pytest.raises(OptionError, match="negative"):
        memory.generate("a", temperature=-1)
    with pytest.raises(DataError, match="a prompt of 6 tokens"):
        memory.generate("a b a b a b")


def test_sampling_follows_the_distribution() -> None:
    memory = memorize_documents(["a b"] * 3 + ["a c"])
    drawn = [memory.generate("a", temperature=1.0, seed=s) for s in range(200)]
    assert 0.65 < drawn.count("a b") / 200 < 0.85


def test_characters() -> None:
    memory = memorize_documents(["hello", "help"], tokenizer=Tokenizer("characters"))
    assert memory.certificate.verdict == "proved" and memory.generate("hell") == "hello"


def test_one_way_to_choose_a_size() -> None:
    with pytest.raises(OptionError, match="give one of them"):
        memorize_documents(TEXTS, neurons=3, rank=2)


def test_more_neurons_than_contexts_rest() -> None:
    memory = memorize_documents(TEXTS, neurons=50)
    found = memory.summary()
    assert found["verdict"] == "proved" and found["neurons"] == 50 and "have weight 0" in found["notes"][0]


def test_text_ends_where_a_document_ends(tmp_path) -> None:
    memory = memorize_documents(TEXTS)
    assert memory.generate("a cat") == "a cat sat" and memory.generate("the end") == "the end of the dog"
    assert memory.knows_text("a cat") and not memory.knows_text("a cat sat")
    save_decoder(memory, tmp_path / "x.decoder")
    again = load_decoder(tmp_path / "x.decoder")
    assert again.known == memory.known and again.generate("a cat") == "a cat sat"
    unknown = memory.generate("dog dog")  # no memorized context: some text as long as the decoder reads
    assert unknown.startswith("dog dog") and len(unknown.split()) == memory.decoder.length + 1
    with pytest.raises(UnknownSymbolError, match="lacks 'bat', 'zebra'; near 'bat' are"):
        memory.generate("bat zebra")


def test_verify() -> None:
    memory = memorize_documents(TEXTS)
    assert memory.verify(TEXTS) == memory.certificate
    assert memory.verify(["a cat down"]).verdict == "refuted"
    with pytest.raises(UnknownSymbolError):
        memory.verify(["a zebra"])


@pytest.fixture
def documents(tmp_path):
    path = tmp_path / "docs.jsonl"
    path.write_text("".join(json.dumps({"text": text, "kind": "x"}) + "\n" for text in TEXTS))
    return path


def test_json_has_the_promised_keys(documents) -> None:
    result = CliRunner().invoke(command, [str(documents), "--json", "--prompt", "a cat"], standalone_mode=False)
    found = json.loads(result.stdout)
    promised = {
        "contexts",
        "vocabulary",
        "entropy",
        "cross_entropy",
        "gap",
        "parameters",
        "condition_number",
        "verdict",
        "seconds",
    }
    assert promised <= set(found) and result.return_value == 0
    assert found["verdict"] == "proved" and found["text"].startswith("a cat sat")
    assert found["cross_entropy"] == pytest.approx(found["entropy"] + found["gap"])
    assert np.isfinite(found["condition_number"])


@pytest.mark.parametrize(
    "flags",
    [
        ["--mixer", "average"],
        ["--activation", "gelu"],
        ["--activation", "sigmoid", "--skip"],
        ["--neurons", "6", "--gap", "0.1"],
        ["--rank", "4"],
        ["--smallest"],
        ["--table"],
        ["--tokenizer", "characters", "--max-length", "4"],
        ["--max-documents", "2"],
        ["--where", "kind=x"],
        ["--dimension", "4", "--heads", "2"],
        ["--dimension", "3", "--heads", "5", "--activation", "arctan"],
        ["--neurons", "40"],
        ["--tokenizer", "wordpunct", "--max-length", "2"],
        ["--table", "--max-documents", "1"],
    ],
    ids=" ".join,
)
def test_flags(documents, flags: list[str]) -> None:
    result = CliRunner().invoke(command, [str(documents), "--json", *flags], standalone_mode=False)
    assert result.exception is None and json.loads(result.stdout)["verdict"] == "proved"


def test_table_and_file(documents, tmp_path) -> None:
    saved = tmp_path / "small.decoder"
    result = CliRunner().invoke(command, [str(documents), "-o", str(saved)], standalone_mode=False)
    assert "condition number" in result.stdout and "proved" in result.stdout and saved.exists()
    again = CliRunner().invoke(command, [str(saved), "--prompt", "a dog"], standalone_mode=False)
    assert again.stdout.startswith(("a dog sat down", "a dog ran"))
    bare = CliRunner().invoke(command, [str(saved)], standalone_mode=False)
    assert "condition number" in bare.stdout and bare.return_value == 0
    quiet = CliRunner().invoke(command, [str(documents), "--quiet"], standalone_mode=False)
    assert quiet.stdout.startswith("proved: ") and quiet.stdout.count("\n") == 1
    over = CliRunner().invoke(command, [str(saved), "-o", str(saved)], standalone_mode=False)
    assert isinstance(over.exception, OptionError)


def test_verify_on_the_command_line(documents, tmp_path) -> None:
    saved = tmp_path / "small.decoder"
    CliRunner().invoke(command, [str(documents), "-o", str(saved), "--max-length", "4"], standalone_mode=False)
    same = CliRunner().invoke(command, [str(saved), "--verify", str(documents)], standalone_mode=False)
    assert same.stdout.startswith("proved") and same.return_value == 0
    part = [str(saved), "--verify", str(documents), "--max-documents", "3", "--json"]
    other = CliRunner().invoke(command, part, standalone_mode=False)
    assert other.return_value == 1 and json.loads(other.stdout)["same_data"] is False
    none = CliRunner().invoke(command, [str(documents), "--verify", str(documents)], standalone_mode=False)
    assert isinstance(none.exception, OptionError)


@pytest.mark.parametrize(
    "flags",
    [
        ["--gap", "0"],
        ["--gap", "nan"],
        ["--floor", "0"],
        ["--floor", "1"],
        ["--mixer", "average", "--heads", "2"],
        ["--smallest", "--rank", "2"],
        ["--smallest", "--activation", "gelu"],
        ["--table", "--smallest"],
        ["--where", "kind"],
        ["--where", "kind=nothing"],
        ["--column", "nothing"],
        ["--prompt", ""],
        ["--prompt", "a", "--temperature", "nan"],
        ["--prompt", "zebra"],
    ],
    ids=" ".join,
)
def test_flags_that_cannot_be(documents, flags: list[str]) -> None:
    result = CliRunner().invoke(command, [str(documents), "--json", *flags], standalone_mode=False)
    assert isinstance(result.exception, OptionError | DataError) and not result.stdout


def test_json_stays_json_for_one_context(tmp_path) -> None:
    path = tmp_path / "one.txt"
    path.write_text("a b\n")
    for flags in ([], ["--smallest"], ["--table"]):
        result = CliRunner().invoke(command, [str(path), "--json", *flags], standalone_mode=False)
        assert json.loads(result.stdout, parse_constant=pytest.fail)["verdict"] == "proved"


def test_not_proved_is_exit_status_one(documents) -> None:
    result = CliRunner().invoke(
        command, [str(documents), "--json", "--floor", "0.9", "--gap", "0.001"], standalone_mode=False
    )
    assert json.loads(result.stdout)["verdict"] == "refuted" and result.return_value == 1


def test_asking_elsewhere_leads_here() -> None:
    import byheart

    with pytest.raises(OptionError, match="byheart decoder"):
        byheart.memorize(["ab", "ba"], [0, 1], construction="madden24", progress=False)
    assert {"madden24", "madden24-average"} == set(byheart.build.neighbours())


def test_words_of_older_files_are_what_they_were(tmp_path) -> None:
    path = tmp_path / "x.decoder"
    save_decoder(memorize_documents(["a, b", "a, c"]), path)
    magic, _, rest = path.read_bytes().split(b"\n", 2)
    older = rest.replace(b'"tokens":"wordpunct"', b'"tokenizer":"words"')
    assert older != rest
    path.write_bytes(b"\n".join([magic, hashlib.sha256(older).hexdigest().encode(), older]))
    assert load_decoder(path).knows_text("a,")
