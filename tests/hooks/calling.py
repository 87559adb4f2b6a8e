"""What the tests of hooks call, and how they run what need not wait."""

from collections.abc import Coroutine
from typing import Any

from trunkline.hooks import ClientInfo
from trunkline.mqtt.message import Message

CLIENT = ClientInfo("c1", username="ada")
MESSAGE = Message("a/b", b"1")


class Boom(Exception):
    pass


def boom(*args: object) -> None:
    raise Boom


def run_plain(awaitable: Coroutine[Any, Any, Any]) -> Any:
    """Drive a coroutine that suspends nowhere, without any event loop."""
    try:
        awaitable.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it suspended")
