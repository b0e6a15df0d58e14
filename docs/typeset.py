"""What `mkdocs build` does besides Markdown: formulas become MathML, and notebooks become pages.

`$…$` and `$$…$$` are found by pymdownx.arithmatex, which leaves code alone, and translated here while the site is
built: browsers draw MathML themselves, so a reader needs no script and no server. GitHub renders the same dollars.

Notebooks are kept without outputs (the tests run them); their pages show text and code, with the file to download.
"""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

NOTEBOOKS = Path(__file__).parent.parent / "examples" / "notebooks"
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Files, config: Any, **_: object) -> Files:
    """Adds a page and the file itself for every notebook."""
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
