"""What a connection and a session leave behind when they end: nothing, and without the garbage collector's help.

A broker that is busy runs the collector seldom, and what waits for it until then is memory.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.conformance import raw
from tests.wire import Wire, connect
from trunkline.broker.connection.connection import Connection
from trunkline.broker.net.stream_transport import StreamTransport
from trunkline.broker.net.transport import SocketTransport
from trunkline.broker.node.admin import Admin
from trunkline.broker.node.opening import open_node
from trunkline.broker.session.actor import SessionActor
from trunkline.broker.session.state import Session
from trunkline.config.reader import from_mapping
from trunkline.mqtt.decoder import Decoder

#: None of these may be left, whatever else the interpreter keeps for later.
WATCHED = (Connection, SocketTransport, StreamTransport, Decoder, SessionActor, Session)
ROUNDS = 5


@contextmanager
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def left() -> dict[str, int]:
    found: dict[str, int] = {}
    for each in gc.get_objects():
        if type(each) in WATCHED:
            found[type(each).__name__] = found.get(type(each).__name__, 0) + 1
    return found


async def settle() -> None:
    await trio.testing.wait_all_tasks_blocked(0.005)


async def leaves(wire: Wire) -> None:
    """Orderly, after it has used what there is."""
    await wire.connect("a", keep_alive=60)
    await wire.subscribe(("t/#", 1), ("$share/g/s", 1))
    await wire.send(raw.publish("u/1", b"x", qos=1, packet_id=1))
    await wire.expect_type(raw.PUBACK)
    await wire.publish("u/2", b"x", qos=2)
    await wire.send(raw.publish("u/3", b"x", qos=2, packet_id=9))  # and never releases it
    await wire.expect_type(raw.PUBREC)
    await wire.publish("t/1", b"x")
    await wire.take_publish("t/1", b"x")
    await wire.disconnect()


async def expires(wire: Wire) -> None:
    """With a will that waits, and a session that waits longer."""
    will = raw.Will("w", b"gone", properties=raw.will_delay(5))
    await wire.connect("a", clean=False, properties=raw.session_expiry(10), will=will)
    await wire.subscribe(("t", 1))


async def is_refused(wire: Wire) -> None:
    await wire.send(raw.connect("x" * 300))
    await wire.expect_type(raw.CONNACK)


async def sends_noise(wire: Wire) -> None:
    await wire.send(b"GET / HTTP/1.1\r\n\r\n")
    await wire.expect_close()


async def breaks_the_rules(wire: Wire) -> None:
    await wire.connect("a")
    await wire.send(b"\x82\x01\0")
    await wire.expect_type(raw.DISCONNECT)


async def says_nothing(wire: Wire) -> None: ...


@pytest.mark.parametrize("inside", [False, True], ids=["socket", "stream"])
@pytest.mark.parametrize(
    "script",
    [leaves, expires, is_refused, sends_noise, breaks_the_rules, says_nothing],
    ids=lambda script: script.__name__,
)
async def test_nothing_is_left(mock_clock: MockClock, script: Any, inside: bool) -> None:
    settings = {"listeners": ["tcp://127.0.0.1:0"], "sys": {"interval": 0}, "session": {"await_rel_timeout": 100_000}}
    async with open_node(from_mapping(settings)) as node:
        await once(node, mock_clock, script, inside)  # what is made once for all is there then
        with no_collector():
            before = left()
            for _ in range(ROUNDS):
                await once(node, mock_clock, script, inside)
            assert left() == before


async def once(node: Admin, clock: MockClock, script: Any, inside: bool) -> None:
    wire = Wire(connect(node)) if inside else await Wire.open(*next(iter(node.listeners)).address)
    await script(wire)
    await wire.abort()
    await settle()
    clock.jump(1000)  # until all that waits has been
    await settle()
