"""Finding packets in a row that are alike, so that one object stands for all of them."""

from __future__ import annotations

from struct import iter_unpack, unpack_from
from typing import TYPE_CHECKING, Final

from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.packet_types import PacketType
from trunkline.mqtt.packets import ACKNOWLEDGEMENTS, Acknowledgements, Puback, Pubrec
from trunkline.mqtt.properties import NO_PROPERTIES, Properties
from trunkline.mqtt.property_codec import decode_properties
from trunkline.mqtt.publication import PublishBatch
from trunkline.mqtt.reader import Reader
from trunkline.mqtt.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trunkline.mqtt.publication import Decoded
    from trunkline.mqtt.versions import Version

#: What may stand behind the packet id of an acknowledgement of success, and the reason code that it says.
_SUCCESS: Final = {
    b"": Reason.SUCCESS,
    b"\0": Reason.SUCCESS,
    b"\0\0": Reason.SUCCESS,
    b"\x10": Reason.NO_MATCHING_SUBSCRIBERS,
    b"\x10\0": Reason.NO_MATCHING_SUBSCRIBERS,
}


def gather(
    data: bytes,
    position: int,
    version: Version,
    limit: int,
    known: Mapping[bytes, str],
    packets: list[Decoded],
) -> int:
    """Gather the packets from `position` on that are alike: PUBLISH packets with the same first byte and properties,
    topics of `known` and no more than `limit` bytes, or acknowledgements of success of one kind. (Names in `known` are
    shorter than 256 bytes, and begin with their length.)

    Returns where the next packet begins, or 0 when there are not two to gather.
    """
    first = data[position]
    if first >> 4 == PacketType.PUBLISH:
        return _publishes(data, position, version, limit, known, packets) if first & 6 != 6 and first & 14 != 8 else 0
    if first in ACKNOWLEDGEMENTS:
        return _acknowledgements(data, position, version, packets)
    return 0


def _publishes(
    data: bytes,
    position: int,
    version: Version,
    limit: int,
    known: Mapping[bytes, str],
    packets: list[Decoded],
) -> int:
    size = len(data)
    first = data[position]
    identified = first & 6 != 0
    id_size = 2 if identified else 0
    v5 = version == 5
    headed = data.startswith
    topics: list[str] = []
    starts: list[int] = []
    places: list[int] = []  # of packet identifiers
    properties = NO_PROPERTIES
    block = b"\0" if v5 else b""
    runs = 0
    stop = position
    while stop + 4 <= size and data[stop] == first:
        length = data[stop + 1]
        name = stop + 2
        if length > 127:
            high = data[name]
            name += 1
            length += (high << 7) - 128
            if not 0 < high < 128:
                break
        end = name + length
        if end > size or end - stop > limit:
            break
        place = name + 2 + data[name + 1]
        topic = known.get(data[name:place])
        behind = place + id_size
        if topic is None or behind + v5 > end:
            break
        if v5 and not headed(block, behind):
            if runs or data[behind] > 127:
                break
            block, properties = _properties(data, behind, end, version)
            if not block:
                break
        step = end - stop
        start = stop
        stop = end
        if identified:
            header = data[start:place]
            behind -= start
            while headed(header, stop) and stop + step <= size and headed(block, stop + behind):
                stop += step
        else:
            header = data[start : place + len(block)] if v5 else data[start:place]
            while headed(header, stop) and stop + step <= size:
                stop += step
        runs += 1
        if stop == end:
            topics.append(topic)
            starts.append(start - position)
        else:
            run = range(start - position, stop - position, step)
            topics += [topic] * len(run)
            starts += run
        if identified:
            places += range(place, stop, step)
    count = len(topics)
    packet_ids: list[int] = []
    if identified:
        packet_ids = [data[place] << 8 | data[place + 1] for place in places]
        if 0 in packet_ids:  # the decoder says what is wrong with it
            count = packet_ids.index(0)
            stop = position + starts[count] if count else position
            del topics[count:], starts[count:], packet_ids[count:]
    if count < 2:
        return 0
    where: Sequence[int] = starts
    if runs == 1:
        del topics[1:]
        where = range(0, stop - position, starts[1])
    packets.append(PublishBatch(topics, first, version, data[position:stop], where, packet_ids, properties))
    return stop


def _properties(data: bytes, position: int, end: int, version: Version) -> tuple[bytes, Properties]:
    """The property block at this position and what it says; nothing if it is wrong, which the decoder says."""
    reader = Reader(data, position, end, version)
    try:
        properties = decode_properties(reader, PacketType.PUBLISH)
    except ProtocolError:
        return b"", NO_PROPERTIES
    return data[position : reader.position], properties


def _acknowledgements(data: bytes, position: int, version: Version, packets: list[Decoded]) -> int:
    kind = ACKNOWLEDGEMENTS[data[position]]
    header = data[position : position + 2]
    step = header[1] + 2
    tail = data[position + 4 : position + step]
    reason = _SUCCESS.get(tail)
    if reason is None or step < 4 or (tail and version != 5) or (reason and kind not in (Puback, Pubrec)):
        return 0
    headed = data.startswith
    stop = position
    packet_ids: Sequence[int]
    if tail:
        while headed(header, stop) and headed(tail, stop + 4):
            stop += step
        packet_ids = [packet_id for (packet_id,) in iter_unpack(f">2xH{len(tail)}x", data[position:stop])]
    else:
        while headed(header, stop):
            stop += 4
        if stop > len(data):
            stop -= 4
        packet_ids = unpack_from(f">{(stop - position) // 2}H", data, position)[1::2]
    if 0 in packet_ids:  # as above
        packet_ids = packet_ids[: packet_ids.index(0)]
        stop = position + step * len(packet_ids)
    if len(packet_ids) < 2:
        return 0
    packets.append(Acknowledgements(kind, packet_ids, reason))
    return stop
