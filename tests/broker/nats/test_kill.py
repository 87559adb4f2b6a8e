"""kill -9 while a client of NATS publishes: what the store has of it is whole, and the next start goes on."""

from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
import trio

from tests.broker.nats.speaking import Speaker
from tests.conformance import raw
from tests.nats.servers import BROKER, NatsServer, running
from tests.wire import Wire

ROUNDS = 3
#: Messages that are in the store when others follow, and behind how many of these the broker is killed, wherever it is
#: with them.
STORED = 200
BEFORE_KILL = 2000


async def publish_until_killed(server: NatsServer, mqtt: str, topic: bytes) -> None:
    speaker = await Speaker.over(await trio.open_tcp_stream("127.0.0.1", server.port), {})
    try:
        with suppress(trio.BrokenResourceError):
            for number in count():
                await speaker.publish(topic, b"%d" % number)
                if number == STORED:
                    assert await speaker.said() == b""
                    await wait_for_store(mqtt)
                if number == BEFORE_KILL:
                    await trio.to_thread.run_sync(server.kill)
    finally:
        await speaker.leave()


async def wait_for_store(path: str) -> None:
    """A PUBACK says that everything is stored that came before."""
    async with Wire(await trio.open_unix_socket(path)) as wire:
        await wire.connect("publisher")
        await wire.publish("log/mark", b"", qos=1)


async def all_of_the_stream(path: str, last: str) -> list[tuple[str, bytes]]:
    """Up to the message with this topic."""
    found: list[tuple[str, bytes]] = []
    async with Wire(await trio.open_unix_socket(path)) as wire:
        await wire.connect("reader")
        start = raw.user_property("from", "earliest")
        await wire.send(raw.subscribe(1, ("$stream/log/log/#", 0), properties=start))
        while not found or found[-1][0] != last:
            packet = await wire.receive()
            if packet.type == raw.PUBLISH:
                found.append((packet.topic, packet.payload))
    return found


async def test_a_stream_has_no_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what was published to it before a kill it has the beginning, up to some message."""
    for name, value in {
        "STORE__DURABILITY": "os",
        "STORE__PATH": str(tmp_path / "store.db"),
        "STREAMS": '[{name = "log", filters = ["log/#"]}]',
    }.items():
        monkeypatch.setenv(f"TRUNKLINE_{name}", value)
    socket = f"{tmp_path}/mqtt.sock"
    with running(BROKER, tmp_path, "--listen", f"unix://{socket}") as server:
        for number in range(ROUNDS):
            await publish_until_killed(server, socket, b"log.%d" % number)
            await trio.to_thread.run_sync(server.start)
        speaker = await Speaker.over(await trio.open_tcp_stream("127.0.0.1", server.port), {})
        await speaker.publish(b"log.last", b"0")
        assert await speaker.said() == b""
        found = await all_of_the_stream(socket, "log/last")
        await speaker.leave()
    for number in range(ROUNDS):
        mine = [int(payload) for topic, payload in found if topic == f"log/{number}"]
        assert mine == list(range(len(mine)))
        assert len(mine) > STORED
    assert found[-1] == ("log/last", b"0")
