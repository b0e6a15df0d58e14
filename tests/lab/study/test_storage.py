"""Addresses of studies: their passwords are never shown, logged or stored."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from byheart.cli import commands
from byheart.lab.study.storage import StorageError, hidden, without_secrets

ADDRESSES = [
    "postgresql://:S3CRET@127.0.0.1:1/studies",
    "postgresql://lab:S3CRET@127.0.0.1:1/studies",
    "postgresql://lab:S3CRET@more@127.0.0.1:1/studies",
    "postgresql://lab:a/S3CRET?b@127.0.0.1:1/studies",
    "postgresql://lab@127.0.0.1:1/studies?password=S3CRET",
    "postgresql://lab@127.0.0.1:1/studies?sslmode=disable&PASSWORD=S3CRET",
    "postgresql+psycopg://lab:S3CRET%40more@127.0.0.1:1/studies?passfile=S3CRET",
    "postgresql://lab@127.0.0.1:1/studies?sslmode=disable;password=S3CRET",
    "postgresql://lab@127.0.0.1:1/studies?options=password%3DS3CRET",
    "postgresql://lab@127.0.0.1:1/studies#password=S3CRET",
    "postgresql://lab%3AS3CRET@127.0.0.1:1/studies",
    "postgresql://lab%3aS3CRET%40more@127.0.0.1:1/studies?%70assword=S3CRET",
]
AMBIGUOUS = [  # the host may be either side's
    "postgresql://lab@127.0.0.1:1/studies?password=S3CRET@more",
    "postgresql://lab:a@S3CRET?x=more@127.0.0.1:1/studies",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_no_secret_is_shown(address):
    shown = hidden(address)
    assert "S3CRET" not in shown and "more" not in shown and "127.0.0.1:1/studies" in shown
    said = without_secrets(f"cannot parse {address}: no host S3CRET", address)
    assert "S3CRET" not in said


@pytest.mark.parametrize("address", ADDRESSES + AMBIGUOUS)
def test_a_worker_that_reaches_nobody_keeps_the_secret(address):
    pytest.importorskip("optuna")
    pytest.importorskip("psycopg")
    result = CliRunner().invoke(commands, ["lab", "worker", "--storage", address])
    said = f"{result.output} {result.exception}"
    assert result.exit_code != 0 and "S3CRET" not in said and "more" not in said


@pytest.mark.parametrize("address", AMBIGUOUS)
def test_an_address_with_two_readings_is_not_shown(address):
    assert hidden(address) == "postgresql://…"


@pytest.mark.parametrize(
    "address", ["lab:S3CRET@host", "postgresql:/lab:S3CRET@host/studies", "host=localhost password=S3CRET"]
)
@pytest.mark.parametrize(
    "command",
    [["worker"], ["status"], ["run", "ks25-fig1", "--output", "fig1"], ["status", "fig1"], ["export", "fig1"]],
)
def test_something_that_is_no_address_is_neither_repeated_nor_stored(command, address, tmp_path, monkeypatch):
    """`run` made it a file's name, `status` showed it."""
    monkeypatch.chdir(tmp_path)
    if "fig1" in command and command[0] != "run":
        settings = {"study": "x", "storage": "postgresql://host/studies", "data": None, "data_folder": None}
        settings |= {"executor": "serial", "processes": 1, "heartbeat": 30}
        (tmp_path / "fig1").mkdir()
        (tmp_path / "fig1" / "settings.json").write_text(json.dumps(settings))
    output = ["--output", "rows.csv"] if command[0] == "export" else []
    result = CliRunner().invoke(commands, ["lab", *command, *output, "--storage", address])
    assert result.exit_code != 0 and "S3CRET" not in f"{result.output} {result.exception}"
    assert isinstance(result.exception, StorageError)
    assert not any("S3CRET" in f"{path} {path.read_text() if path.is_file() else ''}" for path in tmp_path.rglob("*"))


def test_addresses_without_secrets_stay_as_they_are():
    for address in ("postgresql://lab@host/studies", "sqlite:///study.db", "results/study.journal"):
        assert hidden(address) == address
    assert json.dumps(hidden("postgresql://host/studies?sslmode=require")).endswith('sslmode=require"')
