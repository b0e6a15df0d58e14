"""The pictures of docs/gallery.md: runs the page's own code, from top to bottom, and saves its figures.

    python experiments/gallery.py [--docs FOLDER]

The page is the source: a picture that its code does not draw, or draws and does not show, stops the script.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import tempfile
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--docs", type=Path, default=DOCS)
    docs = parser.parse_args().docs.absolute()
    page = (docs / "gallery.md").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.chdir(folder):
            exec(compile("\n".join(BLOCK.findall(page)), "gallery.md", "exec"), {"__name__": "gallery"})
        drawn = {path.name: path for path in Path(folder).glob("*.png")}
        shown = set(re.findall(r"\]\(pictures/([^)]+)\)", page))
        if drawn.keys() != shown:
            raise SystemExit(f"drawn or shown, and not both: {sorted(drawn.keys() ^ shown)}")
        for name, path in sorted(drawn.items()):
            shutil.copy(path, docs / "pictures" / name)
            print(f"drew {name}")


if __name__ == "__main__":
    main()
