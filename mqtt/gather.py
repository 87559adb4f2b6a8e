"""Finding packets in a row that are alike, so that one object stands for all of them."""

from struct import unpack_from
from typing import TYPE_CHECKING

from trunkline.mqtt.batch import Acknowledgements, Decoded, PublishBatch
from trunkline.mqtt.packets import Acknowledgement
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def gather_publishes(
    data: bytes,
    position: int,
    version: Version,
    limit: int,
    known: "Mapping[bytes, str]",
    packets: list[Decoded],
) -> int:
    """Gather the PUBLISH packets from `position` on that have the same first byte, a topic of `known`, no properties and
    no more than `limit` bytes. (Names in `known` are shorter than 256 bytes, and begin with their length.)

    Returns where the next packet begins, or 0 when there are not two to gather.
    """
    size = len(data)
    first = data[position]
    identified = first > 0x31
    v5 = version == 5
    behind_name = 2 * identified + v5
    headed = data.startswith
    topics: list[str] = []
    starts: list[int] = []
    places: list[int] = []  # of packet identifiers
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
        # A byte that has to be 0: no properties; in 3.x the high byte of the name's length, which is.
        zero = place + behind_name - 1 if v5 else name
        if topic is None or place + behind_name > end or data[zero]:
            break
        step = end - stop
        zero -= stop
        header = data[stop:place]
        start, stop = stop, end
        while headed(header, stop) and stop + step <= size and not data[stop + zero]:
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
    packets.append(PublishBatch(topics, first >> 1 & 3, version, data[position:stop], where, packet_ids))
    return stop


def gather_acknowledgements(
    data: bytes,
    position: int,
    kind: type[Acknowledgement],
    packets: list[Decoded],
) -> int:
    """Gather the acknowledgements of success of this kind from `position` on. Returns where the next packet begins, or
    0 when there are not two to gather."""
    header = data[position : position + 2]
    headed = data.startswith
    stop = position
    while headed(header, stop):
        stop += 4
    if stop > len(data):
        stop -= 4
    packet_ids: Sequence[int] = unpack_from(f">{(stop - position) // 2}H", data, position)[1::2]
    if 0 in packet_ids:  # as above
        packet_ids = packet_ids[: packet_ids.index(0)]
        stop = position + 4 * len(packet_ids)
    if len(packet_ids) < 2:
        return 0
    packets.append(Acknowledgements(kind, packet_ids))
    return stop
