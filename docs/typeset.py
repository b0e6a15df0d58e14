"""What `mkdocs build` does besides Markdown: formulas become MathML, notebooks become pages, live pages are built.

`$…$` and `$$…$$` are found by pymdownx.arithmatex, which leaves code alone, and translated here while the site is
built: browsers draw MathML themselves, so a reader needs no script and no server. GitHub renders the same dollars.
Short formulas that stand in running text or come out of a registry as they are typed in code, `2^-24`, `O(sqrt(N))`,
`√N`, get their dollars here.

Notebooks are kept without outputs (the tests run them); their pages show text and code, with the file to download.
"""

from __future__ import annotations

import json
import re
import sys
from html import unescape
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # mkdocs loads hooks by their file

from tools.pages import built  # noqa: E402

NOTEBOOKS = ROOT / "examples" / "notebooks"
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


# What is left alone: code, comments, formulas that have their dollars, links, tags.
CODE = re.compile(
    r"(^```.*?^```|<!--.*?-->|`[^`]*`|\$\$.*?\$\$|\$[^$\n]*\$|\]\([^)]*\)|</?[a-zA-Z!][^>\n]*>)",
    re.DOTALL | re.MULTILINE,
)
_INSIDE = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"  # three levels of parentheses
_POWER = r"[−±+-]*(?:\d+(?:[./]\d+)*|bits|mantissa|[A-Za-zωδ](?![A-Za-z]))"
_EXPONENT = rf"\^(?:{_POWER}|{_INSIDE})"
_BASE = r"(?:\d+(?:\.\d+)?|[A-Za-zωδ]|\([A-Za-z·]{1,4}\))"
TYPED = re.compile(
    rf"(?<![\w\\^_])(?:O{_INSIDE}|(?:\d+(?:\.\d+)?·)?(?:sqrt{_INSIDE}|√(?:{_INSIDE}|[A-Za-z])|{_BASE}{_EXPONENT}))"
    r"(?![\w^])"
)
_NAMES = "sqrt|log2?|max|min|omega|pi|contexts|mantissa|bits|dnN"
_MATHS = re.compile(rf"(?:{_NAMES}|[A-Za-zωδεπ](?![A-Za-z])|[A-Za-z]{{2}}(?![A-Za-z])|[\d\s.,+−±·/^()√²-])+")
_COMMANDS = {
    "·": r" \cdot ",
    "−": "-",
    "±": r" \pm ",
    "²": "^2",
    "log2": r"\log_2 ",
    "δ": r"\delta ",
    "ω": r"\omega ",
    "omega": r"\omega ",
    "max(": r"\max(",
    "contexts": r"\mathrm{contexts}",
    "mantissa": r"\mathrm{mantissa}",
    "bits": r"\mathrm{bits}",
}


def on_page_markdown(markdown: str, **_: object) -> str:
    """Dollars around formulas that are typed as in code.

    >>> on_page_markdown("about 5.5·sqrt(N·log2 C), O(N^(2/3)) or N^0.99 for `a^2` and $x^2$")
    'about $5.5 \\\\cdot \\\\sqrt{N \\\\cdot \\\\log_2  C}$, $O(N^{2/3})$ or $N^{0.99}$ for `a^2` and $x^2$'
    """
    parts = CODE.split(markdown)
    parts[::2] = [TYPED.sub(lambda found: _dollars(found[0]), part) for part in parts[::2]]
    return "".join(parts)


def _dollars(typed: str) -> str:
    if typed == "O(·)" or not _MATHS.fullmatch(typed):
        return typed  # words in parentheses: not a formula
    return f"${latex(typed)}$"


def latex(typed: str) -> str:
    """A formula as it is typed in code, for LaTeX."""
    text = re.sub(r"√([A-Za-z])", r"sqrt(\1)", typed).replace("√", "sqrt")
    for name, before, after in (("sqrt", r"\sqrt{", "}"), ("^", "^{", "}")):
        while (start := text.find(f"{name}(")) >= 0:
            end = _closing(text, start + len(name))
            text = text[:start] + before + text[start + len(name) + 1 : end] + after + text[end + 1 :]
    text = re.sub(rf"\^({_POWER})", r"^{\1}", text)
    for word, command in _COMMANDS.items():
        text = text.replace(word, command)
    return re.sub(r"(?<![\\\w])log(?!_)", r"\\log ", text)


def _closing(text: str, opening: int) -> int:
    depth = 0
    for place in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place
    return len(text) - 1


def on_files(files: Files, config: Any, **_: object) -> Files:
    """Add a page and the file itself for every notebook, and the live pages."""
    for path, text in built().items():
        if (old := files.get_file_from_path(path.name)) is not None:
            files.remove(old)
        files.append(File.generated(config, path.name, content=text))
    for notebook in sorted(NOTEBOOKS.glob("*.ipynb")):
        page = as_markdown(json.loads(notebook.read_text(encoding="utf-8")), notebook.name)
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=page))
        files.append(File.generated(config, f"notebooks/{notebook.name}", content=notebook.read_bytes()))
    return files


def on_page_content(html: str, page: Any, **_: object) -> str:
    """Every formula of a page as MathML; one that cannot be read stops the build."""
    return FORMULA.sub(lambda found: mathml(found, str(page.file.src_uri)), html)


def mathml(found: re.Match[str], page: str) -> str:
    text = unescape(found[3]).strip()
    try:
        return str(convert(text, display="block" if found[2] == "[" else "inline"))
    except Exception as error:  # latex2mathml has an error of its own for every slip
        raise PluginError(f"{page}: the formula {text!r} cannot be typeset: {type(error).__name__} {error}") from error


def as_markdown(notebook: dict[str, Any], name: str) -> str:
    """Text and code of a notebook, with a link to the file behind its title."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    title, *rest = parts
    heading, _, text = title.partition("\n")
    return "\n\n".join([heading, f"[Download this notebook]({name}) and run it: tests do so too.", text, *rest]) + "\n"
