"""Flags about data: pairs, refusals, and what no command accepts silently."""

import click
import pytest
from click.testing import CliRunner

from byheart.cli.data_options import complete_construction, data_options, parse_options, progress_for, refuse_unused
from byheart.errors import OptionError
from byheart.progress import SILENT


def test_pairs_become_options():
    assert parse_options(("form=residual", "bits-parameter=3", "text=a=b", "empty=")) == {
        "form": "residual",
        "bits_parameter": "3",
        "text": "a=b",
        "empty": "",
    }
    for wrong in ("form", "=residual", ""):
        with pytest.raises(OptionError, match="key=value"):
            parse_options((wrong,))


def test_a_typed_flag_without_effect_is_refused():
    @click.command()
    @data_options()
    def command(flags):
        refuse_unused("texts", "sequence_column", "encoding")

    run = CliRunner().invoke
    assert run(command, []).exception is None
    assert run(command, ["--encoding", "latin-1"]).exception is None
    found = run(command, ["--label-column", "kind"]).exception
    assert isinstance(found, OptionError) and "--label-column does not apply to texts" in str(found)


@pytest.mark.parametrize(("as_json", "quiet"), [(True, False), (False, True), (True, True)])
def test_progress_is_silent_for_scripts(as_json, quiet):
    @click.command()
    def command():
        assert progress_for(as_json, quiet) is SILENT

    assert CliRunner().invoke(command, []).exception is None


def test_constructions_are_completed_by_their_beginning():
    found = complete_construction(click.Context(click.Command("x")), click.Option(["--x"]), "ks25-s")
    assert sorted(found) == ["ks25-sets", "ks25-sparse"]
