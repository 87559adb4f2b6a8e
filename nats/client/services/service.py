"""A service: handlers for requests, in as many tasks as may run at a time, within the block of the service."""

from __future__ import annotations

import json
import logging
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

import trio

from trunkline.nats.client.services.descriptions import (
    DEFAULT_PREFIX,
    DEFAULT_QUEUE,
    EndpointDescription,
    EndpointStatistics,
    ServiceDescription,
    check_group,
    check_group_of_queue,
    check_named,
    frozen,
)
from trunkline.nats.client.services.request import EndpointSubscription, ServiceRequest
from trunkline.nats.client.subscription import BaseSubscription, Subscription
from trunkline.nats.errors import ClientClosed, ConnectionLost, NatsError, ServiceError
from trunkline.nats.protocol.subjects import check_subject

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from trunkline.nats.client.message import Message
    from trunkline.nats.client.receivers import Receivers

    M = TypeVar("M", bound=Message)

    Handler: TypeAlias = Callable[[ServiceRequest], Awaitable[object]]

    class Subscribing(Protocol):
        """What is asked of a client."""

        @property
        def receivers(self) -> Receivers: ...


#: Requests of one endpoint that are handled at a time.
MAX_CONCURRENT: Final = 16

_logger: Final = logging.getLogger("trunkline.nats")


class Endpoint:
    """`service.add_endpoint` makes one."""

    def __init__(self, description: EndpointDescription, handler: Handler, subscription: EndpointSubscription) -> None:
        self.description = description
        self.statistics = EndpointStatistics()
        self._handler = handler
        self.subscription = subscription

    async def handle(self, request: ServiceRequest) -> None:
        """The handler's error is answered, and nobody else's."""
        statistics = self.statistics
        statistics.requests += 1
        began = trio.current_time()
        try:
            await self._handler(request)
        except ServiceError as error:
            self._answer(request, error)
        except Exception:  # it is the user's, and the service goes on; the log alone has what it says
            _logger.exception("the endpoint %s at %s has failed", self.description.name, self.description.subject)
            self._answer(request, ServiceError(500, "internal error"))
        finally:
            statistics.processing += trio.current_time() - began
        if request.error is not None:
            statistics.failed(request.error)

    def _answer(self, request: ServiceRequest, error: ServiceError) -> None:
        request.error = error
        try:
            if request.reply:
                request.respond_error(error.code, error.text)
        except NatsError as problem:
            _logger.warning("the error %s of %s cannot be answered: %s", error, self.description.name, problem)


class Group:
    """Endpoints whose subjects begin alike. `service.add_group` makes one."""

    def __init__(self, service: Service, prefix: str, queue: str | None) -> None:
        self._service = service
        self._prefix = prefix
        self._queue = queue

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
        """At `PREFIX.SUBJECT`, or at the subject if the prefix is empty; otherwise as that of a service."""
        return self._service.add_endpoint(
            name,
            handler,
            subject=_below(self._prefix, subject or name),
            queue=self._queue if queue is None else queue,
            metadata=metadata,
            max_concurrent=max_concurrent,
        )

    def add_group(self, prefix: str, *, queue: str | None = None) -> Group:
        """A group below this one."""
        return self._service.add_group(_below(self._prefix, prefix), queue=self._queue if queue is None else queue)


