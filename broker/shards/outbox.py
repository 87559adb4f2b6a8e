"""What this shard must not forget to send to others: it is stored with what has caused it, until they have it.

- Publications that are to come exactly once, and whose publisher does not send them again: each with a number by which
  the other shard knows it when it comes once more.
- Topics whose retained message others may not have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from trunkline.mqtt.packing import pack, unpack
from trunkline.store import Space
from trunkline.store.engine import rows

if TYPE_CHECKING:
    from trunkline.actors import Ref
    from trunkline.broker.committer import Committer
    from trunkline.store import Engine, WriteBatch

#: By the number of the other shard, and that of the publication.
OUTBOX: Final = Space("outbox")
#: By topic: the version of the message, or of its deletion.
SPREADING: Final = Space("spreading")


class Unsent(NamedTuple):
    """What a shard had not sent to others when it ended, as far as it knew."""

    #: Bursts of one publication, by shard and number, in order.
    bursts: list[tuple[int, int, bytes]]
    #: By topic.
    versions: dict[str, int]


class LinkOutbox:
    owner: Ref[object] | None = None

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        #: None: to be deleted.
        self._bursts: dict[bytes, bytes | None] = {}
        self._spreading: dict[str, int] = {}
        #: Topics of it that are to be written.
        self._changed: dict[str, None] = {}

    def keep(self, shard: int, number: int, burst: bytes) -> None:
        self._bursts[_key(shard, number)] = burst
        self._committer.change(self, weight=len(burst))

    def sent(self, shard: int, number: int) -> None:
        """The other shard has it."""
        self._bursts[_key(shard, number)] = None
        self._committer.change(self)

    def spread(self, topic: str, version: int) -> None:
        """All others are to get it."""
        self._spreading[topic] = version
        self._note(topic)

    def has_spread(self, topic: str, version: int) -> bool:
        """All others have it. Returns whether it was the last one of this shard."""
        is_last = self._spreading.get(topic) == version
        if is_last:
            del self._spreading[topic]
            self._note(topic)
        return is_last

    def _note(self, topic: str) -> None:
        self._changed[topic] = None
        self._committer.change(self)

    def write(self, batch: WriteBatch) -> None:
        bursts, self._bursts = self._bursts, {}
        for key, burst in bursts.items():
            if burst is None:
                batch.delete(OUTBOX, key)
            else:
                batch.put(OUTBOX, key, burst)
        changed, self._changed = self._changed, {}
        for topic in changed:
            version = self._spreading.get(topic)
            if version is None:
                batch.delete(SPREADING, topic.encode())
            else:
                batch.put(SPREADING, topic.encode(), pack(version))


def unsent(engine: Engine) -> Unsent:
    bursts = [(*parts_of_key(key), burst) for key, burst in rows(engine, OUTBOX)]
    return Unsent(bursts, {key.decode(): int(unpack(row)) for key, row in rows(engine, SPREADING)})


def _key(shard: int, number: int) -> bytes:
    return shard.to_bytes(2, "big") + number.to_bytes(8, "big")


def parts_of_key(key: bytes) -> tuple[int, int]:
    return int.from_bytes(key[:2], "big"), int.from_bytes(key[2:], "big")
