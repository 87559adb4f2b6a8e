"""Messages that are pulled: some at a time, or a few ahead of a loop."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import trio

from trunkline.nats.client.events import PullFailed
from trunkline.nats.client.jetstream.message import JetStreamMessage
from trunkline.nats.client.jetstream.subscribed import ConsumerSubscription
from trunkline.nats.errors import ClientClosed, RequestTimeout
from trunkline.nats.jetstream.pulls import Pulls, ahead_of
from trunkline.nats.jetstream.statuses import (
    PENDING_BYTES,
    PENDING_MESSAGES,
    Meaning,
    error_of,
    meaning_of,
    number_in,
    status_of,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from trunkline.nats.client.jetstream.subscribed import Api
    from trunkline.nats.errors import StatusError
    from trunkline.nats.protocol.headers import Status
    from trunkline.nats.protocol.operations import Deliver

#: So much is never asked for: what was asked for has room.
MAX_BYTES: Final = 1 << 62
#: Seconds of one pull of a loop, and between the heartbeats in it.
EXPIRES: Final = 30.0
HEARTBEAT: Final = 15.0
#: Intervals of heartbeats in which nothing comes, until the pull is given up (ADR-37, Idle heartbeats).
MISSED_HEARTBEATS: Final = 2
#: Seconds behind the end of a pull in which the server may say so.
GRACE: Final = 2.0
#: A pull without heartbeats is not longer than so many seconds.
_LONG: Final = 30.0
#: Seconds between a pull that has failed and the next one, doubled up to the largest, and how many may fail in a row.
_WAIT: Final = 0.1
_MAX_WAIT: Final = 5.0
MAX_FAILURES: Final = 10


class PullSubscription(ConsumerSubscription):
    """`fetch` and `next` ask for messages when they are called, a loop ahead of itself."""

    ahead = ahead_of()

    def __init__(self, api: Api, *args: Any) -> None:
        super().__init__(api, *args)
        self._patience = MISSED_HEARTBEATS * HEARTBEAT
        self._prefix = self.subject.removesuffix("*")
        self._pulls = Pulls()
        self._fetching = trio.Lock()
        #: The pull of a fetch, and the status it has ended with.
        self._own = b""
        self._ending: Status | None = None
        #: What a loop is to raise.
        self._error: StatusError | None = None
        #: Pulls of a loop that have failed in a row.
        self._failures = 0
        #: Bytes that a loop has asked for in vain: the next message is larger.
        self._in_vain = 0

    # What comes

    def again(self) -> Iterable[bytes]:
        self._pulls.forget()  # they went with the connection
        self._lot.unpark_all()
        return super().again()

    def put(self, wire: Deliver) -> None:
        status = status_of(wire) if wire.block else None
        if status is not None:
            self._take_status(wire, status)
        else:
            self._pulls.came(wire)
            self._failures = self._in_vain = 0
            super().put(wire)

    def _take_status(self, wire: Deliver, status: Status) -> None:
        self._heard_at = trio.current_time()
        token = wire.subject[len(self._prefix) :]
        if meaning_of(status) is Meaning.ALIVE or token not in self._pulls:
            return
        size = number_in(wire, PENDING_BYTES)
        self._pulls.end(token, number_in(wire, PENDING_MESSAGES), size)
        if token == self._own:
            self._ending = status
        else:
            self._has_ended(status, size)
        self._lot.unpark_all()

    def _has_ended(self, status: Status, size: int | None) -> None:
        """A pull of a loop, in which so many bytes had still room."""
        meaning = meaning_of(status)
        if meaning is Meaning.AGAIN and self._failures < MAX_FAILURES:
            self._wakes_at = trio.current_time() + min(_WAIT * 2.0**self._failures, _MAX_WAIT)
            self._failures += 1
            self._api.client.tell(PullFailed(self, error_of(status)))
        elif meaning is Meaning.TOO_LARGE and size is not None and size < self.ahead.bytes:
            self._in_vain = max(self._in_vain, size)
        elif meaning is not Meaning.ENDED:
            self._failures, self._error = 0, error_of(status)

    # Some at a time

    async def next(self, *, expires: float = 5.0) -> JetStreamMessage | None:
        """One message; None if none comes within so many seconds. Raises as `fetch` does."""
        found = await self.fetch(1, expires=expires)
        return found[0] if found else None

    async def fetch(
        self, max_messages: int, *, expires: float = 5.0, max_bytes: int = 0, no_wait: bool = False
    ) -> list[JetStreamMessage]:
        """So many messages, or those that come within so many seconds, or those that are there with `no_wait`. One
        fetch is made at a time; others wait for it. A fetch that is cancelled takes nothing: what comes for it is there
        for the next one.

        Raises:
            StatusError: the server refuses, or the consumer is gone.
            RequestTimeout: the server says nothing at all.
            NatsError: the subscription is over.
        """
        if not 0 < max_messages <= self._max_messages or not 0 < expires < float("inf") or max_bytes < 0:
            raise ValueError(f"a fetch of {max_messages} messages within {expires} s, and {max_bytes} bytes")
        async with self._fetching:
            await trio.lowlevel.checkpoint()
            deadline = trio.current_time() + expires
            while len(self._waiting) < max_messages and (seconds := deadline - trio.current_time()) > 0:
                if self._is_last():
                    break
                if not self._api.client.is_connected:
                    with trio.move_on_at(deadline):
                        await self._lot.park()
                elif await self._pulled(max_messages, seconds, max_bytes, no_wait=no_wait):
                    break
            count = min(max_messages, len(self._waiting))
            self._is_bulk = count > 1
            return [JetStreamMessage(self._pop(), self) for _ in range(count)]

    async def _pulled(self, wanted: int, seconds: float, max_bytes: int, *, no_wait: bool) -> bool:
        """Until so many wait, or one pull for the rest has ended: whether the server has ended it. Its error is raised
        unless messages wait, as the next fetch meets it again."""
        heartbeat = HEARTBEAT if seconds > _LONG and not no_wait else 0.0
        patience = MISSED_HEARTBEATS * heartbeat if heartbeat else GRACE + (0.0 if no_wait else seconds)
        self._ending, began = None, trio.current_time()
        self._own = self._pull(wanted - len(self._waiting), max_bytes, 0.0 if no_wait else seconds, heartbeat)
        try:
            while len(self._waiting) < wanted and self._own in self._pulls:
                if self._is_last():
                    return True
                began, is_silent = await self._pause(began, patience, float("inf"))
                if is_silent:
                    self._pulls.end(self._own, None, None)
                    if self._waiting:
                        return True
                    raise RequestTimeout(f"{self!r}: the server has said nothing for {patience:g} s")
        finally:
            self._own = b""
        ending = self._ending
        if ending is not None and meaning_of(ending) is not Meaning.ENDED and not self._waiting:
            raise error_of(ending)
        return ending is not None

    def _is_last(self) -> bool:
        """Whether nothing comes behind what waits. Raises if nothing waits."""
        if self.is_over and not self._waiting:
            raise self._failure or ClientClosed("the subscription is over")
        return self.is_over

    def _pull(self, messages: int, max_bytes: int, expires: float, heartbeat: float) -> bytes:
        """Its token. Without `expires` the server does not wait for messages."""
        body: dict[str, Any] = {"batch": messages, "expires": round(expires * 1e9), "no_wait": not expires}
        body |= {"max_bytes": max_bytes, "idle_heartbeat": round(heartbeat * 1e9)}
        token = self._pulls.open(messages, max_bytes)
        self._heard_at = trio.current_time()  # without a pull nothing could come
        try:
            self._owner.answer(
                f"{self._api.prefix}.CONSUMER.MSG.NEXT.{self.stream}.{self.consumer}",
                json.dumps({name: value for name, value in body.items() if value}).encode(),
                reply=f"{self._prefix}{token.decode()}",
            )
        except BaseException:
            self._pulls.end(token, None, None)
            raise
        return token

    # A loop

    async def receive(self) -> JetStreamMessage:
        self._is_bulk = False
        self._ask_ahead()
        return await super().receive()

    async def consume(self, handler: Callable[[JetStreamMessage], Awaitable[object]]) -> None:
        """Call this with each message, one at a time, until the subscription is over."""
        async for message in self:
            await handler(message)

    def _check(self) -> None:
        super()._check()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        self._ask_ahead()

    def _missed(self) -> None:
        super()._missed()
        self._pulls.forget()

    def _ask_ahead(self) -> None:
        """Unless enough waits or may come."""
        pulls = self._pulls
        room = self.ahead.room(len(self._waiting) + pulls.messages, self._bytes + pulls.bytes)
        if self._wakes_at < float("inf"):
            if trio.current_time() < self._wakes_at:
                return
            self._wakes_at = float("inf")  # whatever else keeps it from asking: it would wake at once, again and again
        if room is None or self._error is not None or 0 < room[1] <= self._in_vain:
            return
        if self._api.client.is_connected:
            self._pull(*room, EXPIRES, HEARTBEAT)
