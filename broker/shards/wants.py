"""What the sessions of this shard want, as it is told to the other shards: once a turn, what has changed. And which
others want something."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from trunkline.broker.links.frames import LinkRoute
from trunkline.mqtt.session.ledger import all_of
from trunkline.mqtt.topics import SHARE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trunkline.actors import Ref, Scheduler
    from trunkline.broker.routes import Subscriber
    from trunkline.broker.shards.peer import Peer
    from trunkline.router import Router
    from trunkline.router.target import Route

#: Seconds that a client waits for its SUBACK while a shard does not answer.
MAX_WAIT: Final = 1.0


class Wants:
    owner: Ref[Any] | None = None

    def __init__(
        self, router: Router[Subscriber], scheduler: Scheduler, peers: Callable[[], Iterable[Peer]], *, durable: bool
    ) -> None:
        """`durable`: what a session wants may have to be stored."""
        self._router = router
        self._scheduler = scheduler
        self._peers = peers
        self._durable = durable
        self._told: dict[str, LinkRoute] = {}
        self._changed: dict[str, None] = {}

    def begin(self) -> None:
        """Nothing was told yet."""
        for filter, _ in self._router.all():
            self.change(filter)

    def change(self, filter: str) -> None:
        """Its subscribers are other ones, or whether one of them is connected."""
        if not self._changed:
            self._scheduler.at_end(self)
        self._changed[filter] = None

    def of(self, filter: str) -> LinkRoute | None:
        """As it is now."""
        if not filter.startswith(SHARE_PREFIX):
            in_stream = self._router.has_receivers(filter)
            is_wanted = in_stream or self._router.count(filter)
            return LinkRoute(2, self._durable, in_stream=in_stream) if is_wanted else None
        members = self._router.targets(filter)
        if not members:
            return None
        online = sum([member.subscriber.online for member in members])
        return LinkRoute(2, self._durable, online, len(members) - online)

    def end_turn(self) -> None:
        changed, self._changed = self._changed, {}
        for filter in changed:
            route = self.of(filter)
            if route == self._told.get(filter):
                continue
            if route is None:
                del self._told[filter]
            else:
                self._told[filter] = route
            for peer in self._peers():
                peer.set_route(filter, route)

    def when_told(self, action: Callable[[], None]) -> None:
        """Call back when the other shards route by what is wanted now; in a second, if one does not answer."""
        self.end_turn()
        waiting = [peer for peer in self._peers() if peer.is_up]
        if not waiting:
            action()
            return
        timer = self._scheduler.call_at(self._scheduler.now + MAX_WAIT, action)

        def routed() -> None:
            if timer.armed:  # else it was called
                timer.discard()
                action()

        all_of([peer.when_routed for peer in waiting])(routed)


def wanted_at(routes: Iterable[Route[Peer]]) -> tuple[str, ...]:
    """In words, the other shards with sessions or streams for what has these routes, or with members of a group."""
    targets = chain.from_iterable(chain(route.targets, *route.groups) for route in routes)
    return tuple([f"worker {number}" for number in sorted({target.subscriber.number for target in targets})])
