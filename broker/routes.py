"""The one writer of the routes.

Subscribing and unsubscribing are requests to it. A request for many filters is handled in slices, and the requests of
other subscribers get their turns in between; those of one subscriber keep their order. An error about one filter
affects that filter alone. Requests that a crashed writer did not finish go to the next one, see `PubSub`.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from trunkline.actors import LATER, Actor, Due, Later
from trunkline.mqtt.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from trunkline.actors import Reply
    from trunkline.mqtt.publication import Publication
    from trunkline.router import Options, RetainedStore, Router

W = TypeVar("W")
R = TypeVar("R")

#: Filters that are handled before other subscribers get their turn.
FILTERS_AT_ONCE: Final = 100

_logger = logging.getLogger("trunkline.routes")


class Subscriber:
    """A session's interface for routes and publishers. It may be on another node: only `cast` is needed."""

    __slots__ = ("cast", "client_id", "durable", "online")

    def __init__(self, client_id: str, cast: Callable[[Any], None], *, durable: bool = False) -> None:
        self.client_id = client_id
        #: Whether what it gets is stored.
        self.durable = durable
        #: Sends the session a message: `(publication, target)` or an answer.
        self.cast = cast
        #: Whether a client is connected. Shared groups prefer such members.
        self.online = False


@dataclass(slots=True, eq=False)
class Queued:
    """To a session that is behind: a publication is kept for it. Sent only if somebody wants to know."""

    publication: Publication


@dataclass(slots=True, eq=False)
class Grant:
    """A subscription that was made."""

    filter: str
    options: Options
    #: Whether the subscription is new.
    fresh: bool
    #: Retained messages with a higher number were published after the subscription was made, and are delivered live.
    since: int


@dataclass(slots=True, eq=False)
class Request(Generic[W, R]):
    """A request to the writer. `done` is called once, whatever happens, with a result or a refusal for each entry."""

    subscriber: Subscriber
    wanted: list[W]
    done: Callable[[list[R | Reason]], None]
    #: In the order of the entries.
    number: int
    #: So far.
    results: list[R | Reason] = field(default_factory=list["R | Reason"], init=False)
    #: Whether a writer crashed while it handled the request.
    lost: bool = field(default=False, init=False)

    def write(self, writer: RouteWriter, wanted: W) -> R | Reason:
        raise NotImplementedError

    def refuse(self) -> None:
        missing = len(self.wanted) - len(self.results)
        self.done([*self.results, *[Reason.UNSPECIFIED_ERROR] * missing])


class MakeRoutes(Request[tuple[str, "Options"], Grant]):
    __slots__ = ()

    def write(self, writer: RouteWriter, wanted: tuple[str, Options]) -> Grant | Reason:
        return writer.make(self.subscriber, *wanted)


class RemoveRoutes(Request[str, bool]):
    """A result is True if the subscription existed."""

    __slots__ = ()

    def write(self, writer: RouteWriter, wanted: str) -> bool:
        return writer.remove(self.subscriber, wanted)


class RouteWriter(Actor[Due]):
    __slots__ = (
        "_has_room",
        "_later",
        "_on_start",
        "_open",
        "_retained",
        "_router",
        "_sweep",
        "_sweep_timer",
        "_watchers",
    )

    def __init__(
        self,
        router: Router[Subscriber],
        retained: RetainedStore,
        has_room: Callable[[], bool],
        on_start: Callable[[RouteWriter], None],
        sweep: Callable[[float], None],
        watchers: Sequence[Callable[[str], None]] = (),
    ) -> None:
        """`has_room` says whether there may be one more subscription. `sweep` deletes expired retained messages,
        a limited number at a time. The `watchers` are told the filter of each route that was made or removed."""
        self._router = router
        self._retained = retained
        self._has_room = has_room
        self._on_start = on_start
        self._sweep = sweep
        self._watchers = watchers
        #: Current requests, and those waiting behind them, by subscriber.
        self._open: dict[Subscriber, deque[tuple[Request[Any, Any], Reply]]] = {}

    def init(self) -> None:
        self._later = Later(self.ref, self.scheduler)
        self._sweep_timer = self.call_at(self._retained.next_deadline, self._sweep_expired)
        self._on_start(self)

    # Requests

    def handle_call(self, request: object) -> object:
        asked = cast("Request[Any, Any]", request)
        behind = self._open.get(asked.subscriber)
        if behind is None and self._work(asked):
            return asked.results
        reply = self.reply_later()
        if behind is not None:
            behind.append((asked, reply))
        else:
            behind = self._open[asked.subscriber] = deque([(asked, reply)])
            slices = self._work_off(asked.subscriber, behind)
            self._later.next_turn(lambda: self._later.in_slices(slices))
        return LATER

    def _work_off(self, subscriber: Subscriber, requests: deque[tuple[Request[Any, Any], Reply]]) -> Iterator[None]:
        """Handle the requests of one subscriber in order. Other subscribers get their turns between two slices."""
        while requests:
            request, reply = requests[0]
            while not self._work(request):
                yield
            requests.popleft()
            reply.send(request.results)
            if requests:
                yield
        del self._open[subscriber]

    def handle(self, message: Due) -> None:
        message.action()

    def _work(self, request: Request[Any, Any]) -> bool:
        """Handle one slice of a request. Returns whether it was the last."""
        first = len(request.results)
        for wanted in request.wanted[first : first + FILTERS_AT_ONCE]:
            try:
                result = request.write(self, wanted)
            except Exception:
                _logger.exception("cannot route %r for client %s", wanted, request.subscriber.client_id)
                result = Reason.UNSPECIFIED_ERROR
            request.results.append(result)
        return len(request.results) == len(request.wanted)

    def make(self, subscriber: Subscriber, filter: str, options: Options) -> Grant | Reason:
        router = self._router
        if not self._has_room() and router.subscription(subscriber, filter) is None:
            return Reason.QUOTA_EXCEEDED
        grant = Grant(filter, options, router.subscribe(subscriber, filter, options), self._retained.sequence)
        for watcher in self._watchers:
            watcher(filter)
        return grant

    def remove(self, subscriber: Subscriber, filter: str) -> bool:
        existed = self._router.unsubscribe(subscriber, filter)
        for watcher in self._watchers:
            watcher(filter)
        return existed

    # Expiry of retained messages

    def sweep_in_time(self) -> None:
        """The store holds a message that expires."""
        if self._retained.next_deadline < self._sweep_timer.deadline:
            self._sweep_timer.restart_at(self._retained.next_deadline)

    def _sweep_expired(self) -> None:
        self._sweep(self.scheduler.now)
        self._sweep_timer.restart_at(self._retained.next_deadline)
