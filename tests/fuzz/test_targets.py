"""The short form of fuzzing: the kept inputs, and mutations of them. With atheris, its fuzzer for a second, too.

`THOROUGH=100` tries a hundred times as many mutations; `python -m fuzz TARGET --seconds 600` is the long form.
"""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from random import Random

import pytest
from fuzz.corpus import CORPUS, kept
from fuzz.targets import TARGETS
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.store.conftest import THOROUGH

ROOT = Path(__file__).parents[2]

needs_atheris = pytest.mark.skipif(find_spec("atheris") is None, reason="atheris is not installed (the group `fuzz`)")
each_target = pytest.mark.parametrize("target", TARGETS)


def test_each_target_has_a_corpus() -> None:
    assert {file.stem for file in CORPUS.iterdir()} == set(TARGETS)


@each_target
def test_what_is_kept(target: str) -> None:
    for data in kept(target):
        TARGETS[target](data)


def mutated(inputs: list[bytes], number: int) -> bytes:
    """One of the inputs with some bytes changed, taken away or added, or with a part of another."""
    dice = Random(number)
    data = bytearray(dice.choice(inputs))
    for _ in range(dice.randint(1, 6)):
        place, other = dice.randrange(len(data) + 1), dice.choice(inputs)
        match dice.randrange(5):
            case 0:
                data[place : place + 1] = bytes([dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))])
            case 1:
                del data[place : place + dice.randint(1, 4)]
            case 2:
                data[place:place] = dice.randbytes(dice.randint(1, 4))
            case 3:
                begin = dice.randrange(len(other) + 1)
                data[place:place] = other[begin : begin + dice.randint(1, 20)]
            case _:
                data[place:] = other[dice.randrange(len(other) + 1) :]
    return bytes(data)


@each_target
@settings(max_examples=300 * THOROUGH, print_blob=True)
@given(number=st.integers(0, 2**64))
def test_mutations_of_what_is_kept(target: str, number: int) -> None:
    TARGETS[target](mutated(kept(target), number))


def fuzz(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command, environment = [sys.executable, *words], {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
    )


@needs_atheris
def test_the_fuzzer_finds_nothing(tmp_path: Path) -> None:
    """Inputs that fail would be left in the folder."""
    done = fuzz(tmp_path, "-m", "fuzz", *TARGETS, "--seconds", "1")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr.count("\nDone ") == len(TARGETS)


#: A target that fails with each input of less than ten bytes.
PROGRAM = """
import sys, fuzz.__main__, fuzz.fuzzer
fuzz.fuzzer.TARGETS["proxy"] = lambda data: data[9]
sys.exit(fuzz.__main__.main())
"""


@needs_atheris
def test_what_fails_is_left_in_the_folder(tmp_path: Path) -> None:
    done = fuzz(tmp_path, "-c", PROGRAM, "proxy", "--seconds", "60")
    assert done.returncode != 0
    assert "IndexError" in done.stdout + done.stderr
    [left] = tmp_path.glob("crash-*")
    assert len(left.read_bytes()) < 10
