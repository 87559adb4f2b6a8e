"""What is above a transport, and at its other end."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import trio.testing

from trunkline.broker.net.transport import Ended, Event

#: More than any socket's buffers hold.
MUCH = bytes(range(256)) * 65_536


class Mailbox:
    """What a connection would be sent."""

    def __init__(self) -> None:
        self.got: list[Event] = []
        self.changed = trio.Event()

    def __call__(self, mail: Event) -> None:
        self.got.append(mail)
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(120):
            while not condition():
                self.changed = trio.Event()
                await self.changed.wait()

    @property
    def data(self) -> bytes:
        return b"".join(mail for mail in self.got if isinstance(mail, bytes))

    @property
    def ended(self) -> str | None:
        return next((mail.error for mail in self.got if isinstance(mail, Ended)), None)


def owner(start_task: Callable[..., object] | None = None) -> Any:
    """In place of a connection."""
    return SimpleNamespace(ref=None, start_task=start_task)


async def read_all(peer: trio.abc.Stream, size: int) -> bytes:
    data = bytearray()
    with trio.fail_after(120):
        while len(data) < size:
            data += await peer.receive_some(1_048_576)
    return bytes(data)
