"""Which shard gets a message of a shared group: one with members that are online, as long as there is any.

Each shard knows how many members the others have, and there a member is picked. So that each member gets its share,
shards count as often as they have members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

from trunkline.router.shared import ShareStrategy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from trunkline.broker.links.frames import LinkRoute

#: No shard has members.
NOBODY: Final = -1


class SharePicker:
    """Of one group at one shard."""

    __slots__ = ("_chosen", "_next", "_random", "_strategy")

    def __init__(self, strategy: ShareStrategy, random: Random) -> None:
        self._strategy = strategy
        self._random = random
        #: Where the turns of this shard begin is a matter of chance: others do not begin there.
        self._next = random.getrandbits(16)
        self._chosen = NOBODY

    def pick(self, members: Mapping[int, LinkRoute], publisher: str, topic: str) -> int:
        """The number of a shard, or `NOBODY`."""
        numbers = sorted(members)
        counts = [members[number].online for number in numbers]
        if not any(counts):
            counts = [members[number].offline for number in numbers]
        total = sum(counts)
        if not total:
            return NOBODY
        return _PICKERS[self._strategy](self, numbers, counts, total, publisher, topic)

    def _turn(self, numbers: Sequence[int], counts: Sequence[int], total: int, _publisher: str, _topic: str) -> int:
        self._next += 1
        return _at(self._next % total, numbers, counts)

    def _chance(self, numbers: Sequence[int], counts: Sequence[int], total: int, _publisher: str, _topic: str) -> int:
        return _at(self._random.randrange(total), numbers, counts)

    def _stick(self, numbers: Sequence[int], counts: Sequence[int], total: int, publisher: str, topic: str) -> int:
        """The members that publishers of two shards stick to may be different ones."""
        if self._chosen not in numbers or not counts[numbers.index(self._chosen)]:
            self._chosen = self._chance(numbers, counts, total, publisher, topic)
        return self._chosen

    def _client(self, numbers: Sequence[int], counts: Sequence[int], total: int, publisher: str, _topic: str) -> int:
        return _at(crc32(publisher.encode()) % total, numbers, counts)  # all shards agree

    def _topic(self, numbers: Sequence[int], counts: Sequence[int], total: int, _publisher: str, topic: str) -> int:
        return _at(crc32(topic.encode()) % total, numbers, counts)


_PICKERS: Final[dict[ShareStrategy, Callable[[SharePicker, Sequence[int], Sequence[int], int, str, str], int]]] = {
    ShareStrategy.ROUND_ROBIN: SharePicker._turn,  # pyright: ignore[reportPrivateUsage]
    ShareStrategy.RANDOM: SharePicker._chance,  # pyright: ignore[reportPrivateUsage]
    ShareStrategy.STICKY: SharePicker._stick,  # pyright: ignore[reportPrivateUsage]
    ShareStrategy.HASH_CLIENT: SharePicker._client,  # pyright: ignore[reportPrivateUsage]
    ShareStrategy.HASH_TOPIC: SharePicker._topic,  # pyright: ignore[reportPrivateUsage]
}


def _at(place: int, numbers: Sequence[int], counts: Sequence[int]) -> int:
    for number, count in zip(numbers, counts, strict=True):
        place -= count
        if place < 0:
            return number
    raise AssertionError


def all_offline(route: LinkRoute) -> LinkRoute:
    """Nobody knows of members of a shard that is down."""
    return route._replace(online=0, offline=route.online + route.offline)
