"""Publishers of this shard that are not read from because of another one: it has no room for more, or a subscriber
there reads slowly (see `trunkline.broker.session.slow_consumer`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.links.frames import HoldPublisher, ReleasePublisher


class Publishers(Protocol):
    """The clients that publish at a shard."""

    @property
    def hold_publisher(self) -> Callable[[str, object, bool], bool]: ...
    @property
    def release_publisher(self) -> Callable[[str, object, float], None]: ...


class HeldPublishers:
    """For one other shard."""

    __slots__ = ("_for_room", "_for_subscribers", "_publishers", "_shard")

    def __init__(self, shard: int, publishers: Publishers) -> None:
        self._shard = shard
        self._publishers = publishers
        self._for_room: dict[str, None] = {}
        #: With the subscribers.
        self._for_subscribers: dict[tuple[str, int], None] = {}

    def __len__(self) -> int:
        return len(self._for_room) + len(self._for_subscribers)

    def for_room(self, client_id: str) -> None:
        if client_id not in self._for_room and self._publishers.hold_publisher(client_id, self, True):
            self._for_room[client_id] = None

    def has_room(self) -> None:
        """Those that wait for it go on."""
        held, self._for_room = self._for_room, {}
        for client_id in held:
            self._publishers.release_publisher(client_id, self, 0.0)

    def hold(self, asked: HoldPublisher) -> None:
        if self._publishers.hold_publisher(asked.client_id, (self._shard, asked.holder), asked.is_trusted):
            self._for_subscribers[asked.client_id, asked.holder] = None

    def release(self, asked: ReleasePublisher) -> None:
        self._release(asked.client_id, asked.holder, asked.in_vain)

    def lost(self) -> None:
        """Nobody there can ask any more."""
        for client_id, holder in list(self._for_subscribers):
            self._release(client_id, holder, 0.0)

    def _release(self, client_id: str, holder: int, in_vain: float) -> None:
        if (client_id, holder) in self._for_subscribers:
            del self._for_subscribers[client_id, holder]
            self._publishers.release_publisher(client_id, (self._shard, holder), in_vain)
