"""A client that knows nothing but bytes: what a test says to a broker, and what must come back, exactly.

It holds no state of the protocol. Waiting has a limit, so that a broker that says nothing fails the test instead of
holding it up; that nothing comes is shown with a PINGREQ, not with a pause.
"""

import os
from contextlib import suppress
from types import TracebackType
from typing import Self

import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from tests.conformance import raw
from trunkline.broker.node.admin import Admin

#: Seconds that a packet may take. A limit for broken brokers, not a wait.
PATIENCE = float(os.environ.get("CONFORMANCE_PATIENCE", "120"))


class Wire:
    """One end of a connection, spoken by hand."""

    def __init__(self, stream: trio.abc.Stream, *, version: int = 5, patience: float = PATIENCE) -> None:
        self.stream = stream
        #: 4 for 3.1.1 and 5 for 5.0: how packets are written and read.
        self.version = version
        self.patience = patience
        self._buffer = b""

    @classmethod
    async def open(cls, host: str, port: int, *, version: int = 5) -> Self:
        stream = await trio.open_tcp_stream(host, port)
        stream.setsockopt(6, 1, 1)  # TCP_NODELAY, as a real client
        return cls(stream, version=version)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.abort()

    async def abort(self) -> None:
        """Closes without a word, as a network that fails. A broker publishes the will."""
        await trio.aclose_forcefully(self.stream)

    # Sending

    async def send(self, *packets: bytes | str) -> None:
        """Sends packets, bytes or hex, in one go."""
        data = b"".join(bytes.fromhex(packet) if isinstance(packet, str) else packet for packet in packets)
        with trio.fail_after(self.patience):
            await self.stream.send_all(data)

    async def send_drip(self, data: bytes) -> None:
        """Sends byte by byte."""
        with trio.fail_after(self.patience):
            for byte in data:
                await self.stream.send_all(bytes([byte]))

    async def end(self) -> None:
        """Nothing more comes from this side, which still listens. The broker may have closed already."""
        assert isinstance(self.stream, trio.abc.HalfCloseableStream)
        with suppress(trio.BrokenResourceError):
            await self.stream.send_eof()

    # Receiving

    async def receive_bytes(self) -> bytes:
        """One packet, as it came."""
        with trio.fail_after(self.patience):
            while (packet := self._cut()) is None:
                data = await self._read()
                assert data, f"closed instead of a packet (left over: {self._buffer.hex() or 'nothing'})"
                self._buffer += data
        return packet

    async def receive(self) -> raw.Received:
        """One packet, taken apart."""
        return raw.parse(await self.receive_bytes(), self.version)

    async def expect(self, *packets: bytes | str) -> None:
        """The next packets are these, byte by byte."""
        for packet in packets:
            wanted = bytes.fromhex(packet) if isinstance(packet, str) else packet
            got = await self.receive_bytes()
            assert got == wanted, f"expected {wanted.hex(' ')}, got {got.hex(' ')}"

    async def expect_type(self, first: int) -> raw.Received:
        """The next packet is of the type of this first byte, whatever its flags."""
        packet = await self.receive()
        assert packet.type == first & 0xF0, f"expected a packet {first & 0xF0:02x}, got {packet.data.hex(' ')}"
        return packet

    async def expect_nothing(self, after: "Wire | None" = None) -> None:
        """Nothing is on its way to this client; `after` names the one whose packets must have been dealt with."""
        if after is not None:
            await after.ping()
        await self.ping()

    async def ping(self) -> None:
        """Everything sent before has been dealt with, and nothing came but the PINGRESP."""
        await self.send(raw.PINGREQ)
        await self.expect(raw.PINGRESP)

    async def expect_silence(self) -> None:
        """Nothing comes by the time that all is done which waits for nobody: neither a packet nor the close."""
        came: list[bytes] = [self._buffer] if self._buffer else []
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def read() -> None:
                came.append(await self._read())

            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert not came

    async def expect_close(self) -> None:
        """The broker closes, and nothing comes before."""
        with trio.fail_after(self.patience):
            data = self._buffer + await self._read()
        assert not data, f"expected the close, got {data.hex(' ')}"

    async def rest(self) -> bytes:
        """All that comes until the broker closes."""
        with trio.fail_after(self.patience):
            while data := await self._read():
                self._buffer += data
        data, self._buffer = self._buffer, b""
        return data

    async def expect_disconnect(self, *reasons: int) -> raw.Received | None:
        """5.0: DISCONNECT with one of these reasons, then the close. 3.x: the close."""
        packet = None
        if self.version == 5:
            packet = await self.expect_type(raw.DISCONNECT)
            wanted = ", ".join(map(hex, reasons))
            assert packet.reason in reasons, f"expected reason {wanted}, got {packet.data.hex(' ')}"
        await self.expect_close()
        return packet

    # The commonest exchanges

    async def connect(self, client_id: str, **settings: object) -> raw.Received:
        """CONNECT, and a CONNACK of success."""
        await self.send(raw.connect(client_id, version=self.version, **settings))  # type: ignore[arg-type]
        connack = await self.expect_type(raw.CONNACK)
        assert connack.reason == 0, f"refused: {connack.data.hex(' ')}"
        return connack

    async def subscribe(
        self, *filters: str | tuple[str, int], packet_id: int = 1, properties: bytes = b""
    ) -> list[int]:
        """SUBSCRIBE and its SUBACK, whose codes it returns. A filter alone asks for QoS 2."""
        requests = [(filter, 2) if isinstance(filter, str) else filter for filter in filters]
        await self.send(raw.subscribe(packet_id, *requests, properties=properties, version=self.version))
        suback = await self.expect_type(raw.SUBACK)
        assert suback.packet_id == packet_id
        return suback.reasons

    async def publish(
        self,
        topic: str,
        payload: bytes = b"",
        *,
        qos: int = 0,
        packet_id: int | None = None,
        retain: bool = False,
        dup: bool = False,
        properties: bytes = b"",
    ) -> raw.Received | None:
        """PUBLISH, and the whole exchange that its QoS asks for. Returns the last packet of it."""
        if qos and packet_id is None:
            packet_id = 0x7001
        await self.send(
            raw.publish(
                topic,
                payload,
                qos=qos,
                packet_id=packet_id,
                retain=retain,
                dup=dup,
                properties=properties,
                version=self.version,
            )
        )
        if qos == 0:
            return None
        answer = await self.expect_type(raw.PUBACK if qos == 1 else raw.PUBREC)
        assert answer.packet_id == packet_id
        if qos == 2 and answer.reason < 0x80:
            await self.send(raw.ack(raw.PUBREL, answer.packet_id))
            answer = await self.expect_type(raw.PUBCOMP)
            assert answer.packet_id == packet_id
        return answer

    async def expect_publish(self, topic: str, payload: bytes = b"", *, qos: int = 0) -> raw.Received:
        """The next packet is this PUBLISH. It is not acknowledged."""
        packet = await self.expect_type(raw.PUBLISH)
        assert (packet.topic, packet.payload, packet.qos) == (topic, payload, qos), packet.data
        return packet

    async def take_publish(self, topic: str, payload: bytes = b"", *, qos: int = 0) -> raw.Received:
        """The next packet is this PUBLISH, and it is acknowledged to the end."""
        packet = await self.expect_publish(topic, payload, qos=qos)
        await self.acknowledge(packet)
        return packet

    async def acknowledge(self, packet: raw.Received) -> None:
        """All that the QoS of a PUBLISH asks for. No other packet may be on its way if it is QoS 2."""
        if packet.qos == 1:
            await self.send(raw.ack(raw.PUBACK, packet.packet_id))
        elif packet.qos == 2:
            await self.send(raw.ack(raw.PUBREC, packet.packet_id))
            await self.expect(raw.ack(raw.PUBREL, packet.packet_id))
            await self.send(raw.ack(raw.PUBCOMP, packet.packet_id))

    async def disconnect(self, reason: int | None = None, properties: bytes | None = None) -> None:
        """DISCONNECT, and the close that the broker answers with: then it has been dealt with."""
        await self.send(raw.disconnect(reason, properties))
        await self.expect_close()

    async def _read(self) -> bytes:
        # A broker that closes over bytes it has not read resets the connection: a close all the same.
        with suppress(trio.BrokenResourceError):
            return bytes(await self.stream.receive_some(65536))
        return b""

    def _cut(self) -> bytes | None:
        packet, self._buffer = raw.cut(self._buffer)
        return packet


def connect(node: Admin) -> trio.abc.Stream:
    """The client's end of a new connection, without a socket."""
    ours, theirs = memory_stream_pair()
    node.serve(ours)
    return theirs
