"""What the codec tests share: bytes in hex, packets that can be compared."""

from collections.abc import Iterable
from dataclasses import asdict

from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.packets import Acknowledgements, Connect, Packet, Publish
from trunkline.mqtt.publication import Decoded, PublishBatch
from trunkline.mqtt.versions import Version

V31, V311, V5 = Version
CONNECT = {
    V31: "10 0f 0006 4d5149736470 03 02 0000 0001 63",
    V311: "10 0d 0004 4d515454 04 02 0000 0001 63",
    V5: "10 0e 0004 4d515454 05 02 0000 00 0001 63",
}


def wire(text: str) -> bytes:
    return bytes.fromhex(text)


def same(one: object, other: object) -> bool:
    """Whether two packets say the same. A Publish is only equal to itself, so its fields are compared, without what
    is made from them."""
    if isinstance(one, Publish) and isinstance(other, Publish):
        derived = ("wire3", "wire5", "frames")
        return {name: value for name, value in asdict(one).items() if name not in derived} == {
            name: value for name, value in asdict(other).items() if name not in derived
        }
    return type(one) is type(other) and one == other


def all_same(ones: list[Packet], others: list[Packet]) -> bool:
    return len(ones) == len(others) and all(same(one, other) for one, other in zip(ones, others, strict=True))


def unfolded(packets: Iterable[Decoded]) -> list[Packet]:
    """The packets of a decoder that `gathers`, one by one."""
    single = list[Packet]()
    for packet in packets:
        if isinstance(packet, PublishBatch):
            single += packet.messages
        elif isinstance(packet, Acknowledgements):
            single += [packet.kind(packet_id, packet.reason) for packet_id in packet.packet_ids]
        else:
            single.append(packet)
    return single


def decoder_for(version: Version, server: bool = True, first: bool = False) -> Decoder:
    """One that has its CONNECT behind it, unless it is to be the `first` packet."""
    return Decoder(server=server, version=None if first else version)


def refusal(data: bytes | str, version: Version, server: bool = True, first: bool = False) -> ProtocolError:
    """The error that these bytes are answered with; they must not yield a packet."""
    decoder = decoder_for(version, server, first)
    packets = decoder.feed(wire(data) if isinstance(data, str) else data)
    assert packets == []
    assert decoder.error is not None, "nothing was refused"
    return decoder.error


def accepted(data: bytes | str, version: Version, server: bool = True, first: bool = False) -> Packet:
    """The one packet that these bytes are."""
    decoder = decoder_for(version, server, first)
    packets = decoder.feed(wire(data) if isinstance(data, str) else data)
    assert decoder.error is None
    assert decoder.buffered == 0
    [packet] = packets
    return packet


def encoded(packet: Packet, version: Version) -> bytes:
    return encode(packet, version)


def is_first(packet: Packet) -> bool:
    return isinstance(packet, Connect)
