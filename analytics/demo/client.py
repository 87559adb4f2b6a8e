"""An MQTT 5.0 client as small as simulated devices need it: the codec of the broker itself, over a real socket."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from itertools import cycle
from typing import TYPE_CHECKING, Final

import trio

from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Puback,
    Publish,
    Suback,
    Subscribe,
    SubscriptionRequest,
)
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

#: Seconds for a step of the protocol that somebody waits for.
PATIENCE: Final = 10.0


class Refused(Exception):
    """The broker said no."""

    def __init__(self, what: str, reason: int) -> None:
        super().__init__(f"the broker refused the {what}: 0x{reason:02X}")
        self.reason = reason


class Gone(Exception):
    """There is no connection any more."""


async def _ignore(message: Publish) -> None:
    pass


class Client:
    """One connection. Made by `connected`."""

    def __init__(self, stream: trio.SocketStream, take: Callable[[Publish], Awaitable[None]]) -> None:
        """`take` is given each message before it is acknowledged: who takes its time is a slow consumer."""
        self._stream = stream
        self._take = take
        self._decoder = Decoder(server=False, version=Version.V5)
        self._sending = trio.StrictFIFOLock()
        self._packet_ids = cycle(range(1, 65_536))
        self._answers: dict[int, tuple[trio.Event, list[int]]] = {}
        self._ready = trio.Event()
        self._early: list[Packet] = []
        #: Set when the connection is over, whoever ended it.
        self.over = trio.Event()

    async def publish(self, topic: str, payload: bytes, qos: int = 0, *, retain: bool = False) -> int:
        """At QoS 1 it has been acknowledged when this returns, with the reason: below 0x80 it was taken.

        Raises:
            Gone: the connection is lost.
        """
        packet = Publish(topic, payload, qos, retain)
        if not qos:
            await self._send(packet)
            return 0
        packet.packet_id = next(self._packet_ids)
        return (await self._ask(packet, packet.packet_id))[0]

    async def subscribe(self, *filters: str, qos: int = 0) -> None:
        """
        Raises:
            Gone: the connection is lost.
            Refused: one of the filters is not granted.
        """
        packet_id = next(self._packet_ids)
        requests = [SubscriptionRequest(filter, qos) for filter in filters]
        for reason in await self._ask(Subscribe(packet_id, requests), packet_id):
            if reason >= 0x80:
                raise Refused("subscription", reason)

    async def leave(self) -> None:
        """Say goodbye."""
        await self._send(Disconnect())

    def vanish(self) -> None:
        """Close without a word, as a device does whose power fails."""
        self._stream.socket.close()

    async def _ask(self, packet: Packet, packet_id: int) -> Sequence[int]:
        answered = trio.Event()
        self._answers[packet_id] = (answered, [])
        try:
            await self._send(packet)
            await answered.wait()
            reasons = self._answers[packet_id][1]
        finally:
            del self._answers[packet_id]
        if not reasons:
            raise Gone
        return reasons

    async def _send(self, packet: Packet) -> None:
        if self.over.is_set():
            raise Gone  # a broker that has said goodbye reads on for a while
        try:
            async with self._sending:
                await self._stream.send_all(encode(packet, Version.V5))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise Gone from None

    async def greet(self, hello: Connect) -> None:
        """
        Raises:
            Gone: the broker closed the connection.
            Refused: the broker does not let this client in.
        """
        await self._send(hello)
        packets = await self._receive()
        while packets == []:
            packets = await self._receive()
        if not packets or not isinstance(packets[0], Connack):
            raise Gone
        if packets[0].reason:
            raise Refused("connection", packets[0].reason)
        self._early = packets[1:]

    async def read(self) -> None:
        """Until the connection is over."""
        try:
            packets: list[Packet] | None = self._early
            while packets is not None:
                for packet in packets:
                    await self._handle(packet)
                packets = await self._receive()
        except Gone:
            pass
        finally:
            self.over.set()
            for answered, _ in self._answers.values():
                answered.set()

    async def _receive(self) -> list[Packet] | None:
        """What has come; None at the end."""
        try:
            data = await self._stream.receive_some(65_536)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return None
        if not data:
            return None
        packets = self._decoder.feed(data)
        if self._decoder.error is not None:
            raise Gone
        return packets  # type: ignore[return-value]

    async def _handle(self, packet: Packet) -> None:
        match packet:
            case Publish():
                await self._take(packet)
                if packet.qos:
                    await self._send(Puback(packet.packet_id))
            case Puback(packet_id, reason):
                self._answer(packet_id, [reason])
            case Suback(packet_id, reasons):
                self._answer(packet_id, reasons)
            case _:
                raise Gone  # a goodbye, or what nobody asked for

    def _answer(self, packet_id: int, reasons: list[int]) -> None:
        waiting = self._answers.get(packet_id)
        if waiting is not None:
            waiting[1].extend(reasons)
            waiting[0].set()


@asynccontextmanager
async def connected(
    host: str, port: int, hello: Connect, take: Callable[[Publish], Awaitable[None]] = _ignore
) -> AsyncGenerator[Client]:
    """A client that is connected for the length of a block, and says goodbye at its end.

    Raises:
        Gone: there is no connection, or it was lost and somebody waited for an answer.
        Refused: the broker does not let this client in.
    """
    try:
        with trio.fail_after(PATIENCE):
            stream = await trio.open_tcp_stream(host, port)
    except (OSError, trio.TooSlowError):
        raise Gone from None
    async with stream:
        client = Client(stream, take)
        try:
            with trio.fail_after(PATIENCE):
                await client.greet(hello)
        except trio.TooSlowError:
            raise Gone from None
        failed: Exception | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.read)
            try:
                yield client
            except (Gone, Refused) as error:
                failed = error  # a nursery would make a group of it
            finally:
                with trio.move_on_after(1, shield=True):
                    if not client.over.is_set():
                        with suppress(Gone):
                            await client.leave()
                nursery.cancel_scope.cancel()
        if failed is not None:
            raise failed
