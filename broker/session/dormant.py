"""Stored sessions that nobody has needed since the start: their routes are there and their backlogs, and no actor.

A broker with a hundred thousand sessions is ready in seconds. A session becomes an actor when its client comes, when
somebody looks at it or sends it a message, and when its time is over.
"""

from __future__ import annotations

from heapq import heapify, heappop
from math import inf
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.actors import Scheduler
    from trunkline.broker.backlogs.backlog import Cut, Membership
    from trunkline.broker.backlogs.backlogs import Rejoined
    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.actor import SessionActor

#: Sessions that wake in one turn because their time has come.
WOKEN_AT_ONCE: Final = 20


class Dormant:
    """It is the cursor of its session, until that wakes."""

    __slots__ = ("_wake", "client_id", "number", "rejoined", "subscriber", "wake_up")

    #: Makes it an actor.
    wake_up: Callable[[], SessionActor]

    def __init__(self, client_id: str, number: int, subscriber: Subscriber, wake: Callable[[str], object]) -> None:
        """`wake` takes the session that has this client id up."""
        self.client_id = client_id
        #: Of the session in the store.
        self.number = number
        #: The session as routes know it.
        self.subscriber = subscriber
        subscriber.cast = self._wake_and_cast
        self._wake = wake
        self.rejoined: Rejoined | None = None

    def _wake_and_cast(self, message: Any) -> None:
        self._wake(self.client_id)
        self.subscriber.cast(message)

    @property
    def needed(self) -> int:
        return 0 if self.rejoined is None else self.rejoined.position[0]

    def wake(self, membership: Membership) -> None:
        """No client is there."""

    def shorten(self, cut: Cut | None) -> None:
        self._wake(self.client_id)
        assert self.rejoined is not None
        next(iter(self.rejoined.members.values())).cursor.shorten(cut)


class Dormants:
    """Of one node."""

    def __init__(self, wake: Callable[[str], object]) -> None:
        """`wake` makes a session an actor, if it is none yet."""
        self._wake = wake
        self._dues: list[tuple[float, str]] = []

    def wakes(self, client_id: str, due: float) -> None:
        """The session has something to do then."""
        if due < inf:
            self._dues.append((due, client_id))

    def start(self, scheduler: Scheduler) -> None:
        heapify(self._dues)
        self._wake_in_time(scheduler)

    def _wake_in_time(self, scheduler: Scheduler) -> None:
        if self._dues:
            scheduler.call_at(max(scheduler.now, self._dues[0][0]), self._wake_due, scheduler)

    def _wake_due(self, scheduler: Scheduler) -> None:
        for _ in range(WOKEN_AT_ONCE):
            if not self._dues or self._dues[0][0] > scheduler.now:
                break
            self._wake(heappop(self._dues)[1])
        self._wake_in_time(scheduler)
