"""What README.md and docs/ show is run as it stands: Python blocks one after the other, `byheart` commands too.

In a console block, `$ cat FILE` followed by lines makes that file, so that the commands after it find it.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import byheart

PROJECT = Path(__file__).parent.parent
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SKIP = "<!-- not run: "  # on the line before a block, with the reason


def blocks(page: Path) -> list[tuple[str, str]]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in BLOCK.finditer(text):
        before = text[: match.start()].rstrip("\n").rpartition("\n")[2]
        if not before.startswith(SKIP):
            found.append((match[1], match[2]))
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_examples_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "example"}
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, page.name, "exec"), namespace)
        else:
            run_console(text)


def run_console(text: str) -> None:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        words = shlex.split(command, comments=True)
        if words[0] == "cat" and len(words) == 2 and output:
            Path(words[1]).write_text(output, encoding="utf-8")
        elif words[0] == "byheart":
            from byheart.cli import commands

            result = CliRunner().invoke(commands, words[1:], catch_exceptions=False)
            assert result.exit_code == 0, f"{command}\n{result.output}"


@pytest.mark.parametrize("page", ["README.md", "docs/choose.md"])
def test_every_construction_is_introduced(page):
    text = (PROJECT / page).read_text(encoding="utf-8")
    missing = [name for name in byheart.constructions() if f"`{name}`" not in text]
    assert missing == [], f"{page} does not say when to take {missing}"


def test_links_between_pages_lead_somewhere():
    for page in [*PAGES, PROJECT / "CONTRIBUTING.md", PROJECT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


def test_site_builds_without_warnings(tmp_path):
    pytest.importorskip("mkdocs", reason="needs byheart[docs]")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    run = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    pages = "".join(path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html"))
    assert not re.findall(r'(?:src|<link[^>]*href)="https?://[^"]*"', pages), "the site must work offline"
