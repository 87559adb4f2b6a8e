"""Services for any thread: handlers are plain functions, and run in threads. Where nothing else is said, they do and
raise what those of `trunkline.nats.client.services` do."""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, Self

import trio

from trunkline.actors.answer import Answer
from trunkline.nats.errors import ClientClosed
from trunkline.nats.sync.messages import Message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType
    from typing import TypeAlias

    from trunkline.actors.context_thread import ContextThread
    from trunkline.nats.client.services.request import ServiceRequest as TrioRequest
    from trunkline.nats.client.services.service import Endpoint
    from trunkline.nats.client.services.service import Group as TrioGroup
    from trunkline.nats.client.services.service import Service as TrioService
    from trunkline.nats.errors import ServiceError
    from trunkline.nats.protocol.headers import Headers

    Handler: TypeAlias = Callable[["ServiceRequest"], object]


class ServiceRequest(Message):
    """Answered by `respond` or `respond_error`, once or more often, or not at all."""

    __slots__ = ()

    _message: TrioRequest

    @property
    def error(self) -> ServiceError | None:
        """What it was answered with last, if that was an error."""
        return self._message.error

    def respond_error(
        self,
        code: int,
        text: str,
        payload: bytes = b"",
        *,
        headers: Headers | Mapping[str, str] | None = None,
    ) -> None:
        """Answer with an error: a number, which is often one of HTTP, and a text for people. To raise `ServiceError` in
        a handler does the same. Raises as `respond` does."""
        self._thread.call(self._message.respond_error, code, text, payload, headers=headers)


class _Endpoints:
    """What services and groups share."""

    def __init__(self, endpoints: TrioService | TrioGroup, thread: ContextThread) -> None:
        self._endpoints = endpoints
        self._thread = thread

    def add_endpoint(
        self,
        name: str,
        handler: Handler,
        *,
        subject: str = "",
        queue: str | None = None,
        metadata: Mapping[str, str] | None = None,
        max_concurrent: int | None = None,
    ) -> Endpoint:
        """Call this with each request, in as many threads as `max_concurrent` says. It may use the client, and wait for
        it."""
        return self._thread.call(
            self._endpoints.add_endpoint,
            name,
            _threaded(handler, self._thread),
            subject=subject,
            queue=queue,
            metadata=metadata,
            max_concurrent=max_concurrent,
        )

    def add_group(self, prefix: str, *, queue: str | None = None) -> Group:
        """Endpoints whose subjects begin with this, and a dot."""
        return Group(self._endpoints.add_group(prefix, queue=queue), self._thread)


def _threaded(handler: Handler, thread: ContextThread) -> Callable[[TrioRequest], Awaitable[None]]:
    # the service has limited them, and trio's own limiter is shared with everything in its run
    limiter = trio.CapacityLimiter(inf)

    async def handle(request: TrioRequest) -> None:
        # otherwise a handler that waits for the client would hold up the end of both
        await trio.to_thread.run_sync(handler, ServiceRequest(request, thread), limiter=limiter, abandon_on_cancel=True)

    return handle


class Group(_Endpoints):
    """Endpoints whose subjects begin alike. `service.add_group` makes one."""


class Service(_Endpoints):
    """`client.service` opens one. The end of its block (`with`) stops it, and waits until all requests that have come
    are handled. If the block raises, it ends at once: what handlers still do is not waited for."""

    _endpoints: TrioService

    def __init__(self, opening: AbstractAsyncContextManager[TrioService], thread: ContextThread) -> None:
        self._opened = Answer["TrioService"]()
        # its block is that of one task, as it has tasks itself
        self._ended, self._cancel = thread.opened.submit(self._live, opening)
        self._ended.add_callback(lambda: self._opened.set_exception(self._ended.exception() or ClientClosed()))
        super().__init__(self._opened.result(), thread)

    async def _live(self, opening: AbstractAsyncContextManager[TrioService]) -> None:
        async with opening as service:
            self._opened.set_result(service)
            await service.stopped()

    @property
    def id(self) -> str:
        """Of this instance; no other one has it."""
        return self._endpoints.id

    def info(self) -> dict[str, Any]:
        """As INFO is answered."""
        return self._thread.call(self._endpoints.info)

    def stats(self) -> dict[str, Any]:
        """As STATS is answered."""
        return self._thread.call(self._endpoints.stats)

    def reset(self) -> None:
        """All statistics begin anew."""
        self._thread.call(self._endpoints.reset)

    def stop(self, *, timeout: float | None = None) -> None:
        """Ask for no more requests, and wait until all that have come are handled. It stops also when the time for that
        is over. A handler cannot wait for that."""
        self._thread.run(timeout, self._endpoints.stop)

    def stopped(self, *, timeout: float | None = None) -> None:
        """Wait until it has stopped."""
        self._thread.run(timeout, self._endpoints.stopped)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """
        Raises:
            NatsError: the client has given up.
        """
        if error is not None:
            self._cancel()
            with suppress(Exception):
                self._ended.exception()
            return
        try:
            with suppress(ClientClosed):
                self.stop()
        except BaseException:  # an interrupt: wait for handlers no longer
            self._cancel()
            raise
        with suppress(ClientClosed):
            self._ended.result()
