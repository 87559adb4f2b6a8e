"""Signals that come to this process."""

import os
import signal
from collections.abc import Iterator

import pytest
import trio

from trunkline.management import stop_signals
from trunkline.management.stop_signals import RELOAD, STOP, signals

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are not sent to processes there")


@pytest.fixture(autouse=True)
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Within how many seconds this process was to end, which it does not; and handlers are put back."""
    times: list[float] = []
    monkeypatch.setattr(stop_signals, "_end_within", times.append)
    before = {each: signal.getsignal(each) for each in (*STOP, signal.SIGHUP)}
    yield times
    for each, handler in before.items():
        signal.signal(each, handler)


async def test_they_come_in_order(watched: list[float]) -> None:
    again: list[int] = []
    with signals(1000, lambda signum, frame: again.append(signum)) as coming:
        os.kill(os.getpid(), signal.SIGHUP)
        assert await coming.received.receive() == signal.SIGHUP == RELOAD
        coming.reload()
        assert await coming.received.receive() == signal.SIGHUP
        assert watched == []
        os.kill(os.getpid(), signal.SIGTERM)
        assert await coming.received.receive() == signal.SIGTERM
        os.kill(os.getpid(), signal.SIGHUP)  # it ends already
        os.kill(os.getpid(), signal.SIGINT)
        assert again == [signal.SIGINT]
        with pytest.raises(trio.WouldBlock):
            coming.received.receive_nowait()
    assert watched == [1000]


async def test_the_former_handlers_come_back() -> None:
    before = {each: signal.getsignal(each) for each in (*STOP, signal.SIGHUP)}
    with signals(1000) as coming:
        assert {signal.getsignal(each) for each in before} == {coming.pass_on}
    assert {each: signal.getsignal(each) for each in before} == before


async def test_an_end_may_be_asked_for_without_a_signal(watched: list[float]) -> None:
    with signals(1000, signal.SIG_IGN) as coming:
        coming.stop()
        assert await coming.received.receive() == signal.SIGTERM
        os.kill(os.getpid(), signal.SIGTERM)  # it is ignored from now on
    assert watched == [1000]
