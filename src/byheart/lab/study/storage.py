"""Where a study lives: one journal file for one machine, a database for many.

- a path (`FOLDER/study.journal`): Optuna's journal, append-only, one owner at a time, who holds a lock that the
  operating system drops when the owner dies;
- `postgresql://user@host/name` (or sqlite:///…): Optuna's tables, shared by any number of workers, who prove by
  heartbeats that they live.
"""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from byheart.errors import ByheartError
from byheart.lab.study.planner import import_optuna

T = TypeVar("T")
_PATIENCE = 600.0  # seconds that a lost connection is waited for


class StorageError(ByheartError, ConnectionError):
    """A study's storage cannot be reached, is in use, or is not a storage."""


def is_database(url: str) -> bool:
    """
    >>> is_database("postgresql://lab@host/studies"), is_database("results/study.journal")
    (True, False)
    """
    return "://" in url


def check_database(url: str) -> str:
    """The address of a database as it is; anything else is refused, and not shown: a typing error hides no password.

    >>> check_database("sqlite:///study.db")
    'sqlite:///study.db'
    """
    if not is_database(url):
        raise StorageError(
            "the storage is not the address of a database, for example postgresql://user@host/studies; a journal file "
            "has one owner at a time, so it is stored in the run's folder and is not named"
        )
    return url


