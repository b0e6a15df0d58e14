"""Lines and tables of the terminal: nothing from a file changes the terminal, and every number is there."""

import io
import json

import pytest

import byheart
from byheart.cli.show import certificate_lines, console, line, print_json, size_table, verdict_line


@pytest.fixture(scope="module")
def memory():
    return byheart.memorize(["ab", "ba", "bb"], [0, 1, 1], construction="ks25", progress=False)


def test_a_line_stays_one_line_and_is_no_markup():
    out = io.StringIO()
    line(console(file=out, width=20), "[red]a name[/red] \x1b[31m\r" + "x" * 60)
    assert out.getvalue().count("\n") == 1 and "[red]a name[/red]" in out.getvalue()
    assert "\x1b" not in out.getvalue() and "\r" not in out.getvalue()


def test_json_is_one_line_of_plain_unicode(capsys):
    print_json({"label": "東京", "n": 1})
    printed = capsys.readouterr().out
    assert printed == '{"label": "東京", "n": 1}\n' and json.loads(printed)["n"] == 1


def test_the_table_has_guarantee_measurement_and_bound(memory):
    out = io.StringIO()
    console(file=out, width=120).print(size_table(memory))
    for number in (memory.size.parameters, memory.claim.bounds["parameters"]):
        assert f"{number:,}" in out.getvalue()
    assert "lower bound" in out.getvalue()


def test_verdicts_count_labels_and_rows(memory):
    assert "3" in verdict_line(memory) and "proved" in verdict_line(memory)
    refuted = memory.verify(["ab", "ba", "bb"], [0, 1, 0])
    assert "refuted" in "\n".join(certificate_lines(refuted))
