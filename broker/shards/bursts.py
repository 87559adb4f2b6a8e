"""Publications on their way to another shard: all of a turn together."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

from trunkline.broker.shards.feed_words import FeedMessage
from trunkline.mqtt.packing import pack, unpack
from trunkline.mqtt.stored_codec import publication_from_plain, publication_to_plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trunkline.actors import Scheduler
    from trunkline.mqtt.publication import Publication


class Forwarded(NamedTuple):
    publication: Publication
    #: The shared filter of which a member there gets it; empty: everybody there who wants it does.
    share: str = ""
    #: Shards that have looked for a member in vain.
    tried: tuple[int, ...] = ()
    #: Of the first message, if they are retained: the newest version of a topic is kept, in whatever order they come.
    version: int = 0
    #: Of those that their shard keeps until they came: it may send them again in its next life. Each is greater than
    #: the one before; 0: it does not.
    number: int = 0
    #: It is retained, and nobody gets it.
    is_silent: bool = False
    #: While its shard does not know what the other one wants: the shared filters of which members were picked. Those of
    #: others are picked there; None: all were.
    shared: Sequence[str] | None = None
    #: It is for a subscription to a stream, and for nobody else.
    feed: FeedMessage | None = None


#: What is said of most publications.
_NOTHING: Final = tuple(Forwarded._field_defaults.values())


def pieces(forwarded: Forwarded, size: int, step: int) -> Sequence[Forwarded]:
    """In parts of about equal length where it takes more than so many bytes of memory. One read of tiny messages is
    tens of thousands, each of which may cost something for each session there: other clients come in between.

    `step` is from the version of a message to that of the next."""
    publication, version = forwarded.publication, forwarded.version
    count = publication.count
    if count == 1 or publication.weight <= size:
        return (forwarded,)
    at_once = ceil(count / ceil(publication.weight / size))
    return [
        forwarded._replace(
            publication=publication.part(first, min(first + at_once, count)),
            version=version and version + first * step,
        )
        for first in range(0, count, at_once)
    ]


def encode_burst(some: Iterable[Forwarded], epoch: float) -> bytes:
    """`epoch` is what has to be added to node time for a time that both shards know."""
    return pack([(publication_to_plain(each[0], epoch), *(() if each[1:] == _NOTHING else each[1:])) for each in some])


def decode_burst(data: bytes | memoryview, epoch: float) -> list[Forwarded]:
    found: list[Forwarded] = []
    for plain, *about in unpack(data):
        publication = publication_from_plain(plain, epoch)
        if not about:
            found.append(Forwarded(publication))
            continue
        share, tried, version, number, is_silent, shared, feed = about
        known = None if feed is None else FeedMessage(*feed)
        found.append(Forwarded(publication, share, tuple(tried), version, number, is_silent, shared, known))
    return found


def decoded(burst: bytes | memoryview, epoch: float, scheduler: Scheduler) -> list[Forwarded]:
    """As `decode_burst`; nothing, if nobody can read it: it would be the same if it came again."""
    try:
        return decode_burst(burst, epoch)
    except Exception as error:  # noqa: BLE001 - whoever waits for what follows is not to wait for ever
        scheduler.blame(None, decode_burst, error)
        return []
