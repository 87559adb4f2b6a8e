"""A network connection's life."""

import pytest
import trio
from trio.testing import MockClock

from tests.broker.room import room
from tests.conformance import raw
from tests.conformance.raw import Will
from trunkline.broker.connection.connection import Connection
from trunkline.broker.session import mail


async def test_reading_stops_until_everyone_who_asked_for_it_has_resumed() -> None:
    async with room() as here:
        client, watcher = await here.client("a"), await here.client("w")
        await watcher.subscribe(("t", 0))
        channel = here.session("a").channel
        assert channel is not None
        for holder in ("one", "two"):
            channel.cast(mail.Pause(holder))
        await watcher.ping()
        await client.send(raw.publish("t", b"x"))
        channel.cast(mail.Resume("one"))
        await watcher.expect_nothing()
        channel.cast(mail.Resume("two"))
        await watcher.expect_publish("t", b"x")


async def test_a_client_that_is_held_up_does_not_time_out(autojump_clock: MockClock) -> None:
    async with room() as here:
        client = await here.client("a", keep_alive=10)
        channel = here.session("a").channel
        assert channel is not None
        channel.cast(mail.Pause("test"))
        await client.send(raw.PINGREQ)
        await trio.sleep(100)
        channel.cast(mail.Resume("test"))
        await client.expect(raw.PINGRESP)
        began = trio.current_time()
        await client.expect_disconnect(0x8D)
        assert trio.current_time() - began == pytest.approx(15, abs=0.1)


async def test_after_the_last_packet_the_broker_waits_for_the_client_to_close(autojump_clock: MockClock) -> None:
    async with room(mqtt={"linger": 5}) as here:
        polite, stubborn = await here.client("a"), await here.client("b")
        connections = here.node._inside.connections  # pyright: ignore[reportPrivateUsage]
        for wire in (polite, stubborn):
            await wire.send(raw.PINGRESP)  # not for a client to send
            await wire.expect_disconnect(0x82)
        await polite.end()
        await trio.sleep(1)
        assert len(connections) == 1
        await trio.sleep(4.1)
        assert not connections


async def test_a_connection_that_crashes_is_lost_to_its_session_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with room() as here:
        watcher = await here.client("w")
        await watcher.subscribe(("will", 0))
        await here.stay("a", will=Will("will", b"gone"))
        received, doomed_channel = Connection._received, here.session("a").channel  # pyright: ignore[reportPrivateUsage]

        def crash(connection: Connection, data: bytes) -> None:
            if connection._channel is doomed_channel:  # pyright: ignore[reportPrivateUsage]
                raise RuntimeError("on purpose")
            received(connection, data)

        monkeypatch.setattr(Connection, "_received", crash)
        doomed = here._wires[-1]  # pyright: ignore[reportPrivateUsage]
        await doomed.send(raw.PINGREQ)
        await watcher.expect_publish("will", b"gone")
        await doomed.expect_close()
        assert here.session("a").channel is None
        await (await here.stay("a")).ping()
    assert "on purpose" in caplog.text
