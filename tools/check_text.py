"""Check the prose of the project: phrases to avoid, spelling of links, length of pages. `python tools/check_text.py`

Prints one line per finding (file, line, phrase, replacement) and exits with 1 if there is any. Standard library only.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LONGEST_PAGE = 1500  # words; longer pages mix two kinds of page

# Phrase -> replacement. Identifiers are not searched, only comments, strings and prose.
PHRASES = {
    r"(?:is|are|was|were) asked\b(?! for)": "is queried, is evaluated",
    r"told apart": "distinguished",
    r"\btells? [\w' ]{1,30} apart": "distinguishes",
    r"\bstrangers\b": "unknown rows, unknown inputs",
    r"hardest labels": "worst-case lower bound",
    r"\bat hand\b": "available, given",
    r"\banew\b": "again",
    r"\bmeanwhile\b": "in the meantime",
    r"look-ups?\b": "lookup",
    r"version before\b": "previous version",
    r"what people come for": "uses",
    r"\bin front of\b": "before",
    r"\bstands? behind\b": "follows",
    r"\bknows? (?:it|them|its \w+) by heart": "memorizes, stores",
    r"\bknows? (?:N|\d+|many) \w+ by heart": "memorizes",
    r"cannot be asked": "cannot be evaluated",
    r"\bask(?:s|ing)? (?:a|the|this) (?:memory|network|file)\b": "query, evaluate, predict with",
    r"\bthe reason says\b": "the reason states",
    r"\bshare of right\b": "share of correct",
    r"\btakes? the place of\b": "replaces",
    r"\bstands? in (?:clusters|front)\b": "forms clusters; is before",
    r"\bleft away\b": "omitted",
    r"\blately\b": "recently",
    r"\bof which it is made\b": "its parts",
    r"\bwhat is left of\b": "the rest of",
    r"\bwhat is allowed\b": "the limit",
}

# Documents in which words are quoted or generated from papers.
EXEMPT = ("docs/research", "docs/paper-map.md", "docs/api.md")
BUILT = ("live.html", "one-scroll.html")  # written by `make docs`
REFERENCE = ("docs/paper-map.md", "docs/reading-guide.md", "docs/file-format.md", "docs/command-line.md", "docs/api.md")


def pages() -> list[Path]:
    """Every Markdown page that a user reads."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if not str(page.relative_to(ROOT)).startswith(EXEMPT)]


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of a page, or comments and strings of a module."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), start=1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield from enumerate(token.string.splitlines(), start=token.start[0])


def phrases(paths: list[Path]) -> list[str]:
    """Findings of PHRASES.

    >>> re.search(next(iter(PHRASES)), "every row is asked") is not None
    True
    """
    return [
        f"{path.relative_to(ROOT)}:{number}: {match[0]!r}; write {better}"
        for path in paths
        for number, line in prose(path)
        for phrase, better in PHRASES.items()
        if (match := re.search(phrase, line, re.IGNORECASE))
    ]


def links(paths: list[Path]) -> list[str]:
    """Links to files that do not exist, and to headings that a page does not have."""
    found = []
    for page in paths:
        text = page.read_text(encoding="utf-8")
        for target, anchor in re.findall(r"\]\(([^)#:\s]*)(#[^)\s]*)?\)", text):
            file = page if not target else (page.parent / target).resolve()
            if file.name in BUILT:
                continue
            if not file.exists():
                found.append(f"{page.relative_to(ROOT)}: links to {target}, which does not exist")
            elif anchor and file.suffix == ".md" and anchor[1:] not in headings(file):
                found.append(f"{page.relative_to(ROOT)}: links to {target}{anchor}, which is no heading there")
    return found


def headings(page: Path) -> set[str]:
    """Anchors of a page's headings, as the site makes them."""
    titles = re.findall(r"^#+ +(.+?) *$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title.lower())).strip("-") for title in titles}


def long_pages(paths: list[Path]) -> list[str]:
    """Pages with more prose than LONGEST_PAGE; tables do not count."""
    counts = {
        page.relative_to(ROOT): sum(
            len(line.split()) for line in page.read_text(encoding="utf-8").splitlines() if not line.startswith("|")
        )
        for page in paths
    }
    return [
        f"{page}: {count:,} words, more than {LONGEST_PAGE:,}"
        for page, count in counts.items()
        if count > LONGEST_PAGE and str(page) not in REFERENCE
    ]


def main() -> int:
    read = [("src", "*.py"), ("src", "*.js"), ("src", "*.jinja"), ("experiments", "*.py")]
    sources = [path for folder, names in read for path in sorted((ROOT / folder).rglob(names))]
    found = [*phrases([*pages(), *sources]), *links(pages()), *long_pages(pages())]
    print("\n".join(found) or "texts: no findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
