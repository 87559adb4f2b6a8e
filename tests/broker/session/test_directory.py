"""One owner of a client id, at any moment."""

import pytest
import trio
from trio.testing import MockClock

from tests.broker.disk import Disk
from tests.broker.room import room
from tests.conformance import raw
from trunkline.hooks import ALLOW, Allow, ClientInfo, Deny
from trunkline.mqtt.packets import Will


async def test_quick_takeovers_leave_one_owner() -> None:
    async with room(flapping={"max_takeovers": 0}) as here:
        wires = [here.wire() for _ in range(50)]
        for number, wire in enumerate(wires):
            await wire.send(raw.connect("same", clean=number % 3 == 0, properties=raw.session_expiry(100)))
        for wire in wires[:-1]:
            assert (await wire.expect_type(raw.CONNACK)).reason == 0
            await wire.expect_disconnect(0x8E)
        await wires[-1].expect_type(raw.CONNACK)
        await wires[-1].ping()
        assert [session.session.client_id for session in here.node.sessions] == ["same"]
        while len(list(here.node.supervisors.sessions)) > 1:
            await trio.lowlevel.checkpoint()


async def test_only_a_client_that_may_have_the_client_id_takes_it_over() -> None:
    async with room(flapping={"max_takeovers": 1}) as here:
        here.node.hooks.add("client.authenticate", lambda client, password: ALLOW if password else Deny())
        await here.client("a", username="ann", password="secret")
        for _ in range(5):
            stranger = here.wire()
            await stranger.send(raw.connect("a"))
            assert (await stranger.expect_type(raw.CONNACK)).reason == 0x87
        await here.client("a", username="ann", password="secret")


async def test_clients_that_log_in_at_the_same_time_are_no_more_than_there_is_room_for() -> None:
    answer = trio.Event()

    async def slow(client: ClientInfo, password: bytes | None) -> Allow:
        await answer.wait()
        return ALLOW

    async with room(limits={"max_sessions": 2}) as here:
        here.node.hooks.add("client.authenticate", slow)
        wires = [here.wire() for _ in range(4)]
        for number, wire in enumerate(wires):
            await wire.send(raw.connect(f"c{number}"))
        answer.set()
        reasons = [(await wire.expect_type(raw.CONNACK)).reason for wire in wires]
        assert sorted(reasons) == [0, 0, 0x97, 0x97]
        assert (await here.node.figures())["client.refused.max_sessions"] == 2
        assert len(here.node.sessions) == 2


async def test_a_session_that_ends_while_a_client_asks_for_it_is_opened_anew() -> None:
    async with room() as here:
        client = await here.stay("a")
        session, back = here.session("a"), here.wire()
        # the DISCONNECT that ends the session lies in its mailbox when the second connection asks for it
        await client.send(raw.disconnect(0, raw.session_expiry(0)))
        await back.send(raw.connect("a", clean=False, properties=raw.session_expiry(10)), raw.PINGREQ)
        await back.expect_type(raw.CONNACK)
        await back.expect(raw.PINGRESP)
        assert here.session("a") is not session or session.channel is not None


async def test_a_successor_is_welcomed_when_the_end_of_a_stored_session_is_stored(mock_clock: MockClock) -> None:
    async with Disk().broker() as life:
        wire, _ = await life.stay("a")
        async with life.full(mock_clock):
            await wire.send(raw.disconnect(0, raw.session_expiry(0)))
            while life.node.sessions.get("a") is not None:
                await trio.lowlevel.checkpoint()
            successor, other = await life.wire(), await life.wire()
            await other.connect("other", clean=True)  # it has nothing to wait for
            await successor.send(raw.connect("a"))
            await successor.expect_silence()
        await successor.expect_type(raw.CONNACK)


async def test_a_session_that_comes_from_elsewhere_goes_on_waiting_for_its_client(autojump_clock: MockClock) -> None:
    async with room() as here:
        watcher = await here.client("watcher")
        await watcher.subscribe("last/#")
        began = trio.current_time()
        actor = here.node.sessions.add(ClientInfo("away"))
        actor.session.expiry_interval, actor.session.left_at = 10.0, began - 4
        actor.session.will = Will("last/words", b"gone", properties={"will_delay_interval": 5})
        actor.go_on_away()
        await watcher.expect_publish("last/words", b"gone")
        assert trio.current_time() - began == pytest.approx(1)
        assert [row.session.client_id for row in here.node.sessions.page()] == ["away", "watcher"]
        await trio.sleep(5.5)
        assert here.node.sessions.get("away") is None


async def test_a_session_without_expiry_comes_only_to_publish_its_will() -> None:
    async with room() as here:
        watcher = await here.client("watcher")
        await watcher.subscribe("last/#")
        actor = here.node.sessions.add(ClientInfo("away"))
        actor.session.will, actor.session.left_at = Will("last/words", b"gone"), trio.current_time()
        actor.go_on_away()
        await watcher.expect_publish("last/words", b"gone")
        assert here.node.sessions.get("away") is None
