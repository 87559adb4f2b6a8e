"""Changes one place of a module and runs the module's tests: `python -m tests.mutants streams store --count 100`.

A mutant that no test notices shows what is not tested, or what makes no difference. The places are drawn by a seed.
Each mutant lives in a copy of the repository, and only the tests of its module run, by the rule of
`tests/test_house.py`: in forks of a process that has collected them (`tests/mutant_forks.py`). (mutmut and cosmic-ray
run one set of tests for all modules.)
"""

import argparse
import ast
import copy
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from tests.test_house import TESTED_IN

ROOT: Final = Path(__file__).parents[1]
#: Not copied: what no test of a module reads.
LEFT_OUT: Final = shutil.ignore_patterns(".git", ".venv", ".*_cache", ".hypothesis", "site", "node_modules")

SWAPPED: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
}


@dataclass(frozen=True, slots=True)
class Mutant:
    module: str
    line: int
    what: str
    #: The lines of the statement that is another one, its text instead, and how far it is indented.
    first: int
    last: int
    text: str

    def source(self) -> str:
        lines = (ROOT / self.module).read_text(encoding="utf-8").splitlines(keepends=True)
        before = lines[self.first - 1]
        indent = before[: len(before) - len(before.lstrip())]
        changed = "".join(f"{indent}{line}\n" for line in self.text.splitlines())
        return "".join([*lines[: self.first - 1], changed, *lines[self.last :]])

    def in_function(self) -> bool:
        tree = ast.parse((ROOT / self.module).read_text(encoding="utf-8"))
        return any(
            each.body[0].lineno <= self.first and self.last <= _end(each)
            for each in ast.walk(tree)
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        )

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.what}"


def mutants(module: str) -> Iterator[Mutant]:
    """Every mutant of a module: one place of one statement."""
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    for parent in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(parent, name, None)
            if isinstance(block, list) and not isinstance(parent, ast.Module | ast.ClassDef):
                for number, statement in enumerate(block):
                    yield from _removed(module, statement)
                    if number + 1 < len(block):
                        yield from _exchanged(module, statement, block[number + 1])
        if isinstance(parent, ast.stmt) and not isinstance(
            parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        ):
            yield from _changed(module, parent)


def _removed(module: str, statement: ast.stmt) -> Iterator[Mutant]:
    """A call, an assignment, a wait or an end is left out."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return  # a docstring
    if isinstance(
        statement, ast.Expr | ast.Assign | ast.AugAssign | ast.Delete | ast.Continue | ast.Break | ast.Return
    ):
        what = f"without `{_short(statement)}`"
        yield Mutant(module, statement.lineno, what, statement.lineno, _end(statement), "pass")


def _exchanged(module: str, one: ast.stmt, two: ast.stmt) -> Iterator[Mutant]:
    simple = ast.Expr | ast.Assign | ast.AugAssign | ast.Delete
    if (
        isinstance(one, simple)
        and isinstance(two, simple)
        and not isinstance(getattr(one, "value", None), ast.Constant)
    ):
        text = f"{ast.unparse(two)}\n{ast.unparse(one)}"
        what = f"`{_short(one)}` after `{_short(two)}`"
        yield Mutant(module, one.lineno, what, one.lineno, _end(two), text)


def _changed(module: str, statement: ast.stmt) -> Iterator[Mutant]:
    """One operator, number or value of a statement is another one. Of a compound statement its head is changed."""
    places = [place for place in _nodes(statement) if _changes(place)]
    for number, place in enumerate(places):
        for change in _changes(place):
            other = copy.deepcopy(statement)
            change([each for each in _nodes(other) if _changes(each)][number])
            if not hasattr(other, "body"):
                last, text = _end(statement), ast.unparse(other)
            elif isinstance(other, ast.If | ast.While | ast.For | ast.AsyncFor | ast.With | ast.AsyncWith):
                last, other.body = other.body[0].lineno - 1, [ast.Pass()]
                if hasattr(other, "orelse"):
                    other.orelse = []
                text = ast.unparse(other).rpartition("\n")[0]
                if last < statement.lineno:
                    continue  # all on one line
            else:
                continue
            if (
                ROOT.joinpath(module).read_text(encoding="utf-8").splitlines()[statement.lineno - 1].lstrip()[:4]
                == "elif"
            ):
                text = f"el{text}"
            what = f"`{_short(other)}` for `{_short(statement)}`"
            yield Mutant(module, getattr(place, "lineno", statement.lineno), what, statement.lineno, last, text)


def _nodes(statement: ast.stmt) -> list[ast.AST]:
    """The expressions of a statement, without those of the statements in it."""
    found: list[ast.AST] = [statement]
    for child in ast.iter_child_nodes(statement):
        if not isinstance(child, ast.stmt):
            found += ast.walk(child)
    return found


def _changes(node: ast.AST) -> list[Callable[[Any], None]]:
    """What can be done with a node: each changes the node that it is given."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED:
        return [lambda each: each.ops.__setitem__(0, SWAPPED[type(each.ops[0])]())]
    if isinstance(node, ast.BoolOp | ast.BinOp | ast.AugAssign) and type(node.op) in SWAPPED:
        return [lambda each: setattr(each, "op", SWAPPED[type(each.op)]())]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return [lambda each: setattr(each, "operand", ast.UnaryOp(ast.Not(), each.operand))]
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return [lambda each: setattr(each, "value", not each.value)]
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return [lambda each: setattr(each, "value", each.value + 1)]
    if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        return [lambda each: setattr(each, "value", ast.Constant(None))]
    return []


