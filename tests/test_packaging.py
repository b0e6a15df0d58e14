"""The package as people install it: light to import, versions that agree, a wheel with everything in it."""

import inspect
import json
import os
import re
import subprocess
import sys
import time
import tomllib
import zipfile
from html.entities import html5
from pathlib import Path

import pytest

import byheart

PROJECT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PYPROJECT["project"]["optional-dependencies"]

# Libraries that `import byheart` must not touch: optional ones, and matplotlib's half second.
HEAVY = ("torch", "onnx", "onnxruntime", "optuna", "dask", "pyarrow", "tokenizers", "datasets", "matplotlib", "sklearn",
         "flint", "pandas", "polars", "scipy")  # fmt: skip


def test_version_is_one_number():
    assert byheart.__version__ == PYPROJECT["project"]["version"]
    newest = re.search(r"^## (\d+\.\d+\.\d+)", (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == byheart.__version__


def test_license_is_the_one_named():
    assert PYPROJECT["project"]["license"] == "Apache-2.0"
    assert "Version 2.0, January 2004" in (PROJECT / "LICENSE").read_text(encoding="utf-8")


def test_extras_named_by_other_extras_exist():
    named = {part for extra in EXTRAS.values() for line in extra for part in re.findall(r"^byheart\[(.*)\]$", line)}
    used = {extra for part in named for extra in part.split(",")}
    assert used <= set(EXTRAS)


def test_extras_named_in_messages_exist():
    source = "".join(path.read_text(encoding="utf-8") for path in (PROJECT / "src").rglob("*.py"))
    named = set(re.findall(r"byheart\[([a-z,]+)\]", source)) | set(
        re.findall(r"MissingExtraError\([^()]*,\s*\"([a-z]+)\"\)", source)
    )
    assert {extra for part in named for extra in part.split(",")} <= set(EXTRAS)


def test_constraints_lie_inside_the_ranges():
    torch = next(line for line in EXTRAS["torch"] if line.startswith("torch"))
    assert torch == "torch>=2.5,<2.14"
    assert "torch==2.13.0" in (PROJECT / "constraints.txt").read_text(encoding="utf-8")


def test_import_touches_no_extra():
    program = f"import sys, json, byheart; print(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    assert json.loads(_python(program)) == []


def test_import_is_quick():
    program = "import time; start = time.process_time(); import byheart; print(time.process_time() - start)"
    _python(program)  # fills the byte code cache
    assert min(float(_python(program)) for _ in range(3)) < 0.05  # 0.01 s on the machine where this was written


def test_dir_shows_public_names_only():
    assert dir(byheart) == sorted([*byheart.__all__, "__version__"])
    assert all(getattr(byheart, name) is not None for name in dir(byheart))


def test_every_public_name_has_an_example():
    without = [name for name in byheart.__all__ if ">>>" not in (inspect.getdoc(getattr(byheart, name)) or "")]
    assert not without, f"no example in the docstring of {', '.join(without)}"


def test_no_address_and_no_machine_in_build_files():
    for name in ("Makefile", "pyproject.toml", "constraints.txt", ".ci/run"):
        text = (PROJECT / name).read_text(encoding="utf-8")
        assert not re.search(r"https?://(?!github\.com/byheart-dev|byheart-dev\.)|(^|\s)/(tmp|root|work|opt)/", text), (
            name
        )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built as for a release: the source archive first, the wheel from it."""
    pytest.importorskip("build", reason="needs byheart[dev]")
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "build", "--outdir", folder, PROJECT], check=True, stdout=subprocess.DEVNULL)
    (built,) = folder.glob("byheart-*.whl")
    return built


@pytest.mark.slow
def test_wheel_holds_every_module(wheel):
    held = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("byheart/")}
    source = {path.relative_to(PROJECT / "src").as_posix() for path in (PROJECT / "src").rglob("*") if _ships(path)}
    assert held == source


def _ships(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts and not any(".egg-info" in part for part in path.parts)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_wheel_installs_and_memorizes(wheel, version, tmp_path):
    """In a new environment, on every Python that we name and that is here: the core alone, then with numba."""
    interpreter = _interpreter(version)
    if interpreter is None:
        pytest.skip(f"no Python {version} here")
    subprocess.run([interpreter, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    subprocess.run([python, "-m", "pip", "-qq", "install", "-c", PROJECT / "constraints.txt", wheel], check=True)
    program = (
        "import byheart\n"
        "memory = byheart.memorize(['ab', 'ba'], [0, 1], construction='ks25', progress=False)\n"
        "print(memory.certificate.verdict.value, *memory.predict(['ab', 'ba']))"
    )
    run = subprocess.run([python, "-c", program], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert run.stdout.split() == ["proved", "0", "1"]
    extra = f"{wheel}[build]"
    subprocess.run([python, "-m", "pip", "-qq", "install", "-c", PROJECT / "constraints.txt", extra], check=True)
    _walk_the_newcomers_path(tmp_path)


def _walk_the_newcomers_path(folder: Path) -> None:
    """After `pip install`: a table of one's own, certified, and a report to open; in minutes, also the first time."""
    rows = "".join(f"{name},{text!r}\n" for name, text in sorted(html5.items())[:400] if text.isalpha())
    (folder / "table.csv").write_text("name,characters\n" + rows, encoding="utf-8")
    started = time.monotonic()
    for command in (["memorize", "table.csv"], ["report", "table.byheart", "table.csv"]):
        subprocess.run([folder / "venv/bin/byheart", *command], check=True, cwd=folder, stdout=subprocess.DEVNULL)
    assert time.monotonic() - started < 240, "code is compiled the first time, but a user should not give up"
    assert "proved" in (folder / "report.html").read_text(encoding="utf-8")
    asked = [folder / "venv/bin/python", "-m", "byheart", "predict", "table.byheart", "Auml;"]
    assert subprocess.run(asked, check=True, cwd=folder, capture_output=True, text=True).stdout == "'Ä'\n"


def _interpreter(version: str) -> str | None:
    """A Python of this version that starts: the one that runs the tests, one on the path, or one beside it."""
    beside = Path(sys.base_prefix).parent.glob(f"{version}.*/bin/python")  # where version managers keep the others
    for candidate in [sys.executable, f"python{version}", *map(str, beside)]:
        program = "import sys; print('%d.%d' % sys.version_info[:2])"
        try:
            run = subprocess.run([candidate, "-c", program], capture_output=True, text=True)
        except OSError:
            continue
        if run.stdout.strip() == version:
            return candidate
    return None


def _python(program: str) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=PROJECT / "src").stdout


def test_the_citation_is_of_this_version():
    cited = (PROJECT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {byheart.__version__}\n" in cited


# Everything that docs/api.md shows, as a user's program would use it.
USER = """
from pathlib import Path

import pandas

import byheart
from byheart import checkpoints, errors
from byheart.build import Listing, Option, register
from byheart.certify import Certificate, Witness
from byheart.data.read.options import ReadOptions, Selection
from byheart.ir.size import Claim, Size
from byheart.plots import bounds, lab, style
from byheart.plots import memory as pictures
from byheart.report import page
from byheart.sklearn import MemoryClassifier, MemoryTransformer
from byheart.theory import LowerBound
from byheart.theory.problem import Problem
from byheart.theory.report import bounds as bounds_report

memory = byheart.memorize(["ab", "ba"], [0, 1], task="next-token", construction="compact", seed=0, progress=False)
answers: list[object] = list(memory.predict(["ab"]))
verdict: str = memory.certificate.verdict
certificate: Certificate = memory.verify(["ab", "ba"], [0, 1])
witness: Witness | None = certificate.witness
size: Size = memory.size
claim: Claim = memory.claim
parameters: int = memory.size.parameters
memory.save("m.byheart")
again: byheart.Memory = byheart.load("m.byheart")
frame = byheart.memorize(pandas.DataFrame({"name": ["a", "b"], "kind": [1, 2]}), label="kind", progress=False)
table: byheart.Table = byheart.read("table.csv", label_column="kind")
from_table = byheart.memorize(table, progress=False)
if memory.predict(["zz"])[0] is byheart.UNKNOWN:
    print(memory.generate("a"))
for row in byheart.compare(["ab", "ba"], [0, 1], constructions=["ks25"]).rows:
    name: str = row.construction
listing: Listing = byheart.constructions()["ks25"]
summaries: dict[str, str] = {name: listing.summary for name, listing in byheart.constructions().items()}
words = byheart.Tokenizer("words", max_length=10)
documents = byheart.memorize_documents(["a cat", "a dog"], tokenizer=words)
text: byheart.Memory = byheart.memorize_text("to be or not to be")
likely: object = byheart.Distribution.of({"cat": 3, "dog": 1}).likeliest
recital: byheart.RecitalMemory = byheart.memorize_recital(["a cat"], controls=byheart.Controls(seed=1))
recital.to_huggingface("folder", "llama", dtype="bfloat16")
forgotten = checkpoints.forget("folder", 0, "without")
least: int = byheart.lower_bound(task="next-token", N=100, n=8, d=4, C=2).parameters
bound: LowerBound = byheart.lower_bound(task="next-token", N=100, n=8, d=4, C=2)
deployed = byheart.deploy("table.csv", "table.onnx", label="kind")
contexts = byheart.contextual_mapping(["ab", "ba"]).contexts
smooth = byheart.approximate(lambda x: x, lipschitz=1, error=0.1)
html: str = byheart.explain(["ab", "ba"], [0, 1])
page.write(memory, Path("report.html"))
style.save(pictures.size_figure(memory), "size.png")
style.save(pictures.weights_figure(memory), "weights.png")
problem = Problem("next-token", N=100, n=8, d=4)
for draw in (bounds.bounds_figure, bounds.parameters_by_count, bounds.parameters_by_length):
    style.save(draw(problem), "bounds.png")
print([bound.name for bound in bounds_report(N=100, n=8)], lab.curves_figure, lab.minimum_figure)
classifier = MemoryClassifier().fit([[1, 2], [3, 4]], [0, 1])
codes = MemoryTransformer().fit([[1, 2], [3, 4]], [0, 1])
options = (ReadOptions(), Selection(), Option("groups", int, 0, "how many groups"), register)
try:
    byheart.load("nothing.byheart")
except errors.FileFormatError as error:
    caught: byheart.ByheartError = error
"""


@pytest.mark.slow
def test_a_user_s_program_is_strictly_typed(tmp_path):
    """`py.typed` guarantees that a type checker sees byheart as byheart's own does."""
    (tmp_path / "program.py").write_text(USER, encoding="utf-8")
    # The project's settings are strict, and skip libraries such as torch, which would take minutes to read.
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--cache-dir",
        str(tmp_path / "cache"),
        "--config-file",
        str(PROJECT / "pyproject.toml"),
    ]
    environment = {**os.environ, "MYPYPATH": str(PROJECT / "src")}
    run = subprocess.run([*command, "program.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    theirs = [line for line in run.stdout.splitlines() if line.startswith("program.py")]
    assert not [line for line in theirs if "pandas" not in line], run.stdout  # pandas ships no types
    assert 'Cannot find implementation or library stub for module named "byheart"' not in run.stdout
