"""Mutants of a module: every comparison, term and refusal is changed, one at a time; the given tests must fail.

    python -m tests.mutation src/byheart/certify/any_order/lattice.py tests/certify/any_order

A mutant replaces the code of one function inside a forked process, so that nothing is imported twice. Only tests that
run the changed line are run, the fastest first, and the first failure kills the mutant. Survivors are printed with
their line. Changes: comparisons (strict, not strict, always, never), operands of sums and products removed, signs,
`and`, `or`, `not`, minimum and maximum, refusals, whole numbers one up and one down.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import gc
import importlib
import io
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

TIMEOUT = 120  # seconds of one mutant: a loop that no longer ends is noticed too
SWAPS = {
    **{"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "any": "all", "all": "any"},
    **{"floor": "ceil", "ceil": "floor", "argmax": "argmin", "argmin": "argmax"},
}
_PAIRS = ((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot))
ORDER: dict[type, type] = {a: b for pair in _PAIRS for a, b in (pair, pair[::-1])}


def _words(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Everything that is done to one node, each as the node that replaces it."""

    def edited(**fields: Any) -> ast.AST:
        new = copy.copy(node)
        for name, value in fields.items():
            setattr(new, name, value)
        return new

    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            if type(operator) not in ORDER:
                continue
            others = [*node.ops]
            others[place] = ORDER[type(operator)]()
            yield f"{type(operator).__name__} -> {type(others[place]).__name__}", edited(ops=others)
        if isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):
            for value in (True, False):
                yield f"-> {value}", ast.BoolOp(ast.Or() if value else ast.And(), [ast.Constant(value), node])
    elif isinstance(node, ast.BinOp) and not _words(node.left) and not _words(node.right):
        if isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div | ast.BitAnd | ast.BitOr):
            yield "right operand removed", node.left
            yield "left operand removed", node.right
        if isinstance(node.op, ast.Add | ast.Sub):
            yield "sign", edited(op=ast.Sub() if isinstance(node.op, ast.Add) else ast.Add())
    elif isinstance(node, ast.BoolOp):
        for place in range(len(node.values)):
            rest = node.values[:place] + node.values[place + 1 :]
            yield f"operand {place} removed", rest[0] if len(rest) == 1 else edited(values=rest)
        yield "and <-> or", edited(op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.Invert):
        yield f"{type(node.op).__name__} removed", node.operand
    elif isinstance(node, ast.Call):
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name in SWAPS:
            new = copy.copy(function)
            setattr(new, "attr" if isinstance(function, ast.Attribute) else "id", SWAPS[name])
            yield f"{name} -> {SWAPS[name]}", edited(func=new)
        if name in ("abs", "absolute", "nextafter", "rounded_up") and node.args:
            yield f"{name} removed", node.args[0]
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        if not isinstance(node.test, ast.Compare):
            for value in (True, False) if not isinstance(node, ast.While) else (False,):
                yield f"if {value}", edited(test=ast.Constant(value))
    elif isinstance(node, ast.Raise):
        yield "raise removed", ast.Pass()
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield f"{node.value} -> {node.value + 1}", ast.Constant(node.value + 1)
        yield f"{node.value} -> {node.value - 1}", ast.Constant(node.value - 1)
    elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.BitAnd | ast.BitOr):
        yield "assignment removed", ast.Pass()


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> Any:
        return ast.copy_location(self.new, node) if node is self.old else self.generic_visit(node)


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Functions and methods, without those inside of functions; not what only speaks."""
    for node in tree.body:
        for inner in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(inner, ast.FunctionDef) and inner.name not in ("__repr__", "lines", "as_dict", "_repr_html_"):
                yield inner


def mutants(source: str) -> Iterator[tuple[int, str, str, ast.Module]]:
    """(line, what was done, the old expression, the whole module changed) of all mutants."""
    count = sum(1 for f in functions(ast.parse(source)) for n in ast.walk(f) for _ in changes(n))
    for wanted in range(count):
        tree = ast.parse(source)
        number = 0
        for function in functions(tree):
            spoken = [n for n in ast.walk(function) if isinstance(n, ast.Raise | ast.JoinedStr)]
            silent = {id(n) for r in spoken for n in ast.walk(r)} - {id(r) for r in spoken if isinstance(r, ast.Raise)}
            silent |= {id(n) for a in (function.args.defaults, function.decorator_list) for r in a for n in ast.walk(r)}
            annotations = [function.returns, *(a.annotation for a in ast.walk(function.args) if isinstance(a, ast.arg))]
            silent |= {id(n) for r in annotations if r is not None for n in ast.walk(r)}
            for node in ast.walk(function):
                for what, new in changes(node):
                    if number == wanted:
                        if id(node) not in silent:
                            text = ast.unparse(node).split("\n")[0]
                            line = getattr(node, "lineno", 0)
                            _Replace(node, new).visit(tree)
                            yield line, what, text, ast.fix_missing_locations(tree)
                        break
                    number += 1
                else:
                    continue
                break
            else:
                continue
            break


def code_objects(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from code_objects(constant)


def install(module: ModuleType, tree: ast.Module) -> None:
    """Replace the code of every live function of the module."""
    path = str(module.__file__)
    fresh = {(c.co_qualname, c.co_firstlineno): c for c in code_objects(compile(tree, path, "exec"))}
    for value in gc.get_objects():
        if isinstance(value, FunctionType) and value.__code__.co_filename == path:
            new = fresh.get((value.__code__.co_qualname, value.__code__.co_firstlineno))
            if new is not None and len(new.co_freevars) == len(value.__code__.co_freevars):
                value.__code__ = new


class Recorder:
    """Which lines of a file each test runs, and how long it takes."""

    def __init__(self, path: str) -> None:
        self.path, self.lines, self.seconds, self.order = path, {}, {}, []  # type: ignore[var-annotated]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        found: set[int] = set()
        path = self.path

        def local(frame: Any, event: str, arg: Any) -> Any:
            found.add(frame.f_lineno)
            return local

        def trace(frame: Any, event: str, arg: Any) -> Any:
            if frame.f_code.co_filename != path:
                return None
            found.add(frame.f_lineno)
            return local

        begin = time.process_time()
        sys.settrace(trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            self.lines[item.nodeid] = sorted(found)
            self.seconds[item.nodeid] = time.process_time() - begin


ARGUMENTS = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly", "--no-header", "-W", "ignore"]


def in_child(work: Any) -> int:
    """The exit status of a forked process that does the work, silently; 99 after the timeout."""
    child = os.fork()
    if child == 0:
        signal.alarm(TIMEOUT)
        status = 1
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                status = int(work())
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 99


def record(path: str, tests: list[str], marks: str) -> tuple[dict[str, list[int]], dict[str, float]]:
    place = Path(f"/tmp/mutation-{os.getpid()}.json")

    def work() -> int:
        signal.alarm(0)
        recorder = Recorder(path)
        status = pytest.main([*ARGUMENTS, "-m", marks, *tests], plugins=[recorder])
        place.write_text(json.dumps([recorder.lines, recorder.seconds]))
        return int(status)

    status = in_child(work)
    if status:
        raise SystemExit(f"the tests fail without any mutant (status {status})")
    lines, seconds = json.loads(place.read_text())
    place.unlink()
    return lines, seconds


def main() -> int:
    parser = argparse.ArgumentParser(description="Print mutants of a module that the given tests do not notice.")
    parser.add_argument("module", type=Path)
    parser.add_argument("tests", nargs="+")
    parser.add_argument("--marks", default="not slow")
    parser.add_argument("--every", type=int, default=1, help="only every n-th mutant")
    parser.add_argument("--lines", default="", help="FIRST-LAST")
    options = parser.parse_args()
    path = options.module.resolve()
    module = importlib.import_module(".".join(path.relative_to(Path("src").resolve()).with_suffix("").parts))
    lines, seconds = record(str(module.__file__), options.tests, options.marks)
    first, last = map(int, options.lines.split("-")) if options.lines else (0, 10**9)
    done = survivors = 0
    for number, (line, what, text, tree) in enumerate(mutants(path.read_text(encoding="utf-8"))):
        if number % options.every or not first <= line <= last:
            continue
        chosen = sorted((t for t, hit in lines.items() if line in hit), key=lambda t: seconds[t])
        done += 1

        def work(tree: ast.Module = tree, chosen: list[str] = chosen) -> int:
            install(module, tree)
            return int(pytest.main([*ARGUMENTS, "-m", options.marks, *chosen]))

        if not chosen or in_child(work) == 0:
            survivors += 1
            reach = f"{len(chosen)} tests" if chosen else "no test runs it"
            print(f"{path.name}:{line}: {what}: {text[:150]}  ({reach})", flush=True)
    print(f"{path.name}: {done} mutants, {survivors} survive", flush=True)
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
