"""A server that answers each packet at once, as a stream without sockets."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

import trio

from trunkline.client.settings import ConnectionSettings
from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from trunkline.mqtt.versions import Version


def well(packet: Packet) -> Sequence[Packet]:
    """What a server without faults answers."""
    match packet:
        case Connect():
            return [Connack(session_present=not packet.clean_start)]
        case Publish(qos=1):
            return [Puback(packet.packet_id)]
        case Publish(qos=2):
            return [Pubrec(packet.packet_id)]
        case Pubrel():
            return [Pubcomp(packet.packet_id)]
        case Subscribe():
            return [Suback(packet.packet_id, [each.qos for each in packet.requests])]
        case Unsubscribe():
            return [Unsuback(packet.packet_id, [0 for _ in packet.filters])]
        case Pingreq():
            return [Pingresp()]
        case _:
            return []


class ScriptedServer(trio.abc.Stream):
    """Pass `open_stream` to a client. All its connections are this one stream, one after another."""

    def __init__(
        self, answer: Callable[[Packet], Sequence[Packet]] = well, before: Callable[[bytes], object] | None = None
    ) -> None:
        """`before` is called with what the client is about to receive."""
        self._answer = answer
        self._before = before
        #: What came from the client.
        self.packets: list[Packet] = []
        self.opened = 0
        #: Bytes that the client gets before the connection is lost, once.
        self.cut_after: int | None = None
        self._begin()

    def _begin(self) -> None:
        self._decoder = Decoder(server=True)
        self._output = deque[bytes]()
        self._lot = trio.lowlevel.ParkingLot()
        self.is_closed = False

    def open_stream(self, settings: ConnectionSettings) -> "ScriptedServer":
        self._begin()
        self.opened += 1
        return self

    def send(self, *packets: Packet) -> None:
        self._output.append(b"".join(encode(packet, Version.V5) for packet in packets))
        self._lot.unpark_all()

    def close(self) -> None:
        self.is_closed = True
        self._lot.unpark_all()

    def names(self) -> list[str]:
        return [type(packet).__name__ for packet in self.packets]

    # For the client

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        if self.is_closed:
            raise trio.BrokenResourceError
        for packet in cast("list[Packet]", self._decoder.feed(bytes(data))):
            self.packets.append(packet)
            if answers := self._answer(packet):
                self.send(*answers)
            if isinstance(packet, Disconnect):
                self.close()
        assert self._decoder.error is None

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        while not self._output:
            if self.is_closed:
                return b""
            await self._lot.park()
        data = self._output.popleft()
        if self.cut_after is not None:
            if self.cut_after < len(data):
                data, self.cut_after = data[: self.cut_after], None
                self._output.clear()
                self.close()
            else:
                self.cut_after -= len(data)
        if self._before is not None:
            self._before(data)
        return data

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()
