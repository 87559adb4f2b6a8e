"""How far what other shards publish has come here, in the store: with the messages, so that none comes twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from trunkline.broker.links.frames import LinkPlace
from trunkline.mqtt.packing import pack, unpack
from trunkline.store import Space

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trunkline.actors import Ref
    from trunkline.broker.committer import Committer
    from trunkline.store import Row, WriteBatch

#: By the number of the other shard.
LINKS: Final = Space("links")


class LinkPlaces:
    owner: Ref[object] | None = None

    def __init__(self, committer: Committer, numbers: dict[int, int]) -> None:
        self._committer = committer
        #: By shard: its term, and the last burst of it that is in the next commit.
        self._changed: dict[int, tuple[int, int]] = {}
        #: By shard: the last of the publications that it sends in its next life, too, if it does not know that they
        #: came.
        self._numbers = numbers

    def is_new(self, shard: int, number: int) -> bool:
        """Whether a publication with this number has not come yet. It has come then."""
        if number <= self._numbers.get(shard, 0):
            return False
        self._numbers[shard] = number
        return True

    def reached(self, shard: int, term: int, number: int, stored: Callable[[], None]) -> None:
        """Calls back when what came up to this burst is stored."""
        self._changed[shard] = term, number
        self._committer.change(self)
        self._committer.after_commit(stored)

    def write(self, batch: WriteBatch) -> None:
        changed, self._changed = self._changed, {}
        for shard, place in changed.items():
            batch.put(LINKS, _key(shard), pack((*place, self._numbers.get(shard, 0))))


def _key(shard: int) -> bytes:
    return shard.to_bytes(2, "big")


class Reached(NamedTuple):
    place: LinkPlace
    #: See `LinkPlaces.is_new`.
    number: int


def places_from(rows: Iterable[Row]) -> dict[int, Reached]:
    return {int.from_bytes(key, "big"): reached_from_bytes(value) for key, value in rows}


def reached_from_bytes(data: bytes) -> Reached:
    term, burst, number = unpack(data)
    return Reached(LinkPlace(term, burst, burst), number)
