"""Many payloads for one topic as few publications, so that each is encoded and sent as one."""

from __future__ import annotations

from collections.abc import AsyncIterable
from itertools import accumulate, islice, repeat
from typing import TYPE_CHECKING, Final

from trunkline.mqtt.frames import property_block, publish_head
from trunkline.mqtt.message import Message
from trunkline.mqtt.properties import NO_PROPERTIES, Properties
from trunkline.mqtt.publication import Publication, PublishBatch
from trunkline.mqtt.versions import Version
from trunkline.mqtt.weight import HEAVY, OVERHEAD, text_weight

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence

#: Messages of one publication.
MAX_BATCH: Final = 256
#: Messages and bytes of payload that make one request; the last one may exceed the bytes.
MAX_SLICE: Final = 4096
MAX_SLICE_BYTES: Final = 1_048_576
#: Payloads that are taken at a time.
_TAKEN: Final = 64
#: Packets of a `PublishBatch` have at most two bytes of length, and one byte for those of topic and properties.
MAX_PACKET: Final = 16_000
MAX_SHORT: Final = 127
#: Payload bytes of a message that may be in a publication of several at QoS 1 and 2: a window takes heavy ones singly.
MAX_NUMBERED: Final = HEAVY - OVERHEAD - 512


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


def can_gather(topic: str, properties: Properties) -> bool:
    """Whether messages to this topic can be one publication."""
    return text_weight(topic) <= MAX_SHORT and (not properties or len(property_block(properties)) <= MAX_SHORT)


def gathered(
    topics: Sequence[str],
    payloads: Sequence[bytes],
    qos: int,
    retain: bool,
    properties: Properties = NO_PROPERTIES,
    version: Version = Version.V5,
) -> Publication:
    """Messages as one publication: to one topic, or to a topic for each. Those of several can be gathered."""
    if len(payloads) == 1:
        return Message(topics[0], payloads[0], qos, retain, properties)
    block = property_block(properties) if version is Version.V5 else b""
    # the packet ids are written when the packets get a place in the window
    between = b"\0\0" + block if qos else block
    sizes = [len(payload) for payload in payloads]
    starts: Sequence[int]
    if len(topics) == 1 and min(sizes) == max(sizes):
        head = publish_head(topics[0], qos, retain, len(block) + sizes[0]) + between
        wire = head + head.join(payloads)
        starts = range(0, len(wire), len(head) + sizes[0])
    else:
        kinds = list(zip(topics if len(topics) > 1 else repeat(topics[0]), sizes, strict=False))
        heads = {
            (topic, size): publish_head(topic, qos, retain, len(block) + size) + between for topic, size in set(kinds)
        }
        packets = [heads[kind] + payload for kind, payload in zip(kinds, payloads, strict=True)]
        wire = b"".join(packets)
        starts = list(accumulate(map(len, packets), initial=0))[:-1]
    packet_ids = [0] * len(payloads) if qos else ()
    first_byte = 0x30 | qos << 1 | retain
    return PublishBatch(topics, first_byte, version, wire, starts, packet_ids, properties)
