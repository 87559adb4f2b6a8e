"""How far what other shards publish has come here, in the store: with the messages, so that none comes twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        #: By shard: its term, and the last burst of it that is in the next commit.
        self._changed: dict[int, tuple[int, int]] = {}

    def reached(self, shard: int, term: int, number: int, stored: Callable[[], None]) -> None:
        """Calls back when what came up to this burst is stored."""
        self._changed[shard] = term, number
        self._committer.change(self)
        self._committer.after_commit(stored)

    def write(self, batch: WriteBatch) -> None:
        changed, self._changed = self._changed, {}
        for shard, place in changed.items():
            batch.put(LINKS, _key(shard), pack(place))


def _key(shard: int) -> bytes:
    return shard.to_bytes(2, "big")


def places_from(rows: Iterable[Row]) -> dict[int, LinkPlace]:
    return {int.from_bytes(key, "big"): place_from_bytes(value) for key, value in rows}


def place_from_bytes(data: bytes) -> LinkPlace:
    term, number = unpack(data)
    return LinkPlace(term, number, number)