def _end(statement: ast.stmt) -> int:
    assert statement.end_lineno is not None
    return statement.end_lineno


def _short(node: ast.AST) -> str:
    text = ast.unparse(node).splitlines()[0]
    return text if len(text) <= 80 else f"{text[:77]}..."


def tests_of(module: str) -> str:
    """The file of a module's tests, below tests/."""
    path = Path(module.removeprefix("src/trunkline/"))
    return TESTED_IN[module][0] if module in TESTED_IN else (path.parent / f"test_{path.name}").as_posix()


def notices(mutant: Mutant, copy_of_all: Path, patience: float) -> bool:
    """Whether the tests fail, or do not end, with the mutant in place of the module."""
    place = copy_of_all / mutant.module
    original, times = place.read_text(encoding="utf-8"), place.stat()
    changed = mutant.source()
    place.write_text(changed, encoding="utf-8")
    try:
        return run(tests_of(mutant.module), copy_of_all, patience) != 0
    finally:
        place.write_text(original, encoding="utf-8")
        os.utime(place, ns=(times.st_atime_ns, times.st_mtime_ns))  # its bytecode is valid again


def environment(folder: Path) -> dict[str, str]:
    path = f"{folder / 'src'}{os.pathsep}{folder}"
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def run(tests: str, folder: Path, patience: float) -> int:
    """The exit code of the tests; -1 if their time was over."""
    command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", "-p", "no:randomly", f"tests/{tests}"]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(patience)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return -1


def tried(tests: str, mutants: list[Mutant], place: Path, end: float) -> tuple[int, int]:
    """How many mutants of the tests of one file survived, which are printed, of how many that there was time for."""
    in_functions = [mutant for mutant in mutants if mutant.in_function()]
    others = [mutant for mutant in mutants if not mutant.in_function()]
    survivors = every = 0
    command = [sys.executable, "-m", "tests.mutant_forks", tests, str(end - time.monotonic())]
    began = time.monotonic()
    patience = 600.0
    with subprocess.Popen(
        command,
        cwd=place,
        env=environment(place),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as forks:
        assert forks.stdin is not None
        assert forks.stdout is not None
        forks.stdin.write(json.dumps([(mutant.module, mutant.source()) for mutant in in_functions]).encode())
        forks.stdin.close()
        for line in forks.stdout:
            answer = line.decode().split()
            if answer == ["fails"]:
                print(f"{tests} fails without any mutant", flush=True)
                return 0, 0
            if answer == ["ready"]:
                patience = 10 + 4 * (time.monotonic() - began)
                continue
            mutant = in_functions[int(answer[0])]
            if answer[1] == "unfit":
                others.append(mutant)
                continue
            every += 1
            if answer[1] == "survived":
                survivors += 1
                print(mutant, flush=True)
    for mutant in others:
        if time.monotonic() < end:
            every += 1
            if not notices(mutant, place, patience):
                survivors += 1
                print(mutant, flush=True)
    return survivors, every


def chosen(paths: list[str], count: int, seed: int) -> list[Mutant]:
    files = [
        file
        for path in paths
        for file in ([ROOT / path] if path.endswith(".py") else sorted((ROOT / path).rglob("*.py")))
    ]
    names = [file.relative_to(ROOT).as_posix() for file in files]
    tested = [name for name in names if (ROOT / "tests" / tests_of(name)).exists()]
    every = [mutant for name in tested for mutant in mutants(name)]
    return random.Random(seed).sample(every, min(count, len(every)))


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="+", help="modules or packages, from the repository's root")
    parser.add_argument("--count", type=int, default=50, help="mutants that are tried; default: 50")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no other after so many")
    given = parser.parse_args()
    drawn, end = chosen(given.paths, given.count, given.seed), time.monotonic() + given.seconds
    files = sorted({tests_of(mutant.module) for mutant in drawn})
    groups = [(tests, [mutant for mutant in drawn if tests_of(mutant.module) == tests]) for tests in files]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(given.jobs) as pool:
        copies = SimpleQueue[Path]()
        for number in range(given.jobs):
            copies.put(Path(shutil.copytree(ROOT, Path(folder, str(number)), symlinks=True, ignore=LEFT_OUT)))

        def work(group: tuple[str, list[Mutant]]) -> tuple[int, int]:
            place = copies.get()
            try:
                return tried(*group, place, end)
            finally:
                copies.put(place)

        counts = list(pool.map(work, groups))
    survivors, every = (sum(each) for each in zip(*counts, strict=True))
    print(f"{survivors} of {every} mutants survived, seed {given.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
