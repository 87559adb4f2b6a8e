"""Publications on their way to another shard: all of a turn together."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from trunkline.mqtt.packing import pack, unpack
from trunkline.mqtt.stored_codec import publication_from_bytes, publication_to_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trunkline.mqtt.publication import Publication


class Forwarded(NamedTuple):
    publication: Publication
    #: The shared filter of which a member there gets it; empty: everybody there who wants it does.
    share: str = ""
    #: Shards that have looked for a member in vain.
    tried: tuple[int, ...] = ()
    #: Of the first message, if they are retained: the newest version of a topic is kept, in whatever order they come.
    version: int = 0


def encode_burst(some: Iterable[Forwarded], epoch: float) -> bytes:
    """`epoch` is what has to be added to node time for a time that both shards know."""
    return pack([(publication_to_bytes(publication, epoch), *about) for publication, *about in some])


def decode_burst(data: bytes, epoch: float) -> list[Forwarded]:
    return [
        Forwarded(publication_from_bytes(row, epoch), share, tuple(tried), version)
        for row, share, tried, version in unpack(data)
    ]
