"""Processes that libFuzzer runs in, and ends. They are forked: it takes seconds to load the broker in such a way that
libFuzzer sees which code is reached. For a merge it runs `python -m fuzz.fuzzer TARGET OPTIONS...` itself."""

import os
import sys
from collections.abc import Sequence

import atheris

with atheris.instrument_imports(include=["trunkline"]):
    from fuzz.targets import TARGETS


def fuzz(target: str, *options: str) -> int:
    """The exit code, of a process of its own, with options of libFuzzer."""
    process = os.fork()
    if not process:
        _run(target, options)  # does not return; what it raises has to end the interpreter: then the input is written
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def _run(target: str, options: Sequence[str]) -> None:
    atheris.Setup([f"{sys.executable} -m fuzz.fuzzer {target}", *options], TARGETS[target])
    atheris.Fuzz()


if __name__ == "__main__":
    _run(sys.argv[1], sys.argv[2:])
