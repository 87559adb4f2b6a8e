"""Many payloads for one topic as few publications, so that each is encoded and sent as one."""

from __future__ import annotations

from collections.abc import AsyncIterable
from itertools import accumulate, islice, repeat
from typing import TYPE_CHECKING, Final, cast

from trunkline.client.checks import each_payload, payload_bytes
from trunkline.mqtt.frames import publish_head
from trunkline.mqtt.message import Message
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.publication import Publication, PublishBatch
from trunkline.mqtt.versions import Version
from trunkline.mqtt.weight import HEAVY, OVERHEAD, text_weight

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence

    from trunkline.mqtt.properties import Properties

#: Messages of one publication.
MAX_BATCH: Final = 256
#: Messages and bytes of payload that make one request; the last one may exceed the bytes.
MAX_SLICE: Final = 4096
MAX_SLICE_BYTES: Final = 1_048_576
#: Payloads that are taken at a time.
_TAKEN: Final = 64
_BYTES: Final = {bytes}
#: Packets of a `PublishBatch` have at most two bytes of length, and one byte for those of topic and properties.
MAX_PACKET: Final = 16_000
MAX_SHORT: Final = 127
#: The block of a message without properties.
NO_BLOCK: Final = b"\0"
#: Payload bytes of a message that may be in a publication of several at QoS 1 and 2: a window takes heavy ones singly.
MAX_NUMBERED: Final = HEAVY - OVERHEAD - 512


async def slices(payloads: Iterable[bytes | str] | AsyncIterable[bytes | str]) -> AsyncGenerator[list[bytes], None]:
    """As many payloads at a time as make one request, however many there are. Payloads that must be waited for are not
    held back for others.

    Raises:
        TypeError: these are no payloads.
    """
    if isinstance(payloads, AsyncIterable):
        async for payload in payloads:
            yield [payload_bytes(payload)]
        return
    rest = iter(each_payload(payloads))
    part: list[bytes] = []
    size = 0
    while taken := list(islice(rest, _TAKEN)):
        some = cast("list[bytes]", taken) if set(map(type, taken)) == _BYTES else [*map(payload_bytes, taken)]
        part += some
        size += sum(map(len, some))
        if len(part) >= MAX_SLICE or size >= MAX_SLICE_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def can_gather(topic: str, block: bytes) -> bool:
    """Whether messages to this topic with this block of properties can be one publication."""
    return len(block) <= MAX_SHORT and text_weight(topic) <= MAX_SHORT


def gathered(
    topics: Sequence[str],
    payloads: Sequence[bytes],
    qos: int,
    retain: bool,
    each: Sequence[Properties] = (),
    blocks: Sequence[bytes] = (NO_BLOCK,),
    version: Version = Version.V5,
) -> Publication:
    """Messages as one publication: to one topic, or to a topic for each; without properties, or `each` has those of
    each, and `blocks` has them encoded: one that all have, or one for each. Those of several can be gathered."""
    if len(payloads) == 1:
        return Message(topics[0], payloads[0], qos, retain, each[0] if each else NO_PROPERTIES)
    if version is not Version.V5:
        each, blocks = (), (b"",)
    common = blocks[0] if len(blocks) == 1 else b""
    bodies = payloads if len(blocks) == 1 else [block + body for block, body in zip(blocks, payloads, strict=True)]
    # the packet ids are written when the packets get a place in the window
    between = b"\0\0" + common if qos else common
    sizes = [len(body) for body in bodies]
    starts: Sequence[int]
    if len(topics) == len(blocks) == 1 and min(sizes) == max(sizes):
        head = publish_head(topics[0], qos, retain, len(common) + sizes[0]) + between
        wire = head + head.join(bodies)
        starts = range(0, len(wire), len(head) + sizes[0])
    else:
        kinds = list(zip(topics if len(topics) > 1 else repeat(topics[0]), sizes, strict=False))
        heads = {
            (topic, size): publish_head(topic, qos, retain, len(common) + size) + between for topic, size in set(kinds)
        }
        packets = [heads[kind] + body for kind, body in zip(kinds, bodies, strict=True)]
        wire = b"".join(packets)
        starts = list(accumulate(map(len, packets), initial=0))[:-1]
    packet_ids = [0] * len(payloads) if qos else ()
    first_byte = 0x30 | qos << 1 | retain
    return PublishBatch(topics, first_byte, version, wire, starts, packet_ids, each=each)
