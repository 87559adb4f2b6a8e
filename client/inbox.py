"""Requests to other clients: where their responses come, and who waits for them."""

from __future__ import annotations

from contextlib import contextmanager
from secrets import token_bytes
from typing import TYPE_CHECKING, ClassVar, Final

import trio

from trunkline.client.errors import RequestFailed, RequestQueueFull
from trunkline.client.receivers import Receiver

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from trunkline.client.limits import WaitingLimits
    from trunkline.client.received import ReceivedMessage
    from trunkline.client.receivers import ReceiverOwner
    from trunkline.mqtt.properties import Properties

#: Seconds that a request waits for its response, by default.
RESPONSE_TIMEOUT: Final = 30.0
#: The user property of a response that says why the request failed.
ERROR: Final = "error"


class Awaited:
    """A response that somebody waits for."""

    def __init__(self, properties: Properties) -> None:
        #: The request's, by which its response is found.
        self.properties = properties
        self._came = trio.Event()
        self._message: ReceivedMessage | None = None

    def come(self, message: ReceivedMessage | None) -> None:
        """None: none will."""
        self._message = message
        self._came.set()

    async def wait(self) -> ReceivedMessage | None:
        """
        Raises:
            RequestFailed: the response says so.
        """
        await self._came.wait()
        message = self._message
        if message is not None and ERROR in message.user_properties:
            raise RequestFailed(message.user_properties[ERROR], message)
        return message


class Inbox(Receiver):
    """One subscription for all responses. A response that nobody waits for any more is dropped."""

    is_subscribed: ClassVar = True

    def __init__(self, topic: str, limits: WaitingLimits, owner: ReceiverOwner) -> None:
        super().__init__((topic,), manual_ack=False, limits=limits, owner=owner)
        self.topic: Final = topic
        self._waiting: dict[bytes, Awaited] = {}
        # another client of the same session may have asked, too
        self._mark = token_bytes(8)
        self._count = 0

    @contextmanager
    def awaited(self) -> Generator[Awaited]:
        """
        Raises:
            RequestQueueFull: as many wait as are allowed.
        """
        if len(self._waiting) >= self._limits.queued:
            raise RequestQueueFull(f"{len(self._waiting)} requests wait for their responses already")
        self._count += 1
        number = self._mark + self._count.to_bytes(8, "big")
        self._waiting[number] = found = Awaited({"response_topic": self.topic, "correlation_data": number})
        try:
            yield found
        finally:
            self._waiting.pop(number, None)

    def put(self, messages: Sequence[ReceivedMessage], size: int) -> None:
        for message in messages:
            message.ack()
            awaited = self._waiting.pop(message.properties.get("correlation_data", b""), None)
            if awaited is not None:
                awaited.come(message)

    def end(self) -> None:
        super().end()
        while self._waiting:
            self._waiting.popitem()[1].come(None)


def inbox_topic(client_id: str, response_information: str) -> str:
    """Where the settings name none. The server may have said where responses to all of its clients may go."""
    name = client_id.replace("+", "%2B").replace("#", "%23")
    return f"{response_information.rstrip('/') or 'responses'}/{name}"
