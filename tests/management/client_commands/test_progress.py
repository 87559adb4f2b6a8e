"""The line about a long run, in virtual time."""

import sys

import pytest
import trio
from trio.testing import MockClock

from trunkline.management.client_commands.progress import INTERVAL, PATIENCE, show_progress


class Line:
    def __init__(self) -> None:
        self.shown: list[str] = []
        self.is_stopped = False

    def update(self, status: str) -> None:
        self.shown.append(status)

    def stop(self) -> None:
        self.is_stopped = True


async def follow(monkeypatch: pytest.MonkeyPatch, seconds: float, *, terminal: bool) -> Line:
    """A run that publishes a thousand messages a second."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    line = Line()
    start = trio.current_time()
    with trio.move_on_after(seconds):
        await show_progress(lambda: round(1000 * (trio.current_time() - start)), lambda: line)
    return line


async def test_a_long_run(monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    line = await follow(monkeypatch, PATIENCE + 1.5 * INTERVAL, terminal=True)
    assert line.shown == ["2,000 messages, 1,000 a second", "2,500 messages, 1,000 a second"]
    assert line.is_stopped


async def test_a_short_run(monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    assert (await follow(monkeypatch, PATIENCE - 0.1, terminal=True)).shown == []


async def test_not_at_a_terminal(monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    assert (await follow(monkeypatch, 10, terminal=False)).shown == []
