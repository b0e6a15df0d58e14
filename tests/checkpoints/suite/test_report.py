"""JUnit XML and the page."""

from xml.etree import ElementTree

from byheart.checkpoints.suite.report import HEADINGS, junit, page, table_rows, write_reports
from byheart.checkpoints.suite.runner import run_suite
from tests.checkpoints.suite.conftest import ToyEngine


class Rude(ToyEngine):
    """Fails in every way: an incorrect row, an exception with markup, a missing method."""

    logits = None

    def generate(self, ids, n):
        if len(ids) % 2:
            raise RuntimeError("<b>broken</b> \x07")
        return [self.asked.eos, *super().generate(ids, n)]


def test_counts_agree_in_all_forms(small_fixture, tmp_path):
    report = run_suite([small_fixture], lambda _: Rude, ["float32"], engine="rude", version="1")
    suites = ElementTree.fromstring(junit(report)).findall("testsuite")
    assert len(suites) == len(report.rows) == 2 and report.verdict == "incorrect"
    for suite, row, cells in zip(suites, report.rows, table_rows(report), strict=True):
        assert len(cells) == len(HEADINGS)
        counts = {name: int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")}
        assert counts["tests"] == len(row.results) and counts["skipped"] > 0
        assert row.correct == counts["tests"] - counts["failures"] - counts["errors"] - counts["skipped"]
    assert sum(int(s.get("errors")) for s in suites) > 0 and sum(int(s.get("failures")) for s in suites) > 0
    text = page(report)
    assert "<b>broken" not in text and "&lt;b&gt;broken" in text and "token 0 of" in text and "http" not in text
    write_reports(report, tmp_path / "a.xml", tmp_path / "a.html")
    assert (tmp_path / "a.xml").read_bytes() == junit(report) and (tmp_path / "a.html").read_text() == text
