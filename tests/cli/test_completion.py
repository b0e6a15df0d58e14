"""The Tab key: in a real Bash, and by the protocol that Zsh and Fish speak."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import byheart
from byheart.cli import COMMANDS

PROGRAM = f"#!{sys.executable}\nimport sys; sys.argv[0] = 'byheart'\nfrom byheart.cli import main\nmain()\n"


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """A folder with a command `byheart` in it, first on the path."""
    program = tmp_path / "bin" / "byheart"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "names.csv").write_text("a,b\n")
    source = str(Path(byheart.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": source, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}


def ask(environment, shell: str, words: str, current: str) -> list[str]:
    extra = {"_BYHEART_COMPLETE": f"{shell}_complete", "COMP_WORDS": words, "COMP_CWORD": current}
    return subprocess.run(["byheart"], env={**environment, **extra}, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no Bash here")
def test_in_bash(environment):
    script = """
        eval "$(_BYHEART_COMPLETE=bash_source byheart)"
        complete -p byheart
        for line in "mem" "memorize --cons" "memorize --construction nat" "memorize --tokens uni"; do
            COMP_WORDS=(byheart $line); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
            _byheart_completion byheart
            echo "$line: ${COMPREPLY[*]}"
        done
    """
    run = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True)
    if "not supported" in run.stderr:
        pytest.skip("an old Bash")
    lines = run.stdout.splitlines()
    assert "byheart" in lines[0] and lines[1] == "mem: memorize", run.stderr
    assert lines[2] == "memorize --cons: --construction"
    assert lines[3:] == ["memorize --construction nat: native", "memorize --tokens uni: unigram:SIZE"]


def test_the_protocol_of_zsh(environment):
    """Triples of type, value and help."""
    found = ask(environment, "zsh", "byheart re", "1")
    assert found[:9:3] == ["plain"] * 3 and sorted(found[1:9:3]) == ["recital", "recite", "report"]
    assert found[found.index("recite") + 1] == COMMANDS["recite"]
    assert ask(environment, "zsh", "byheart memorize na", "2")[0] == "file", "the shell completes names of files"


def test_the_protocol_of_fish(environment):
    """Type, value and, after a tab, help."""
    (line,) = ask(environment, "fish", "byheart verify --conf", "--conf")
    assert line.startswith("plain,--conflicts\t")
    assert ask(environment, "fish", "byheart memorize t --option ab", "ab") == ["plain,abstain_bits="]


@pytest.mark.parametrize("words", ["recite ", "predict ", "report m ", "export m --data ", "predict m --input "])
def test_files_are_completed_where_files_are_meant(environment, words):
    full = f"byheart {words}"
    assert ask(environment, "zsh", full, str(len(full.split())))[0] == "file"


def test_names_come_without_loading_what_they_stand_for(environment):
    program = (
        "import sys, click\nfrom byheart.cli import commands\n"
        "found = commands.shell_complete(click.Context(commands), '')\n"
        "print(len(found), [m for m in ('byheart.memory', 'byheart.lab', 'numpy', 'numba') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert run.stdout.split(maxsplit=1)[1] == "[]\n", run.stderr
