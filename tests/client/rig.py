"""A client's connection without I/O, and the server's end of it: what the client sends, packet by packet, and what it
is given, whole or byte by byte."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

from trunkline.client.authentication import Authenticator
from trunkline.client.connection import ClientConnection
from trunkline.client.outgoing import OutgoingHalf
from trunkline.client.requests import ClientRequest, PublishRequest
from trunkline.client.settings import ConnectionSettings
from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.packets import Connack, Packet, Publish
from trunkline.mqtt.properties import NO_PROPERTIES, Properties
from trunkline.mqtt.session.receiving import Handover, Receiving

#: How the bytes of the server come: all at once, and in pieces of this size.
PIECES = (0, 1, 3)


class Rig:
    def __init__(
        self,
        *,
        pieces: int = 0,
        outgoing: OutgoingHalf | None = None,
        incoming: Receiving | None = None,
        authenticator: Authenticator | None = None,
        resumes: bool = False,
        password: bytes | None = None,
        **settings: Any,
    ) -> None:
        self.now = 0.0
        self.pieces = pieces
        self.outgoing = OutgoingHalf() if outgoing is None else outgoing
        self.incoming = Receiving() if incoming is None else incoming
        self.settings = ConnectionSettings(client_id=settings.pop("client_id", "c"), **settings)
        self.connection = ClientConnection(
            self.settings,
            self.outgoing,
            self.incoming,
            self.now,
            authenticator=authenticator,
            resumes=resumes,
            password=password,
        )
        self._method = None if authenticator is None else authenticator.method
        self._decoder = Decoder(server=True)

    def sent(self) -> list[Packet]:
        """What the client has sent since."""
        packets = cast("list[Packet]", self._decoder.feed(self.connection.take_output(self.now)))
        assert self._decoder.error is None
        return packets

    def feed(self, data: bytes) -> list[Handover]:
        found: list[Handover] = []
        step = self.pieces or max(1, len(data))
        for start in range(0, len(data), step):
            found += self.connection.receive(data[start : start + step], self.now)
        return found

    def give(self, *packets: Packet) -> list[Handover]:
        """Packets of the server come."""
        return self.feed(b"".join(encode(packet, self.settings.version) for packet in packets))

    def open(self, *, session_present: bool = False, properties: Properties = NO_PROPERTIES) -> list[Packet]:
        """CONNECT was sent, CONNACK comes. Returns what the client sends then."""
        self.sent()
        if self._method is not None:
            properties = {**properties, "authentication_method": self._method}
        self.give(Connack(session_present, 0, properties))
        assert self.connection.error is None
        return self.sent()

    def again(self, *, session_present: bool = True, pieces: int = 0, **settings: Any) -> "Rig":
        """The connection is lost, and there is another one of the same session."""
        self.connection.receive(b"", self.now)
        return Rig(outgoing=self.outgoing, incoming=self.incoming, resumes=True, pieces=pieces, **settings)

    def publish(self, topic: str = "t", payload: bytes = b"", qos: int = 0, **fields: Any) -> PublishRequest:
        request = PublishRequest(topic, (payload,), qos, **fields)
        self.add(request)
        return request

    def add(self, request: ClientRequest) -> None:
        self.outgoing.add(request)
        self.outgoing.pump(self.now)


def publish(topic: str = "t", payload: bytes = b"", qos: int = 0, packet_id: int = 0, **fields: Any) -> Publish:
    """As a server sends it."""
    dup = fields.pop("dup", False)
    packet = Publish(topic, payload, qos, **fields)
    packet.packet_id, packet.dup = packet_id, dup
    return packet


def shown(packets: Sequence[Packet]) -> list[str]:
    """Packets in short: `PUBLISH 1 dup`, `PUBACK 1`."""

    def parts(packet: Packet) -> Iterator[str]:
        yield type(packet).__name__.upper()
        if packet_id := getattr(packet, "packet_id", 0):
            yield str(packet_id)
        if reason := getattr(packet, "reason", 0):
            yield hex(reason)
        if getattr(packet, "dup", False):
            yield "dup"

    return [" ".join(parts(packet)) for packet in packets]


def payloads(handovers: Sequence[Handover]) -> list[bytes]:
    return [message.payload for handover in handovers for message in handover.publication.messages]


def acknowledge(handover: Handover, *numbers: int) -> None:
    """Some messages, or all."""
    done = handover.accept
    assert done is not None
    for number in numbers or range(handover.publication.count):
        done(number)
