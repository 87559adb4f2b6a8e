"""The kept inputs of each target: a file of hex, an input a line, the shortest first."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

CORPUS: Final = Path(__file__).parent / "corpus"


def kept(target: str) -> list[bytes]:
    return [bytes.fromhex(line) for line in _file(target).read_text().splitlines()]


def keep(target: str, inputs: Iterable[bytes]) -> None:
    """In place of those before."""
    CORPUS.mkdir(exist_ok=True)
    lines = [f"{data.hex()}\n" for data in sorted(set(inputs), key=lambda data: (len(data), data))]
    _file(target).write_text("".join(lines))


def _file(target: str) -> Path:
    return CORPUS / f"{target}.hex"
