"""Answers between threads, whenever the thread that waits is interrupted."""

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from types import FrameType
from typing import Any

import pytest

from trunkline.actors.answer import Answer


def in_thread(function: Callable[[], object]) -> None:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


def interrupted(function: Callable[[], object], instruction: int) -> bool:
    """Call a function that is interrupted before this instruction of it; False: it has fewer."""
    left = instruction

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_a_result() -> None:
    answer = Answer[int]()
    in_thread(lambda: answer.set_result(1))
    answer.set_exception(LookupError())  # too late
    assert answer.result() == 1
    assert answer.exception() is None


def test_an_error() -> None:
    answer = Answer[int]()
    in_thread(lambda: answer.set_exception(LookupError("why")))
    with pytest.raises(LookupError, match="why"):
        answer.result()


def test_waiting_has_an_end() -> None:
    with pytest.raises(TimeoutError):
        Answer[int]().wait(0)


def test_a_callback_is_called_once() -> None:
    answer, called = Answer[None](), list[str]()
    answer.add_callback(lambda: called.append("early"))
    answer.set_result(None)
    answer.add_callback(lambda: called.append("late"))
    assert called == ["early", "late"]


def wait(answer: Answer[int]) -> None:
    with suppress(TimeoutError):
        answer.wait(0)


@pytest.mark.parametrize("done", [False, True])
def test_an_interrupt_anywhere_holds_up_nobody(done: bool) -> None:
    for instruction in count(1):
        answer = Answer[int]()
        if done:
            answer.set_result(1)
        was_interrupted = interrupted(partial(wait, answer), instruction)
        in_thread(partial(answer.set_result, 1))
        assert answer.result() == 1
        if not was_interrupted:
            assert instruction > 10
            return