def open_storage(url: str, heartbeat: int = 30) -> Any:
    """Optuna's storage at `url`; `heartbeat` in seconds, a worker silent for three of them is taken for dead."""
    optuna = import_optuna()
    if not is_database(url):
        from optuna.storages.journal import JournalFileBackend

        return optuna.storages.JournalStorage(JournalFileBackend(url))
    if _has_two_readings(url):
        raise StorageError(
            f"the address {hidden(url)} has an @ on both sides of a ?, and can be read in two ways: write an @ of a "
            "password as %40, a ? as %3F and a / as %2F"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # heartbeats are called experimental
            plain = optuna.storages.RDBStorage(
                _with_driver(url),
                engine_kwargs=_engine_options(url),
                heartbeat_interval=heartbeat,
                grace_period=3 * heartbeat,
            )
        return optuna.storages._CachedStorage(plain)
    except ImportError as error:
        reason = without_secrets(str(error), url)
        raise StorageError(f"no driver for {hidden(url)}: pip install 'byheart[lab]' ({reason})") from None
    except Exception as error:  # SQLAlchemy's and the driver's errors have no base of their own that is always loaded
        raise StorageError(
            f"cannot reach the storage {hidden(url)}: {without_secrets(_first_line(error), url)}; "
            "is the server running, and do host, port, user and database exist?"
        ) from None


def _engine_options(url: str) -> dict[str, Any]:
    """A new connection for every operation: a few per trial, so none is ever found dead after an hour of training."""
    from sqlalchemy.pool import NullPool

    patience = {"timeout": 60} if url.startswith("sqlite") else {"connect_timeout": 10}
    return {"poolclass": NullPool, "connect_args": patience}


def _with_driver(url: str) -> str:
    """Select psycopg 3 for PostgreSQL, which byheart installs, unless the address names a driver.

    A password that contains an @, / or ? is quoted: otherwise a part of it would be read, and shown, as the host.

    >>> _with_driver("postgres://lab@host/studies"), _with_driver("postgresql://lab:p@ss@host/studies")
    ('postgresql+psycopg://lab@host/studies', 'postgresql+psycopg://lab:p%40ss@host/studies')
    """
    url = re.sub(r"^postgres(ql)?://", "postgresql+psycopg://", url)
    scheme, mark, rest = url.partition("://")
    credentials, at, place = rest.rpartition("@")
    user, colon, password = credentials.partition(":")
    if not at or not set(password) & set("@/?"):
        return url
    return f"{scheme}{mark}{user}{colon}{quote(unquote(password), safe='')}{at}{place}"


def hidden(url: str) -> str:
    """The address without any secret: no password before the host, whatever it contains, and none among the parameters.

    >>> hidden("postgresql://lab:secret@host/studies"), hidden("postgresql://:p@ss/w:rd@host/studies?sslmode=require")
    ('postgresql://lab@host/studies', 'postgresql://host/studies?sslmode=require')
    >>> hidden("postgresql://lab@host/studies?user=lab&password=secret#x")
    'postgresql://lab@host/studies?user=lab'
    >>> hidden("postgresql://lab@host/studies?password=s@cret")
    'postgresql://…'
    """
    scheme, mark, _ = url.partition("://")
    if not mark:
        return url
    if _has_two_readings(url):
        return f"{scheme}://…"
    credentials, at, place, query = _parts(url)
    user = re.split(":|%3a", credentials, maxsplit=1, flags=re.IGNORECASE)[0]
    kept = [pair for pair in query if "=" in pair and not _is_secret(pair)]
    return f"{scheme}://{user}{at if user else ''}{place}" + (f"?{'&'.join(kept)}" if kept else "")


def _has_two_readings(url: str) -> bool:
    """Whether an @ occurs before and after the first `?`: either may end the credentials, so either may be a secret."""
    before, _, after = url.partition("://")[2].partition("?")
    return "@" in before and "@" in after


def _parts(url: str) -> tuple[str, str, str, list[str]]:
    """(credentials, their @, host and path, parameters): a password may hold an @ or a `?`, a host never does."""
    credentials, at, place = url.partition("://")[2].rpartition("@")
    place, *query = re.split("[?&;#]", place)
    return credentials, at, place, query


def _is_secret(pair: str) -> bool:
    words = unquote(pair).lower()  # of the value too: options=password=…
    return any(word in words for word in ("pass", "pwd", "secret", "token", "key", "credential"))


def without_secrets(text: str, url: str) -> str:
    """A message of another library with the address, and every secret of it, taken out.

    >>> without_secrets("bad password 's3cret' for postgresql://lab:s3cret@host/x", "postgresql://lab:s3cret@host/x")
    "bad password '…' for postgresql://lab@host/x"
    """
    for form in (url, _with_driver(url)):
        text = text.replace(form, hidden(url))
    for secret in sorted(_secrets(url), key=len, reverse=True):
        text = text.replace(secret, "…")
    return text


def _secrets(url: str) -> set[str]:
    credentials, _, _, query = _parts(url)
    password = re.split(":|%3a", f"{credentials}:", maxsplit=1, flags=re.IGNORECASE)[1].removesuffix(":")
    values = [value for pair in query if _is_secret(pair) for value in re.split("=|%3[dD]", pair)[1:]]
    found = {part for secret in (password, *values) for part in (secret, *re.split("[@/:?]", secret)) if part}
    return {form for part in found if len(part) > 2 or part == password for form in (part, unquote(part), quote(part))}


def _first_line(error: Exception) -> str:
    """A driver's message, in one line and without the credentials of any address in it."""
    message = str(error.__cause__ or error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return re.sub(r"(?i)(password\s*=\s*)[^\s&]+", r"\1…", re.sub(r"://\S*@", "://…@", message))


def patiently(action: Callable[[], T], patience: float = _PATIENCE) -> T:
    """Do `action`, again and again while the database does not answer, for at most `patience` seconds."""
    optuna = import_optuna()
    started, pause = time.monotonic(), 0.2
    while True:
        try:
            return action()
        except (optuna.exceptions.StorageInternalError, OSError) as error:
            if not _connection_lost(error) or time.monotonic() - started > patience:
                raise StorageError(
                    f"the study's storage is unreachable ({_first_line(error)}); finished trials are kept; resume with "
                    "`byheart lab resume FOLDER` or another `byheart lab worker`"
                ) from None
        time.sleep(pause)
        pause = min(10.0, 2 * pause)


def _connection_lost(error: BaseException) -> bool:
    from sqlalchemy.exc import DBAPIError, DisconnectionError, InterfaceError, OperationalError

    cause = error.__cause__
    return isinstance(error, ConnectionError | TimeoutError) or (
        isinstance(cause, OperationalError | InterfaceError | DisconnectionError)
        or (isinstance(cause, DBAPIError) and bool(cause.connection_invalidated))
    )


class JournalLock:
    """One owner per journal file; repairs the file of a killed owner."""

    def __init__(self, journal: Path) -> None:
        self.journal = journal
        self._file = open(journal.with_suffix(".owner"), "a+")  # noqa: SIM115  held until release
        try:
            _lock(self._file.fileno())
        except OSError:
            self._file.close()
            raise StorageError(
                f"{journal} is in use by a running `byheart lab run`; look with `byheart lab status {journal.parent}`"
            ) from None
        Path(f"{journal}.lock").unlink(missing_ok=True)  # Optuna's own, left by a killed owner
        _cut_torn_line(journal)

    def release(self) -> None:
        self._file.close()


def _cut_torn_line(journal: Path) -> None:
    """A kill in the middle of a write leaves half a line at the end, which would spoil the next one."""
    if not journal.exists():
        return
    with open(journal, "rb+") as file:
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            file.truncate(whole)


def _lock(descriptor: int) -> None:
    if os.name == "nt":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
