"""Lines of standard input: all of them, in order, and no more in memory than there is room for."""

from collections.abc import Callable, Iterable

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from trunkline.management.client_commands import payloads
from trunkline.management.client_commands.payloads import LINE_OVERHEAD, MAX_WAITING, LineReader


def reads(parts: Iterable[bytes]) -> Callable[[int], bytes]:
    rest = iter([*parts, b""])
    return lambda size: next(rest)


async def read_all(reader: LineReader) -> list[bytes]:
    found: list[bytes] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader.run)
        while lines := await reader.lines():
            found += lines
    return found


@pytest.mark.parametrize(
    ("parts", "lines"),
    [
        ([], []),
        ([b"\n"], [b""]),
        ([b"one\ntwo\n"], [b"one", b"two"]),
        ([b"o", b"n", b"e\n\nt", b"wo"], [b"one", b"", b"two"]),
        ([b"one\r\n"], [b"one\r"]),
    ],
)
async def test_lines(parts: list[bytes], lines: list[bytes]) -> None:
    assert await read_all(LineReader(reads(parts))) == lines


async def test_reading_stops_while_nothing_is_published() -> None:
    count = 0
    line = bytes(65_535) + b"\n"
    most = MAX_WAITING // (65_535 + LINE_OVERHEAD) + 1

    def read(size: int) -> bytes:
        nonlocal count
        count += 1
        return line if count <= 100 else b""

    reader = LineReader(read)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader.run)
        while count < most:
            await trio.lowlevel.checkpoint()
        await wait_all_tasks_blocked()
        assert count == most
        found = 0
        while lines := await reader.lines():
            found += len(lines)
    assert found == 100


async def test_a_line_that_no_message_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "MAX_PAYLOAD", 100)
    with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="longer than 100 bytes")):
        await read_all(LineReader(reads([b"x" * 60] * 2)))
