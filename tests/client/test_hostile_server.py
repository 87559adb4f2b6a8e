"""Servers that lie: each ends in a clear error, and none in a traceback, a wait without end, or memory without limit.

`THOROUGH=20 pytest tests/client/test_hostile_server.py` tries twenty times as many examples.
"""

import hashlib
import os
from base64 import b64encode
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.hostile import MAX_PACKET_SIZE, RECEIVE_MAXIMUM, check, rig_of
from tests.client.rig import PIECES, publish
from trunkline.client.client import Client
from trunkline.client.errors import ClientError, ConnectFailed, Disconnected
from trunkline.client.settings import ConnectionSettings
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.packets import (
    Auth,
    Connack,
    Disconnect,
    Packet,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Unsuback,
)
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from trunkline.mqtt.properties import Properties

EXAMPLES = 200 * int(os.environ.get("THOROUGH", "1"))
VERSIONS = st.sampled_from(["5.0", "3.1.1", "3.1"])
#: Packet ids of the requests of `rig_of`, of its SUBSCRIBE and UNSUBSCRIBE, and others.
IDS = st.sampled_from([1, 2, 3, 64_512, 64_513, 65_535])

# Anything at any moment


@settings(max_examples=EXAMPLES)
@given(version=VERSIONS, is_open=st.booleans(), pieces=st.lists(st.binary(max_size=30), max_size=10))
def test_random_bytes(version: str, is_open: bool, pieces: list[bytes]) -> None:
    check(rig_of(version, is_open=is_open), pieces)


def published(v5: bool, topic: str, payload: bytes, qos: int, packet_id: int, dup: bool, alias: int) -> Publish:
    properties: Properties = {"topic_alias": alias} if alias and v5 else {}
    return publish(topic, payload, qos, packet_id if qos else 0, dup=dup and qos > 0, properties=properties)


def authenticating(reason: int, method: str, data: bytes) -> Auth:
    return Auth(reason, {"authentication_method": method, "authentication_data": data})


def packets(version: str) -> st.SearchStrategy[Packet]:
    v5 = version == "5.0"
    small = st.binary(max_size=3)
    method: st.SearchStrategy[str] = st.sampled_from(["echo", "other"])
    common: list[st.SearchStrategy[Packet]] = [
        st.builds(Connack, st.booleans(), st.sampled_from([0, 0, 0, 0x87 if v5 else 5])),
        st.builds(
            partial(published, v5),
            st.sampled_from(["t", "u", "a/b"]),
            small,
            st.integers(0, 2),
            IDS,
            st.booleans(),
            st.sampled_from([0, 0, 1, 2, 3]),
        ),
        *(st.builds(kind, IDS) for kind in (Puback, Pubrec, Pubrel, Pubcomp)),
        st.builds(Suback, IDS, st.lists(st.sampled_from([0, 1, 2, 0x80]), min_size=1, max_size=3)),
        st.builds(Unsuback, IDS, st.lists(st.just(0), min_size=2, max_size=3) if v5 else st.just([])),
        st.builds(Pingresp),
    ]
    if v5:
        common += [
            st.builds(Disconnect, st.sampled_from([0, 0x8B, 0x8E])),
            st.builds(
                authenticating,
                st.sampled_from([0, 0x18]),
                method,
                small,
            ),
        ]
    return st.one_of(common)


@settings(max_examples=EXAMPLES)
@given(data=st.data(), version=VERSIONS, is_open=st.booleans(), authenticates=st.booleans())
def test_any_packets_in_any_order(data: st.DataObject, version: str, is_open: bool, authenticates: bool) -> None:
    rig = rig_of(version, is_open=is_open, authenticates=authenticates)
    some = data.draw(st.lists(packets(version), max_size=12))
    wires = [encode(packet, rig.settings.version) for packet in some]
    check(rig, [b"".join(wires)] if data.draw(st.booleans()) else wires)


# Each lie by its clause


