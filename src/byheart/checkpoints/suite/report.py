"""A run of the suite as JUnit XML, for CI servers, and as one HTML page, for people.

The page has the table and, for every case that failed, the first incorrect token and its place. It is self-contained:
no script, no address.
"""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from byheart.checkpoints.suite.runner import CORRECT, ERROR, SKIPPED, SuiteReport
from byheart.files import write_atomically

HEADINGS = ("kind", "architecture", "type", "cases", "skipped", "correct", "least margin", "proved margin", "verdict")


def table_rows(report: SuiteReport) -> list[tuple[str, ...]]:
    """Return the rows of the table under HEADINGS, as text.

    `least margin` is the smallest that the engine showed; `proved margin` is the fixture's, for every engine of its
    error model.
    """
    return [
        (row.kind, row.architecture, row.dtype, str(len(row.ran)), str(len(row.results) - len(row.ran)),
         str(row.correct), _nats(row.margin), _nats(row.margins.get("proved")), row.verdict)
        for row in report.rows
    ]  # fmt: skip


def _nats(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def junit(report: SuiteReport) -> bytes:
    """Return the report as JUnit XML: one suite per row, one test case per case."""
    root = ElementTree.Element("testsuites", name=f"byheart suite: {report.engine}")
    for row in report.rows:
        failed = [r for r in row.results if r.status not in (CORRECT, SKIPPED, ERROR)]
        suite = ElementTree.SubElement(
            root, "testsuite", name=f"{row.kind} {row.architecture} {row.dtype}", tests=str(len(row.results)),
            failures=str(len(failed)), errors=str(sum(r.status == ERROR for r in row.results)),
            skipped=str(len(row.results) - len(row.ran)), time=f"{sum(r.seconds for r in row.results):.3f}",
        )  # fmt: skip
        for result in row.results:
            case = ElementTree.SubElement(
                suite, "testcase", classname=f"byheart.{row.kind}.{row.architecture}.{row.dtype}",
                name=f"{result.case.verb}: {result.case.name}", time=f"{result.seconds:.3f}",
            )  # fmt: skip
            if result.status == SKIPPED:
                ElementTree.SubElement(case, "skipped", message=_printable(result.reason))
            elif result.status != CORRECT:
                tag = "error" if result.status == ERROR else "failure"
                ElementTree.SubElement(case, tag, message=_printable(result.message))
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _printable(text: str) -> str:
    """Without the control characters that XML does not allow."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>byheart suite: {{ report.engine }}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; margin: 1rem 0 } code { white-space: pre-wrap }
th, td { padding: .3rem .7rem; text-align: left; border-bottom: 1px solid #ccc }
.correct { color: #176b2c } .incorrect, .error { color: #b3261e } .skipped { color: #666 }
@media (prefers-color-scheme: dark) {
body { background: #15171a; color: #ddd } .correct { color: #6fcf97 } .incorrect, .error { color: #ff8a80 } }
</style></head><body>
<h1>byheart suite: {{ report.engine }} {{ report.version }}</h1>
<p class="{{ report.verdict }}"><strong>{{ report.verdict }}</strong>, {{ "%.1f"|format(report.seconds) }} s.
“Least margin” is the smallest margin in nats that the engine showed;
“proved margin” holds for every engine of the fixture's error model.</p>
<table><thead><tr>{% for heading in headings %}<th>{{ heading }}</th>{% endfor %}</tr></thead><tbody>
{% for row in rows %}<tr>
{%- for cell in row %}<td class="{{ cell if loop.last else '' }}">{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</tbody></table>
<h2>Cases</h2>
<table><thead><tr><th>case</th><th>type</th><th>status</th><th>correct</th>
<th>first incorrect token, and where it occurs</th></tr></thead><tbody>
{% for row, result in results %}<tr><td>{{ result.case.id }}</td><td>{{ row.dtype }}</td>
<td class="{{ result.status }}">{{ result.status }}</td>
<td>{{ result.correct }} of {{ result.compared }}</td>
<td>{% if result.first %}{{ result.first.where }}: <code>{{ result.first.found }}</code>
instead of <code>{{ result.first.wanted }}</code>{% else %}{{ result.reason }}{% endif %}</td></tr>
{% endfor %}</tbody></table></body></html>
"""


def page(report: SuiteReport) -> str:
    """Return the report as one HTML page; failed cases come first."""
    from jinja2 import Environment

    order = {"error": 0, "incorrect": 0, "correct": 1, "skipped": 2}
    results = sorted(report.results, key=lambda pair: order[pair[1].status])
    template = Environment(autoescape=True).from_string(_PAGE)
    return template.render(report=report, headings=HEADINGS, rows=table_rows(report), results=results)


def write_reports(report: SuiteReport, junit_path: str | Path | None, html_path: str | Path | None) -> None:
    """Write the requested files, each whole or not at all."""
    if junit_path is not None:
        write_atomically(Path(junit_path), junit(report))
    if html_path is not None:
        write_atomically(Path(html_path), page(report).encode())
