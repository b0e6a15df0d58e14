"""The pytest plugin: every case of a fixture is a test of your engine.

    class Adapter:
        def __init__(self, folder):
            self.model = my_engine.load(folder)

        def generate(self, ids, n):
            return self.model.greedy(ids, max_new_tokens=n)

    @pytest.mark.byheart(kind="recital", arch="qwen3", adapter=Adapter)
    def test_engine(byheart_case):
        byheart_case.check()

Without `adapter=`, the fixture `byheart_adapter` supplies it; override it in conftest.py, or name an engine with
`--byheart-engine`. Checkpoints are built on first use and cached (`BYHEART_CACHE`, or the user's cache folder); nothing
is downloaded. This module is imported at pytest's start-up, so it imports nothing but pytest.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from byheart.checkpoints.suite.cases import SuiteCase
    from byheart.checkpoints.suite.runner import CaseResult

MARK = "byheart(kind='recital', arch='llama', adapter=None, **options): run every case of a byheart fixture as a test"
_OPEN: dict[str, Any] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the group `byheart`."""
    group = parser.getgroup("byheart", "known answers for inference engines")
    group.addoption(
        "--byheart-engine", metavar="NAME", help="run byheart's cases in this engine, or in a server by its URL"
    )
    group.addoption("--byheart-dtype", metavar="TYPE", help="the type that --byheart-engine computes in")


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line("markers", MARK)


class BoundCase:
    """A case and the adapter that answers it; the value of the fixture `byheart_case`."""

    def __init__(self, case: SuiteCase, adapter: Any) -> None:
        self.case, self.adapter = case, adapter

    def __getattr__(self, name: str) -> Any:
        """Fields of the case (`ids`, `continuation_ids`, ...), for tests that compare by themselves."""
        try:
            return self.case.content[name]
        except KeyError:
            raise AttributeError(f"the case {self.case.id} has no field {name!r}") from None

    def run(self) -> CaseResult:
        """Run the case in the engine."""
        from byheart.checkpoints.suite.runner import run_case

        return run_case(self.case, self.adapter)

    def check(self) -> None:
        """Run the case; fail with the first incorrect token, or skip if the adapter lacks the method."""
        result = self.run()
        if result.status == "skipped":
            pytest.skip(result.reason)
        if not result.passed:
            pytest.fail(f"{result.message}\n{result.correct} of {result.compared} correct", pytrace=False)


@pytest.fixture(scope="session")
def byheart_adapter(request: pytest.FixtureRequest) -> Any:
    """Override this in conftest.py: return a class or function that maps a checkpoint folder to an adapter."""
    name = request.config.getoption("--byheart-engine")
    if name is None:
        pytest.fail(
            "no engine to test: give adapter= to @pytest.mark.byheart, override the fixture byheart_adapter, or run "
            "pytest with --byheart-engine NAME",
            pytrace=False,
        )
    from byheart.checkpoints.suite.adapters import engine_adapter

    return engine_adapter(name, request.config.getoption("--byheart-dtype"))


@pytest.fixture
def byheart_case(request: pytest.FixtureRequest) -> BoundCase:
    """One case of the fixtures that `@pytest.mark.byheart` names."""
    case, opener = request.param
    opener = request.getfixturevalue("byheart_adapter") if opener is None else opener
    key = (opener, case.model)
    if _OPEN.get("key") != key:
        _close()
        from byheart.checkpoints.suite.adapters import open_adapter

        _OPEN.update(key=key, adapter=open_adapter(opener, case.model))
    return BoundCase(case, _OPEN["adapter"])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test per case of every mark."""
    marks = list(metafunc.definition.iter_markers("byheart"))
    if "byheart_case" not in metafunc.fixturenames:
        if marks:
            raise pytest.UsageError(f"{metafunc.function.__qualname__}: add the argument byheart_case to the test")
        return
    found = [pair for mark in marks or [pytest.mark.byheart.mark] for pair in _cases(mark)]
    metafunc.parametrize("byheart_case", found, ids=[case.id for case, _ in found], indirect=True)


def _cases(mark: pytest.Mark) -> Iterator[tuple[SuiteCase, Any]]:
    from byheart.checkpoints.suite.cases import cached_fixture
    from byheart.checkpoints.suite.runner import all_cases
    from byheart.errors import ByheartError, MissingExtraError

    wish = {"kind": "recital", "arch": "llama", "adapter": None, "folder": None, **mark.kwargs}
    kinds, architectures, opener, folder = (wish.pop(name) for name in ("kind", "arch", "adapter", "folder"))
    try:
        if folder is not None:
            yield from ((case, opener) for case in all_cases(folder))
            return
        for architecture in [architectures] if isinstance(architectures, str) else architectures:
            for kind in [kinds] if isinstance(kinds, str) else kinds:
                # The serving cases run on the recital's checkpoint.
                built = cached_fixture("recital" if kind == "serving" else kind, architecture, **wish)
                yield from ((case, opener) for case in all_cases(built) if case.kind == kind)
    except MissingExtraError as error:
        missing = "'byheart[suite]'" if find_spec("tokenizers") is None else str(error)
        raise pytest.UsageError(f"@pytest.mark.byheart: building a fixture needs: pip install {missing}") from error
    except ByheartError as error:
        raise pytest.UsageError(f"@pytest.mark.byheart: {error}") from error


def _close() -> None:
    """Close the adapter that is open; one at a time, since engines are large."""
    close = getattr(_OPEN.get("adapter"), "close", None)
    _OPEN.clear()
    if callable(close):
        close()


def pytest_sessionfinish() -> None:
    """Close the last engine."""
    _close()
