"""Each message as bytes, and back."""

from typing import get_args

import pytest

from trunkline.broker.net.listening_sockets import SocketsWanted
from trunkline.config.listener_settings import ListenerSettings
from trunkline.management.workers.messages import (
    AlarmIs,
    Alive,
    AllQuiet,
    CannotStart,
    Message,
    Quiet,
    Ready,
    Reload,
    Reloaded,
    SocketsAre,
    SocketsClosed,
    WantSockets,
    Welcome,
    decode,
    encode,
)

WANTED = SocketsWanted.of(ListenerSettings(url="tcp://127.0.0.1:1", name="a", backlog=7))


EACH: list[Message] = [
    Welcome(1, 2, 3, "/a", 0.5),
    Reload(),
    AllQuiet(),
    SocketsAre(1, 2, "no"),
    AlarmIs("a", "b"),
    Ready(),
    Alive(),
    Reloaded(),
    CannotStart(["a", "b"], 2),
    Quiet(),
    SocketsClosed(4),
]


@pytest.mark.parametrize("message", EACH, ids=lambda message: type(message).__name__)
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    again = decode(encode(message))
    assert again == message
    assert type(again) is type(message)


def test_sockets_are_asked_for_by_all_that_makes_them() -> None:
    again = decode(encode(WantSockets(5, WANTED)))
    assert isinstance(again, WantSockets)
    assert again.request == 5
    assert again.wanted == WANTED
    assert again.wanted.address.port == 1


def test_every_kind_of_message_is_tested_here() -> None:
    assert {type(message) for message in EACH} | {WantSockets} == set(get_args(Message))