class Service:
    """`client.service` opens one. Of the instances with one queue group, each request goes to one."""

    def __init__(
        self,
        client: Subscribing,
        name: str,
        version: str,
        *,
        description: str = "",
        metadata: Mapping[str, str] | None = None,
        queue: str = DEFAULT_QUEUE,
        prefix: str = DEFAULT_PREFIX,
        max_concurrent: int = MAX_CONCURRENT,
        stats_handler: Callable[[Endpoint], Any] | None = None,
    ) -> None:
        """An empty `queue` is no queue group: each instance gets each request. `max_concurrent` is how many requests of
        one endpoint are handled at a time. What `stats_handler` returns, as JSON, stands in STATS as the data of the
        endpoint.

        Raises:
            BadService, BadSubject: name, version, queue group or prefix cannot be.
        """
        check_group_of_queue(queue)
        check_subject(prefix)
        _check_concurrent(max_concurrent)
        started = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.description = ServiceDescription(name, version, token_hex(11), started, description, frozen(metadata))
        self.endpoints: list[Endpoint] = []
        self._receivers = client.receivers
        self._queue = queue
        self._prefix = prefix
        self._max_concurrent = max_concurrent
        self._stats_handler = stats_handler
        self._monitors: list[Subscription] = []
        self._nursery: trio.Nursery
        #: Tasks that handle requests.
        self._workers = 0
        self._is_stopping = False
        self._stopped = trio.Event()
        self._failure: NatsError | None = None

    @property
    def id(self) -> str:
        """Of this instance; no other one has it."""
        return self.description.id

    # What it does

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
        """Call this with each request to the subject, which may have wildcards, and is the name if there is none. What
        is None is as for the service; an empty `queue` is no queue group. Servers know of it after `client.flush`.

        A handler that raises `ServiceError` answers with that. Any other error is logged, and answered with the code
        500 and no more than that.

        Raises:
            BadService, BadSubject: name, subject or queue group cannot be.
            NatsError: the service has stopped.
        """
        check_named(name, "an endpoint")
        count = self._max_concurrent if max_concurrent is None else max_concurrent
        _check_concurrent(count)
        if self._is_stopping or self._stopped.is_set():
            raise NatsError(f"the service {self.description.name} has stopped")
        group = self._queue if queue is None else queue
        description = EndpointDescription(name, subject or name, group, frozen(metadata))
        subscription = self._receivers.open(EndpointSubscription, description.subject, queue=group)
        endpoint = Endpoint(description, handler, subscription)
        self.endpoints.append(endpoint)
        self._workers += count
        for _ in range(count):
            self._nursery.start_soon(self._work, endpoint)
        return endpoint

    def add_group(self, prefix: str, *, queue: str | None = None) -> Group:
        """Endpoints whose subjects begin with this, and a dot. An empty one adds nothing to them: such a group has a
        `queue` in common alone.

        Raises:
            BadService, BadSubject: no subject begins with it, or the queue group cannot be.
        """
        check_group(prefix)
        check_group_of_queue(queue or "")
        return Group(self, prefix, queue)

    # What it says

    def info(self) -> dict[str, Any]:
        """As INFO is answered."""
        return self.description.info(endpoint.description.info() for endpoint in self.endpoints)

    def stats(self) -> dict[str, Any]:
        """As STATS is answered."""
        return self.description.stats(self._stats_of(endpoint) for endpoint in self.endpoints)

    def reset(self) -> None:
        """All statistics begin anew."""
        for endpoint in self.endpoints:
            endpoint.statistics = EndpointStatistics()

    def _stats_of(self, endpoint: Endpoint) -> dict[str, Any]:
        data = None
        if self._stats_handler is not None:
            try:
                data = json.loads(json.dumps(self._stats_handler(endpoint)))
            except Exception:  # it is the user's, and STATS says the rest without it
                _logger.exception("stats_handler of the service %s has failed", self.description.name)
        # the specification wants no data where there is none, but nats-py reads no STATS without them
        return endpoint.description.stats(endpoint.statistics) | {"data": data}

    # Life

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Service]:
        """It runs for the length of the block. A block that ends without an error stops it first; any other end cancels
        its handlers. If the client gives up, the block is cancelled, and raises the error.

        Raises:
            ClientClosed: the client is not open.
        """
        error: BaseException | None = None
        async with trio.open_nursery() as self._nursery:
            try:
                self._listen()
                yield self
                await self.stop()
            except BaseException as raised:  # noqa: BLE001  raised behind the nursery, which would put a group around it
                error = raised
            self._nursery.cancel_scope.cancel()
            self._end()
        if self._failure is not None:
            raise self._failure
        if error is not None:
            raise error

    async def stop(self) -> None:
        """Ask for no more requests, and wait until all that have come are handled. Cancelled, it stops all the same. A
        handler cannot wait for that."""
        if not self._is_stopping:
            self._is_stopping = True
            async with trio.open_nursery() as nursery:
                for endpoint in self.endpoints:
                    nursery.start_soon(_drain, endpoint.subscription)
            if not self._workers:
                self._end()
        await self._stopped.wait()

    async def stopped(self) -> None:
        """Wait until it has stopped."""
        await self._stopped.wait()

    def _listen(self) -> None:
        answers = {"PING": self.description.ping, "INFO": self.info, "STATS": self.stats}
        for verb, answer in answers.items():
            for subject in self.description.subjects(self._prefix, verb):
                monitor = self._receivers.open(Subscription, subject)
                self._monitors.append(monitor)
                self._nursery.start_soon(self._monitor, monitor, answer)

    def _end(self) -> None:
        """Nothing is handled any more."""
        self._stopped.set()
        every: list[BaseSubscription[Any]] = [*self._monitors, *(each.subscription for each in self.endpoints)]
        for subscription in every:
            self._receivers.unsubscribe(subscription)

    async def _work(self, endpoint: Endpoint) -> None:
        await self._each(endpoint.subscription, endpoint.handle)
        self._workers -= 1
        if not self._workers:
            self._end()

    async def _monitor(self, subscription: Subscription, answer: Callable[[], dict[str, Any]]) -> None:
        async def say(message: Message) -> None:
            try:
                message.respond(json.dumps(answer()).encode())
            except NatsError as error:  # nobody waits for it, or there is no room
                _logger.warning("the service %s cannot answer %s: %s", self.description.name, message.subject, error)

        await self._each(subscription, say)

    async def _each(self, subscription: BaseSubscription[M], handle: Callable[[M], Awaitable[None]]) -> None:
        try:
            async for message in subscription:
                await handle(message)
        except NatsError as error:  # the client has given up
            self._failure = error
            self._nursery.cancel_scope.cancel()


async def _drain(subscription: EndpointSubscription) -> None:
    with suppress(ConnectionLost, ClientClosed):  # then nothing more comes, either
        await subscription.drain()


def _below(prefix: str, rest: str) -> str:
    """Either may be empty."""
    return f"{prefix}.{rest}" if prefix and rest else prefix or rest


def _check_concurrent(count: int) -> None:
    if count < 1:
        raise ValueError(f"max_concurrent: {count} is no number above 0")
