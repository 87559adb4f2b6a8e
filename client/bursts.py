"""Many payloads for one topic as few publications, so that each is encoded and sent as one."""

from __future__ import annotations

from collections.abc import AsyncIterable
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Final

from trunkline.mqtt.frames import property_block, publish_head
from trunkline.mqtt.message import Message
from trunkline.mqtt.properties import NO_PROPERTIES, Properties
from trunkline.mqtt.publication import Publication, PublishBatch
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence

#: Messages of one publication. A window takes parts of it, and each part is a copy.
MAX_BATCH: Final = 256
#: Messages and bytes of payload that make one request; the last one may exceed the bytes.
MAX_SLICE: Final = 4096
MAX_SLICE_BYTES: Final = 1_048_576
#: Payloads that are taken at a time.
_TAKEN: Final = 64
#: Packets of a `PublishBatch` have at most two bytes of length, and one byte for those of topic and properties.
MAX_PACKET: Final = 16_000
MAX_SHORT: Final = 127


async def slices(payloads: Iterable[bytes] | AsyncIterable[bytes]) -> AsyncGenerator[list[bytes], None]:
    """As many payloads at a time as make one request, however many there are. Payloads that must be waited for are not
    held back for others."""
    if isinstance(payloads, AsyncIterable):
        async for payload in payloads:
            yield [payload]
        return
    rest = iter(payloads)
    part: list[bytes] = []
    size = 0
    while some := list(islice(rest, _TAKEN)):
        part += some
        size += sum(map(len, some))
        if len(part) >= MAX_SLICE or size >= MAX_SLICE_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def publications(
    topic: str,
    payloads: Sequence[bytes],
    qos: int,
    retain: bool,
    properties: Properties = NO_PROPERTIES,
    version: Version = Version.V5,
) -> list[Publication]:
    """
    Raises:
        ValueError: MQTT cannot represent the topic or a property.
    """
    found: list[Publication] = []
    block = property_block(properties) if version is Version.V5 else b""
    is_short = len(topic.encode()) <= MAX_SHORT and len(block) <= MAX_SHORT
    for start in range(0, len(payloads), MAX_BATCH):
        some = payloads[start : start + MAX_BATCH]
        if is_short and len(some) > 1 and max(map(len, some)) <= MAX_PACKET:
            found.append(_batch(topic, some, qos, retain, properties, version, block))
        else:
            found += [Message(topic, payload, qos, retain, properties) for payload in some]
    return found


def _batch(
    topic: str,
    payloads: Sequence[bytes],
    qos: int,
    retain: bool,
    properties: Properties,
    version: Version,
    block: bytes,
) -> PublishBatch:
    # the packet ids are written when the packets get a place in the window
    between = b"\0\0" + block if qos else block
    sizes = [len(payload) for payload in payloads]
    starts: Sequence[int]
    if min(sizes) == max(sizes):
        head = publish_head(topic, qos, retain, len(block) + sizes[0]) + between
        wire = head + head.join(payloads)
        starts = range(0, len(wire), len(head) + sizes[0])
    else:
        heads = {size: publish_head(topic, qos, retain, len(block) + size) + between for size in set(sizes)}
        packets = [heads[size] + payload for size, payload in zip(sizes, payloads, strict=True)]
        wire = b"".join(packets)
        starts = list(accumulate(map(len, packets), initial=0))[:-1]
    packet_ids = [0] * len(payloads) if qos else ()
    first_byte = 0x30 | qos << 1 | retain
    return PublishBatch([topic], first_byte, version, wire, starts, packet_ids, properties)
