"""The queue of requests as their user sees it: waiting for room in it, and for the server's answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import trio

from trunkline.client.errors import ClientClosed, ClientError, RequestDiscarded, RequestQueueFull
from trunkline.client.outgoing import OutgoingHalf

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.client.limits import WaitingLimits
    from trunkline.client.requests import ClientRequest
    from trunkline.client.running import Runner

#: What becomes of a request for which the queue has no room: it waits (`publish_nowait` is refused), it is refused, or
#: it takes the place of the one that has waited longest.
Overflow: TypeAlias = Literal["wait", "drop_new", "drop_oldest"]

#: Up to so many tasks that publish at QoS 0 write for themselves: together they would wait for the writer's turn.
FEW_TASKS: Final = 4


class AnswerEvent:
    """What a request calls when it is done: an event for those that wait for it, and what it was to call before."""

    __slots__ = ("_before", "event")

    def __init__(self, before: Callable[[], object] | None) -> None:
        self._before = before
        self.event = trio.Event()

    def __call__(self) -> None:
        if self._before is not None:
            self._before()
        self.event.set()


class RequestQueue:
    """The requests of a session's user, whichever connection it has at the time."""

    def __init__(self, limits: WaitingLimits, overflow: Overflow) -> None:
        self._limits = limits
        self.overflow: Final = overflow
        self.outgoing: Final = OutgoingHalf(limits.queued_bytes)
        #: The last connection.
        self.runner: Runner | None = None
        #: Tasks that wait for an answer, or let others have their turn.
        self._answering = 0
        self.is_open = False
        #: Why it is not open any more.
        self.failure: ClientError | None = None
        #: Those who wait for room in the queue.
        self._waiting = trio.lowlevel.ParkingLot()

    def wake(self) -> None:
        """There may be something to send, or room to read."""
        if self.runner is not None:
            self.runner.wake()

    def call_later(self, function: Callable[[], object]) -> None:
        """Call it when the server has answered a PINGREQ, or there is no connection to send one on."""
        if self.runner is None:
            function()
            return
        request = self.runner.connection.ping()
        if request.is_done:
            function()
        else:
            request.on_done = function
            self.wake()

    def open(self) -> None:
        self.is_open = True

    def shut(self, error: ClientError) -> None:
        """Nothing more is sent."""
        self.is_open = False
        self.failure = error
        self.outgoing.fail(error)
        self._waiting.unpark_all()

    def check_open(self) -> None:
        """
        Raises:
            ClientError: nothing can be asked yet, or any more.
        """
        if not self.is_open:
            raise ClientClosed if self.failure is None else self.failure.with_traceback(None)

    async def ask(self, request: ClientRequest) -> int:
        """Queue it, when there is room, and wait for the server's answer."""
        await self.put(request)
        try:
            return await self.answer(request)
        except trio.Cancelled:
            self.abandon(request)
            raise

    async def put(self, request: ClientRequest) -> None:
        """Queue it, when there is room."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self.check_open()
        while self.overflow == "wait" and not self._has_room:
            await self._waiting.park()
            self.check_open()
        self._make_room()
        self.outgoing.add(request)
        if self.runner is None:
            return
        # other tasks ask, too: the writer sends their requests together
        if self.outgoing.in_flight > 1 or self._answering > FEW_TASKS:
            self.runner.wake()
        else:
            self.runner.write_now()

    def put_nowait(self, request: ClientRequest) -> None:
        """Queue it, if there is room.

        Raises:
            RequestQueueFull: there is none.
        """
        if not self.outgoing.queued and not trio.lowlevel.in_trio_run():
            raise RuntimeError("a client of trio is not for other threads: there is trio.from_thread.run_sync")
        if not self.is_open:
            self.check_open()
        if not self._has_room:
            self._make_room()
        self.add(request)
        request.owner = self

    def add(self, request: ClientRequest) -> None:
        """Queue it, even if there is no room."""
        self.outgoing.add(request)
        if self.outgoing.queued <= 1:  # those behind others are sent with them
            self.wake()

    @property
    def _has_room(self) -> bool:
        """Whether a request may be queued. The last one may exceed the bytes: any finds room some day."""
        outgoing, limits = self.outgoing, self._limits
        return outgoing.queued < limits.queued and outgoing.queued_bytes < limits.queued_bytes

    def _make_room(self) -> None:
        if not self._has_room:  # the writer may not have had its turn
            self.outgoing.pump(trio.current_time())
        while not self._has_room:
            text = f"{self.outgoing.queued} requests of {self.outgoing.queued_bytes:,} bytes wait already"
            if self.overflow != "drop_oldest" or not self.outgoing.discard_oldest(RequestDiscarded(text)):
                raise RequestQueueFull(text)

    def sent(self) -> None:
        """Requests have left the queue."""
        if self._waiting and self._has_room:
            self._waiting.unpark(count=self._limits.queued - self.outgoing.queued)

    async def answer(self, request: ClientRequest) -> int:
        """Wait for the server's answer to a request."""
        self._answering += 1
        try:
            if request.is_done:
                await trio.lowlevel.cancel_shielded_checkpoint()
            else:
                done = request.on_done
                if not isinstance(done, AnswerEvent):  # one for all that wait, however often they do
                    request.on_done = done = AnswerEvent(done)
                await done.event.wait()
        finally:
            self._answering -= 1
        if request.error is not None:
            raise request.error.with_traceback(None)  # it may be raised often
        return request.reason

    def abandon(self, request: ClientRequest) -> None:
        """Nobody waits for it any more."""
        self.outgoing.abandon(request)
        self.sent()
