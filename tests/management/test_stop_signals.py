"""Signals that come to this process."""

import os
import signal

import pytest
import trio

from trunkline.management.stop_signals import RELOAD, STOP, signals

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are not sent to processes there")


async def test_they_come_in_order_and_the_former_handlers_come_back() -> None:
    before = {each: signal.getsignal(each) for each in STOP}
    again: list[int] = []
    with signals(1000, lambda signum, frame: again.append(signum)) as coming:
        os.kill(os.getpid(), signal.SIGHUP)
        assert await coming.received.receive() == signal.SIGHUP == RELOAD
        coming.reload()
        assert await coming.received.receive() == signal.SIGHUP
        os.kill(os.getpid(), signal.SIGTERM)
        assert await coming.received.receive() == signal.SIGTERM
        os.kill(os.getpid(), signal.SIGHUP)  # it ends already
        os.kill(os.getpid(), signal.SIGINT)
        assert again == [signal.SIGINT]
        with pytest.raises(trio.WouldBlock):
            coming.received.receive_nowait()
    for each, handler in before.items():
        signal.signal(each, handler)


async def test_an_end_may_be_asked_for_without_a_signal() -> None:
    before = {each: signal.getsignal(each) for each in (*STOP, signal.SIGHUP)}
    with signals(1000, signal.SIG_IGN) as coming:
        coming.stop()
        assert await coming.received.receive() == signal.SIGTERM
        os.kill(os.getpid(), signal.SIGTERM)  # it is ignored from now on
    for each, handler in before.items():
        signal.signal(each, handler)