LIES: dict[str, tuple[bool, list[Packet], int]] = {
    "PUBLISH before CONNACK [MQTT-3.2.0-1]": (False, [publish()], Reason.PROTOCOL_ERROR),
    "PUBACK before CONNACK": (False, [Puback(1)], Reason.PROTOCOL_ERROR),
    "SUBACK before CONNACK": (False, [Suback(64_512, [0])], Reason.PROTOCOL_ERROR),
    "PINGRESP before CONNACK": (False, [Pingresp()], Reason.PROTOCOL_ERROR),
    "CONNACK twice [MQTT-3.2.0-2]": (True, [Connack()], Reason.PROTOCOL_ERROR),
    "a session after a clean start [MQTT-3.2.2-2]": (False, [Connack(True)], Reason.PROTOCOL_ERROR),
    "AUTH unasked [MQTT-4.12.0-6]": (True, [Auth(0x18, {"authentication_method": "x"})], Reason.PROTOCOL_ERROR),
    "SUBACK with too few codes [MQTT-3.9.3-1]": (True, [Suback(64_512, [0])], Reason.PROTOCOL_ERROR),
    "SUBACK with too many codes": (True, [Suback(64_512, [0, 0, 0])], Reason.PROTOCOL_ERROR),
    "SUBACK of nothing": (True, [Suback(1, [0])], Reason.PROTOCOL_ERROR),
    "SUBACK of an UNSUBSCRIBE": (True, [Suback(64_513, [0, 0])], Reason.PROTOCOL_ERROR),
    "UNSUBACK with too few codes [MQTT-3.11.3-1]": (True, [Unsuback(64_513, [0])], Reason.PROTOCOL_ERROR),
    "UNSUBACK of a SUBSCRIBE": (True, [Unsuback(64_512, [0, 0])], Reason.PROTOCOL_ERROR),
    "PUBREC of QoS 1": (True, [Pubrec(1)], Reason.PROTOCOL_ERROR),
    "PUBACK of QoS 2": (True, [Puback(2)], Reason.PROTOCOL_ERROR),
    "PUBCOMP before PUBREC": (True, [Pubcomp(2)], Reason.PROTOCOL_ERROR),
    "more than the receive maximum [MQTT-3.3.4-9]": (
        True,
        [publish(qos=1, packet_id=number) for number in range(1, RECEIVE_MAXIMUM + 2)],
        Reason.RECEIVE_MAXIMUM_EXCEEDED,
    ),
    "an alias beyond the maximum [MQTT-3.1.2-26]": (
        True,
        [publish(properties={"topic_alias": 3})],
        Reason.TOPIC_ALIAS_INVALID,
    ),
    "an alias that was not set": (True, [publish("", properties={"topic_alias": 1})], Reason.PROTOCOL_ERROR),
    "a topic with a wildcard [MQTT-3.3.2-2]": (True, [publish("a/+")], Reason.MALFORMED_PACKET),
    "a packet that is too large [MQTT-3.1.2-24]": (
        True,
        [publish(payload=bytes(MAX_PACKET_SIZE))],
        Reason.PACKET_TOO_LARGE,
    ),
}


@pytest.mark.parametrize("pieces", PIECES)
@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_answered_with_its_reason(lie: str, pieces: int) -> None:
    is_open, wrong, reason = LIES[lie]
    rig = rig_of(is_open=is_open)
    rig.pieces = pieces
    rig.sent()
    rig.give(*wrong)
    assert isinstance(rig.connection.error, Disconnected | ConnectFailed)
    assert "the server broke the protocol" in str(rig.connection.error)
    assert rig.sent()[-1] == Disconnect(reason)


def test_late_acknowledgements_are_no_lies() -> None:
    """Those of a connection before, or of a message that the user has given up."""
    rig = rig_of()
    rig.give(Puback(9), Pubcomp(9), Pubrec(9), Pubrel(9))
    assert rig.connection.error is None
    sent = [type(packet) for packet in rig.sent()]
    assert sent == [Pubrel, Pubcomp]


def test_what_is_announced_takes_no_memory() -> None:
    rig = rig_of()
    rig.feed(b"\x30\xff\xff\xff\x7f")
    assert "bytes" in str(rig.connection.error)
    rig = rig_of("3.1.1")
    rig.feed(b"\x30\xe0\x07" + bytes(500))
    assert rig.connection.error is None


# Over a network


Server = Callable[[trio.SocketStream], Awaitable[None]]


