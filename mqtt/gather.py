"""Finding packets in a row that are alike, so that one object stands for all of them."""

from __future__ import annotations

from struct import iter_unpack, unpack, unpack_from
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

#: Packets in a row after which many are looked at together.
MANY: Final = 128
_BYTES: Final = [bytes([byte]) for byte in range(256)]
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
    alone = range(0)  # the first run, which is the only one of most reads
    topics: list[str] = []
    starts: list[int] = []
    packet_ids: list[int] = []
    properties = NO_PROPERTIES
    block = b"\0" if v5 else b""
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
        if topic is None or behind + len(block) > end:
            break
        if v5 and not headed(block, behind):
            if topics or data[behind] > 127:
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
            if headed(header, stop):
                many = end + MANY * step
                while stop + step <= size and headed(block, stop + behind):
                    stop += step
                    if stop == many:
                        stop = _end_of_long_run(data, stop, step, [*enumerate(header), *enumerate(block, behind)])
                        break
                    if not headed(header, stop):
                        break
            if stop == end:
                packet_ids.append(data[place] << 8 | data[place + 1])
            else:
                packet_ids += _numbers(data, place, stop, step)
        else:
            header = data[start : place + len(block)] if v5 else data[start:place]
            if headed(header, stop):
                many = end + MANY * step
                while stop + step <= size:
                    stop += step
                    if stop == many:
                        stop = _end_of_long_run(data, stop, step, [*enumerate(header)])
                        break
                    if not headed(header, stop):
                        break
        if alone:
            topics *= len(alone)
            starts += alone
            alone = range(0)
        if stop == end:
            topics.append(topic)
            starts.append(start - position)
        else:
            run = range(start - position, stop - position, step)
            if starts:
                topics += [topic] * len(run)
                starts += run
            else:
                topics.append(topic)
                alone = run
    where: Sequence[int] = alone or starts
    if 0 in packet_ids:  # the decoder says what is wrong with it
        count = packet_ids.index(0)
        stop = position + where[count]
        where = where[:count]
        del packet_ids[count:]
        if not alone:
            del topics[count:]
    if len(where) < 2:
        return 0
    packets.append(PublishBatch(topics, first, version, data[position:stop], where, packet_ids, properties))
    return stop


def _end_of_long_run(data: bytes, stop: int, step: int, alike: list[tuple[int, int]]) -> int:
    """Where the packets end that are alike in these bytes at these places: from `stop` on, place by place, of ever more
    packets at once."""
    count = MANY
    while count:
        seen = count = min(2 * count, (len(data) - stop) // step)
        for place, byte in alike:
            column = data[stop + place : stop + count * step : step]
            same = _BYTES[byte]
            if column != same * count:
                count -= len(column.lstrip(same))
        stop += count * step
        if count < seen:
            break
    return stop


def _numbers(data: bytes, place: int, stop: int, step: int) -> tuple[int, ...]:
    """Of two bytes each: the one there, and others a step apart."""
    high = data[place:stop:step]
    both = bytearray(2 * len(high))
    both[::2], both[1::2] = high, data[place + 1 : stop : step]
    return unpack(f">{len(high)}H", both)


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
