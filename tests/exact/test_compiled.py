"""The numba decorator, with numba and without."""

from __future__ import annotations

import pytest

from byheart.errors import MissingLibraryError
from byheart.exact import compiled as module
from byheart.exact.compiled import compiled, require_compiled
from byheart.exact.reflections import reflect


def test_without_numba_a_function_refuses_with_the_line_to_install(monkeypatch):
    monkeypatch.setattr(module, "has_numba", lambda: False)

    @compiled
    def double(number):
        return 2 * number

    assert double.__name__ == "double"
    for use in (lambda: double(21), lambda: require_compiled([reflect, double])):
        with pytest.raises(MissingLibraryError, match=r"pip install 'byheart\[build\]'"):
            use()


def test_with_numba_functions_are_compiled_and_pass():
    pytest.importorskip("numba")
    require_compiled([reflect])
    assert hasattr(reflect, "py_func")