async def lied_to(server: Server, url: str = "mqtt", **options: Any) -> ClientError:
    """The error of a client that meets this server."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            with suppress(trio.BrokenResourceError):
                await server(stream)

    found: list[ClientError] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        settings = ConnectionSettings.from_url(f"{url}://127.0.0.1:{port}", **options)
        with trio.fail_after(20):
            try:
                async with Client(settings):
                    await trio.sleep_forever()
            except ClientError as error:
                found.append(error)
        nursery.cancel_scope.cancel()
    return found[0]


async def test_a_server_that_is_silent() -> None:
    async def server(stream: trio.SocketStream) -> None:
        while await stream.receive_some():
            pass

    error = await lied_to(server, connect_timeout=0.1)
    assert isinstance(error, ConnectFailed)
    assert "did not answer within 0.1 s" in str(error)


async def test_a_server_that_sends_a_byte_at_a_time() -> None:
    """The time for a connection is limited as a whole."""
    packet = encode(Connack(False, 0, {"reason_string": "x" * 1000}), Version.V5)

    async def server(stream: trio.SocketStream) -> None:
        for number in range(len(packet)):
            await stream.send_all(packet[number : number + 1])
            await trio.sleep(0.01)

    error = await lied_to(server, connect_timeout=0.2)
    assert isinstance(error, ConnectFailed)


@pytest.mark.parametrize("packet", [Connack(), publish(payload=b"half")])
async def test_a_server_that_closes_in_the_middle_of_a_packet(packet: Packet) -> None:
    async def server(stream: trio.SocketStream) -> None:
        if isinstance(packet, Publish):
            await stream.send_all(encode(Connack(), Version.V5))
        await stream.send_all(encode(packet, Version.V5)[:-1])
        await stream.send_eof()
        await stream.receive_some()

    error = await lied_to(server)
    assert isinstance(error, Disconnected if isinstance(packet, Publish) else ConnectFailed)
    assert "closed the connection" in str(error)


@pytest.mark.parametrize("url", ["mqtt", "mqtts", "ws", "wss"])
async def test_a_server_of_noise(url: str) -> None:
    async def server(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(bytes(range(256)) * 100)
        while await stream.receive_some():
            pass

    error = await lied_to(server, url, connect_timeout=5)
    assert isinstance(error, ConnectFailed)
    assert len(str(error)) > 20


ACCEPT = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: %s\r\nSec-WebSocket-Protocol: mqtt\r\n%s\r\n"
)
FRAMES = {
    "text": b"\x81\x04text",
    "masked": b"\x82\x84\0\0\0\0abcd",
    "compressed": b"\xc2\x04abcd",
    "an unknown kind": b"\x83\x00",
    "a long ping": b"\x89\x7e\x00\x80" + bytes(128),
    "closed": b"\x88\x02\x03\xe9",
    "a huge length": b"\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff",
    "a continuation of nothing": b"\x80\x01a",
}


def accepted(request: bytes, extra: bytes = b"") -> bytes:
    (line,) = (line for line in request.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key:"))
    key = line.partition(b":")[2].strip()
    digest = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11", usedforsecurity=False).digest()
    return ACCEPT % (b64encode(digest), extra)


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("frame", FRAMES)
async def test_frames_that_are_wrong(frame: str, early: bool) -> None:
    """They come with the answer to the handshake, or behind CONNECT."""

    async def server(stream: trio.SocketStream) -> None:
        first = accepted(bytes(await stream.receive_some()))
        if early:
            await stream.send_all(first + FRAMES[frame])
        else:
            await stream.send_all(first)
            await stream.receive_some()
            await stream.send_all(FRAMES[frame])
        while await stream.receive_some():
            pass

    error = await lied_to(server, "ws", connect_timeout=5)
    assert isinstance(error, ConnectFailed)
    assert "did not answer" not in str(error), frame


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        ACCEPT % (b"wrong", b""),
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000,
    ],
    ids=["404", "no upgrade", "wrong key", "endless header"],
)
async def test_answers_that_open_no_websocket(answer: bytes) -> None:
    async def server(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(answer)
        while await stream.receive_some():
            pass

    error = await lied_to(server, "ws", connect_timeout=5)
    assert isinstance(error, ConnectFailed)
    assert "did not answer" not in str(error)
