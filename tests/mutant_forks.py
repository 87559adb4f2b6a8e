"""Runs the tests of one file for many mutants: `python -m tests.mutant_forks TESTS SECONDS`, for `tests/mutants.py`.

Imports and collection happen once. For each mutant a fork puts the changed code into the functions that are there, and
the changed module into the file, for processes that tests start. The test that noticed the last mutant goes first.
"""

import gc
import inspect
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import Final

import pytest

#: A module's path, and its source with one place changed.
Mutant = tuple[Path, str]
#: What a fork ends with whose function cannot have the changed code: with another number of free variables, say.
UNFIT: Final = 77


class Forks:
    def __init__(self, mutants: list[Mutant], seconds: float, answers: int) -> None:
        self._mutants = mutants
        self._end = time.monotonic() + seconds
        self._answers = answers

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = list(session.items)
        start = time.monotonic()
        status, _ = self._fork(session, items, None, 600)
        self._answer("ready" if status == 0 else "fails")
        patience = 10 + 4 * (time.monotonic() - start)
        for number, mutant in enumerate(self._mutants if status == 0 else []):
            if time.monotonic() > self._end:
                break
            file, changed = mutant
            original, times = file.read_text(encoding="utf-8"), file.stat()
            file.write_text(changed, encoding="utf-8")
            try:
                status, noticed_by = self._fork(session, items, (file, original, changed), patience)
            finally:
                file.write_text(original, encoding="utf-8")
                os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # its bytecode is valid again
            if noticed_by is not None:
                items.insert(0, items.pop(noticed_by))
            self._answer(f"{number} {'unfit' if status == UNFIT else 'noticed' if status else 'survived'}")
        return True

    def _answer(self, text: str) -> None:
        os.write(self._answers, f"{text}\n".encode())

    def _fork(
        self, session: pytest.Session, items: list[pytest.Item], change: tuple[Path, str, str] | None, patience: float
    ) -> tuple[int, int | None]:
        """The exit status, not 0 if the tests fail or do not end, and which one failed."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.setsid()
            status = 1
            try:
                if change is not None and not put_in(*change):
                    status = UNFIT
                else:
                    status = _first_failure(session, items, writing)
            finally:
                os._exit(status)
        os.close(writing)
        end = time.monotonic() + patience
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() > end:
                os.killpg(child, signal.SIGKILL)
                ended = os.waitpid(child, 0)
                break
            time.sleep(0.02)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what its tests have started: no fixture ends
        failed = os.read(reading, 9)
        os.close(reading)
        return ended[1] and (os.waitstatus_to_exitcode(ended[1]) or 1), int(failed) if failed else None


def _first_failure(session: pytest.Session, items: list[pytest.Item], report: int) -> int:
    for number, item in enumerate(items):
        following = items[number + 1] if number + 1 < len(items) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            os.write(report, str(number).encode())
            return 1
    return 0


def put_in(module: Path, original: str, changed: str) -> bool:
    """The functions of the module have the mutant's code; not so if one of them cannot."""
    named = (each for name, each in sys.modules.items() if name.rpartition(".")[2] == module.stem)
    path = next((each.__file__ for each in named if each.__file__ and module.samefile(each.__file__)), None)
    if path is None:
        return True  # whoever imports it reads the changed file
    old, new = (list(_functions(compile(text, path, "exec"))) for text in (original, changed))
    others = {(code.co_qualname, code.co_firstlineno): other for code, other in zip(old, new, strict=True)}
    gc.unfreeze()  # what was collected is among the objects again
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and function.__code__.co_filename == path:
            code = function.__code__
            other = others.get((code.co_qualname, code.co_firstlineno))
            if other is not None:
                if len(other.co_freevars) != len(code.co_freevars):
                    return False
                function.__code__ = other
    return True


def _functions(code: CodeType) -> Iterator[CodeType]:
    """Those of a module and of its classes, without those in functions."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if each.co_flags & inspect.CO_OPTIMIZED:
                yield each
            else:
                yield from _functions(each)


if __name__ == "__main__":
    tests, seconds = sys.argv[1], float(sys.argv[2])
    answers = os.dup(1)
    os.dup2(2, 1)  # what pytest prints
    forks = Forks([(Path(module), source) for module, source in json.load(sys.stdin)], seconds, answers)
    pytest.main(["-qs", "-p", "no:cacheprovider", "-p", "no:randomly", f"tests/{tests}"], plugins=[forks])
