"""A publisher learns from another shard what a stream there did with its message."""

from collections.abc import Callable

import pytest

from trunkline.broker import late_refusals
from trunkline.broker.late_refusals import LateRefusals
from trunkline.mqtt.message import Message


def test_it_waits_for_all_that_have_to_answer_once_each() -> None:
    late, actions, called = LateRefusals(), list[Callable[[], None]](), list[str]()
    message = Message("t", b"x")
    late.sent(message, [actions.append, actions.append])
    assert late.publication is message
    wait = late.wait()
    assert wait is not None
    wait(lambda: called.append("known"))
    assert len(actions) == 1, "both are the same"
    assert not called
    actions[0]()
    assert called == ["known"]


def test_what_was_not_sent_is_not_waited_for() -> None:
    late = LateRefusals()
    late.sent(Message("t", b"x"), [])
    assert late.wait() is None


def test_a_refusal_is_told_once() -> None:
    late = LateRefusals()
    late.refused(5, "full")
    assert late.take(Message("t", b"", guid=6)) == ""
    assert late.take(Message("t", b"", guid=5)) == "full"
    assert late.take(Message("t", b"", guid=5)) == ""


def test_those_that_nobody_asks_for_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_refusals, "MAX_REMEMBERED", 2)
    late = LateRefusals()
    for guid in range(3):
        late.refused(guid, str(guid))
    assert [late.take(Message("t", b"", guid=guid)) for guid in range(3)] == ["", "1", "2"]
