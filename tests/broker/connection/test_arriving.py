"""Clients reach the home of their client id, whichever shard accepts them, and by whatever listener."""

import errno
import socket
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.broker.net import proxied
from tests.broker.shards.some_shards import KINDS, LAYERED, WAYS, descriptors, shards, until, will
from tests.conformance import raw
from trunkline.broker.connection import arriving
from trunkline.broker.metrics import LimitKind
from trunkline.broker.net.passed import PassedConnection
from trunkline.broker.net.transport import Layer, Transport

if TYPE_CHECKING:
    from trunkline.hooks.client import ClientInfo


class Kept:
    """A passage on which connections stay."""

    def __init__(self, passed: list[PassedConnection]) -> None:
        self.passed = passed

    def hand_over(self, passed: PassedConnection) -> bool:
        self.passed.append(passed)
        return True

    def close(self) -> None: ...


class Counted(Layer):
    number = 0

    def __init__(self, below: Transport) -> None:
        super().__init__(below)
        Counted.number += 1


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
async def test_a_client_is_served_at_home(way: str, kind: str, version: int) -> None:
    async with shards(way, kind) as (here, home):
        seen: list[str] = []
        here.admin.hooks.add("client.connect", lambda client, packet: seen.append("elsewhere"))
        home.admin.hooks.add("client.connect", lambda client, packet: seen.append(client.listener))
        async with await here.wire(version) as wire:
            name = home.id()
            await wire.connect(name)
            await wire.send(raw.subscribe(1, ("a", 1), version=version))
            await wire.expect_type(raw.SUBACK)
            await wire.send(raw.publish("a", b"x" * 100_000, qos=1, packet_id=2, version=version))
            answers = sorted([(await wire.receive_bytes())[:1] for _ in range(2)])
            assert answers == [b"\x32", b"\x40"]
            assert seen == ["at"]
            assert home.node.sessions.get(name) is not None
            assert not len(here.node.sessions)
            assert len(here.relays) == (kind in LAYERED)
            if kind != "unix":
                client = home.admin.clients.get(name)
                assert client is not None
                assert client.peer.startswith("127.0.0.1:")
        await here.is_empty()
        await home.is_empty()


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
async def test_a_connect_in_pieces_and_what_is_behind_it(way: str, kind: str, version: int) -> None:
    """A large CONNECT byte by byte up to its client id, and then in pieces; packets are behind it at once."""
    async with shards(way, kind) as (here, home):
        name = home.id()
        last_will = raw.Will("gone", b"w" * 50_000, 1)
        data = raw.connect(name, version=version, will=last_will, username="u" * 1000)
        behind = b"".join(
            raw.publish("t", b"%d" % number, qos=1, packet_id=number, version=version) for number in range(1, 300)
        )
        got: list[bytes] = []
        home.admin.hooks.add("message.publish", lambda client, message: got.append(message.payload))
        async with await here.wire(version) as wire:
            at = data.index(name.encode()) + len(name)
            await wire.send_drip(data[: at - 1])
            await wire.send(data[at - 1 : at + 7], data[at + 7 : 30_000], data[30_000:] + behind[:5000])
            await wire.send(behind[5000:])
            assert (await wire.expect_type(raw.CONNACK)).reason == 0
            for number in range(1, 300):
                assert int.from_bytes((await wire.expect_type(raw.PUBACK)).data[2:4], "big") == number
        await home.is_empty()
        assert got == [b"%d" % number for number in range(1, 300)] + [b"w" * 50_000]
        assert here.node.metrics.received[1] == 0
        assert home.node.metrics.received[1] == 1
        await here.is_empty()


@pytest.mark.parametrize("way", WAYS)
async def test_more_than_can_be_passed_is_relayed(way: str) -> None:
    async with shards(way) as (here, home):
        name = home.id()
        properties = b"".join(raw.user_property("k", "v" * 10_000) for _ in range(20))
        async with await here.wire() as wire:
            await wire.connect(name, properties=properties)
            (relayed,) = here.relays
            assert relayed.peer == home.connections[0].peer
            assert [view.connections for node in (here, home) for view in node.admin.listeners] == [0, 1]
            await wire.ping()
        await here.is_empty()
        await home.is_empty()


@pytest.mark.parametrize("way", WAYS)
async def test_nobody_is_handed_over_who_is_at_home_or_has_no_client_id(way: str) -> None:
    async with shards(way, number=3) as (here, *others):
        for version in (4, 5):
            async with await here.wire(version) as wire, await here.wire(version) as other:
                await wire.connect(here.id())
                await other.send(raw.connect("", version=version))
                answer = await other.expect_type(raw.CONNACK)
                assert answer.reason == 0
                assert all(here.hand_over.home_of(session.session.client_id) == 0 for session in here.node.sessions)
                assert len(here.node.sessions) == 2
                assert not any(len(each.node.sessions) for each in others)


async def test_clients_of_nats_stay_and_their_client_ids_are_of_their_shard() -> None:
    async with shards("memory", "nats", number=4) as (*_, here):
        for _ in range(10):
            stream = await here.stream()
            await stream.send_all(b'CONNECT {"verbose":false,"name":"client-0"}\r\nPING\r\n')
            answer = b""
            while b"PONG" not in answer:
                answer += await stream.receive_some()
            (session,) = here.node.sessions
            assert here.hand_over.home_of(session.session.client_id) == 3
            await stream.aclose()
            await here.is_empty()


@pytest.mark.parametrize("how", ["inside", "proxied", "certificate"])
@pytest.mark.parametrize("way", WAYS)
async def test_the_home_knows_what_layers_know(way: str, how: str) -> None:
    proxy = {"proxy_protocol": {"trusted": ["127.0.0.1"]}, "max_connections_per_address": 1}
    by_certificate = {"tls": {"client_certificates": "required", "client_id_from": "cn", "username_from": "cn"}}
    more = {"inside": {}, "proxied": proxy, "certificate": by_certificate}[how]
    async with shards(way, "tls" if how == "certificate" else "tcp", **more) as (here, home):
        name = home.id()
        infos: list[ClientInfo] = []
        home.admin.hooks.add("client.connect", lambda client, packet: infos.append(client))
        if how == "inside":
            wire = here.inside_wire()
        elif how == "proxied":
            wire = await here.wire(before=proxied.v2(("203.0.113.9", 40_000), proxied.ssl("proxied-name")))
        else:
            wire = await here.wire(certificate=name)
        async with wire:
            await wire.connect(here.id() if how == "certificate" else name)
            (info,) = infos
            assert info.client_id == name
            if how == "inside":
                assert (info.peer, info.listener, len(here.relays)) == (None, "in-process", 1)
            elif how == "proxied":
                assert info.peer == ("203.0.113.9", 40_000)
                assert info.certificate is not None
                assert info.certificate.common_name == "proxied-name"
                assert not here.connections
                # it counts at the client's home, and no more here
                async with await here.wire(before=proxied.v2(("203.0.113.9", 40_002))) as third:
                    await third.connect(here.id())
            else:
                assert info.identity is not None
                assert (info.identity.username, info.identity.tls_version) == (name, "TLSv1.3")
                assert info.certificate is not None
                assert info.certificate.common_name == name
        await here.is_empty()
        await home.is_empty()
        if how == "proxied":
            async with await here.wire(before=proxied.v2(("203.0.113.9", 40_003))) as again:
                await again.connect(name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
async def test_a_client_may_vanish_at_each_step(way: str, kind: str) -> None:
    async with shards(way, kind) as (here, home):
        lost: list[str] = []
        for shard in (here, home):
            shard.admin.hooks.add("client.disconnected", lambda client, *_: lost.append(client.client_id))
        name = home.id()
        connect = raw.connect(name, will=will())
        open_now: list[int] = []
        for _ in range(3):
            for sent in (0, 1, 14, len(connect) - 1, len(connect)):
                wire = await here.wire()
                await wire.send(connect[:sent]) if sent else None
                await wire.abort()
                await here.is_empty()
                await home.is_empty()
            wire = await here.wire()
            await wire.send(connect)
            await wire.expect_type(raw.CONNACK)
            await wire.end()
            await wire.abort()
            await here.is_empty()
            await home.is_empty()
            open_now.append(descriptors())
        assert open_now[2] <= open_now[0]
        assert set(lost) == {name}
        assert here.node.metrics.client_disconnected == 0


@pytest.mark.parametrize("kind", ["tcp", "tls", "ws"])
@pytest.mark.parametrize("way", WAYS)
async def test_the_last_words_of_its_home_reach_a_client(way: str, kind: str) -> None:
    async with shards(way, kind) as (here, home):
        async with await here.wire() as wire:
            name = home.id()
            await wire.connect(name)
            home.admin.clients.kick(name)
            await wire.expect_disconnect(0x98)
        await here.is_empty()
        async with await here.wire() as wire:
            await wire.connect(name)
            await wire.send(raw.PINGREQ * 3, raw.disconnect())
            for _ in range(3):
                await wire.expect_type(0xD0)
            await wire.expect_close()
        await here.is_empty()
        await home.is_empty()


@pytest.mark.parametrize("kind", ["tcp", "tls", "ws"])
@pytest.mark.parametrize("way", WAYS)
async def test_neither_side_waits_for_more_than_it_takes(way: str, kind: str) -> None:
    """A publisher that its home does not read from, and a subscriber that reads nothing, are held up end to end."""
    async with shards(way, kind) as (here, home):
        async with await here.wire() as wire:
            name = home.id()
            await wire.connect(name)
            (connection,) = home.connections
            connection.pause("test")
            sent = 0
            with trio.move_on_after(60) as scope:
                async with trio.open_nursery() as nursery:

                    @nursery.start_soon
                    async def publish() -> None:
                        nonlocal sent
                        while True:
                            await wire.stream.send_all(raw.publish("t", bytes(100_000)))
                            sent += 1

                    await trio.testing.wait_all_tasks_blocked()
                    stuck = sent
                    nursery.cancel_scope.cancel()
            assert not scope.cancelled_caught
            assert stuck < 300
            for relay in here.relays:
                assert relay._relay is not None
                assert relay._relay._home.pending < 2_000_000
        await until(lambda: not here.connections or here.relays)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_shard_that_cannot_be_reached_refuses(
    kind: str, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with shards("memory", kind) as (here, home):
        name = home.id()
        here.hand_over.close()
        with caplog.at_level("INFO"):
            async with await here.wire(version) as wire:
                await wire.send(raw.connect(name, version=version))
                answer = await wire.expect_type(raw.CONNACK)
                assert answer.reason == (0x88 if version == 5 else 3)
                await wire.expect_close()
        await here.is_empty()
        assert here.node.metrics.packets_connack_error == 1
        assert [client for client in caplog.messages if "cannot be reached" in client]


@pytest.mark.parametrize("kind", ["tcp", "tls"])
async def test_who_is_on_the_way_to_a_shard_that_ends_is_refused(kind: str) -> None:
    async with shards("memory", kind) as (here, home):
        passage = here.hand_over.passages[1]
        passed: list[PassedConnection] = []
        there = here.hand_over.passages[1] = Kept(passed)
        async with await here.wire() as wire:
            await wire.send(raw.connect(home.id()))
            await until(lambda: passed)
            passed[0].refuse()
            assert (await wire.expect_type(raw.CONNACK)).reason == 0x88
            await wire.expect_close()
        await here.is_empty()
        assert there is not passage


@pytest.mark.parametrize("call", ["dup", "socketpair"])
async def test_without_a_free_descriptor_a_client_is_refused(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with shards("memory", "tcp" if call == "dup" else "tls") as (here, home):

        def full(*_: object) -> None:
            raise OSError(errno.EMFILE, "no more descriptors")

        async with await here.wire() as wire:
            if call == "dup":
                monkeypatch.setattr(socket.socket, "dup", full)
            else:
                monkeypatch.setattr(arriving, "socketpair", full)
            await wire.send(raw.connect(home.id()))
            assert (await wire.expect_type(raw.CONNACK)).reason == 0x88
            await wire.expect_close()
        await here.is_empty()


@pytest.mark.parametrize("kind", ["tcp", "tls"])
async def test_shards_that_disagree_send_nobody_in_circles(kind: str) -> None:
    async with shards("memory", kind) as (here, home):
        name = home.id()
        home.hand_over._homes._table = bytes(256)  # all slots are the other shard's
        async with await here.wire() as wire:
            await wire.send(raw.connect(name))
            assert (await wire.expect_type(raw.CONNACK)).reason == 0x88
            await wire.expect_close()
        await here.is_empty()
        await home.is_empty()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
async def test_a_takeover_from_another_shard_has_one_winner(way: str, kind: str) -> None:
    async with shards(way, kind, number=3) as (here, home, third):
        name = home.id()
        async with await here.wire() as first, await third.wire() as second, await home.wire() as last:
            await first.connect(name, will=will())
            await second.connect(name)
            await first.expect_disconnect(0x8E)
            await last.connect(name)
            await second.expect_disconnect(0x8E)
            await last.ping()
            assert len(home.node.sessions) == 1
            assert home.node.metrics.session_discarded == 2
        for shard in (here, home, third):
            await shard.is_empty()


@pytest.mark.parametrize("kind", ["tcp", "tls"])
async def test_counters_of_the_node_count_a_client_once(kind: str) -> None:
    async with shards("sockets", kind) as (here, home):
        async with await here.wire() as wire:
            name = home.id()
            await wire.connect(name)
            await wire.ping()
            await wire.send(raw.disconnect())
            await wire.expect_close()
        await here.is_empty()
        await home.is_empty()
        ours, theirs = here.node.metrics, home.node.metrics
        assert (ours.connections_accepted, theirs.connections_accepted) == (1, 0)
        assert (ours.client_connected, theirs.client_connected) == (0, 1)
        received = len(raw.connect(name) + raw.PINGREQ + raw.disconnect())
        if kind == "tcp":
            assert ours.bytes_received + theirs.bytes_received == received
            assert ours.bytes_sent == 0
        else:
            assert (theirs.bytes_received, theirs.bytes_sent) == (0, 0)
            assert ours.bytes_received > received


async def test_a_connection_that_waits_elsewhere_has_no_timer_here(mock_clock: MockClock) -> None:
    async with shards("memory", "tls") as (here, home), await here.wire() as wire:
        await wire.connect(home.id(), keep_alive=0)
        mock_clock.jump(100_000)
        await wire.ping()


async def test_a_client_that_does_not_close_is_closed(mock_clock: MockClock) -> None:
    async with shards("memory", "ws") as (here, home), await here.wire() as wire:
        name = home.id()
        await wire.connect(name)
        home.admin.clients.kick(name)
        await until(lambda: here.relays and here.relays[0]._timer.armed)
        mock_clock.jump(1000)
        await here.is_empty()
        await home.is_empty()


async def test_a_connect_that_does_not_come_has_its_time(mock_clock: MockClock) -> None:
    async with shards() as (here, home), await here.wire() as wire:
        await wire.send(raw.connect(home.id())[:-3])
        await until(lambda: here.connections and here.connections[0]._first)
        mock_clock.jump(1000)
        await wire.expect_close()


@pytest.mark.parametrize("kind", ["tcp", "tls"])
async def test_limits_of_rates_hold_at_home(kind: str) -> None:
    settings = {"rate": {"connection_messages": "10/s"}}
    async with shards("memory", kind, settings=settings) as (here, home), await here.wire() as wire:
        await wire.send(raw.connect(home.id()), *[raw.publish("a", b"x", qos=1, packet_id=n) for n in range(1, 16)])
        await wire.expect_type(raw.CONNACK)
        for number in range(1, 16):
            assert (await wire.expect_type(raw.PUBACK)).data[3] == number
        assert home.node.metrics.limited[LimitKind.CONNECTION_MESSAGES]
        assert not here.node.metrics.limited[LimitKind.CONNECTION_MESSAGES]


async def test_rates_hold_for_whoever_stays() -> None:
    settings = {"rate": {"connection_messages": "10/s"}}
    async with shards("memory", settings=settings) as (here, _), await here.wire() as wire:
        await wire.send(raw.connect(here.id()), *[raw.publish("a", b"x", qos=1, packet_id=n) for n in range(1, 16)])
        await wire.expect_type(raw.CONNACK)
        for number in range(1, 16):
            assert (await wire.expect_type(raw.PUBACK)).data[3] == number
        assert here.node.metrics.limited[LimitKind.CONNECTION_MESSAGES]


@pytest.mark.parametrize("kind", ["tcp", "tls"])
async def test_an_operator_who_closes_the_listener_here_ends_its_relays(kind: str) -> None:
    async with shards("memory", kind) as (here, home):
        gone: list[str] = []
        home.admin.hooks.add("message.publish", lambda client, message: gone.append(message.topic))
        async with await here.wire() as wire, await here.wire() as own, await here.wire() as silent:
            await wire.connect(home.id(), will=will())
            await own.connect(here.id())
            here.admin.listeners.drain("at", 0)
            await own.expect_disconnect(0x98)
            await silent.expect_close()
            if kind == "tls":
                await wire.expect_close()
                assert gone == ["gone"]
            else:
                await wire.ping()  # it is another shard's by now


@pytest.mark.parametrize("problem", ["tls", "ws"])
async def test_a_broken_layer_of_a_relayed_client_is_counted_and_ends_its_session(problem: str) -> None:
    async with shards("memory", problem) as (here, home):
        gone: list[str] = []
        home.admin.hooks.add("message.publish", lambda client, message: gone.append(message.topic))
        wire = await here.wire()
        await wire.connect(home.id(), will=will())
        stream: Any = wire.stream
        raw_stream = stream.tls.transport_stream if problem == "tls" else stream.stream
        await raw_stream.send_all(b"\x17\x03\x03\0\x20" + bytes(32) if problem == "tls" else b"\x81\x80\0\0\0\0")
        await home.is_empty()
        assert gone == ["gone"]
        assert here.node.metrics.connections_broken == 1
        await trio.aclose_forcefully(raw_stream)
        await here.is_empty()


async def test_packets_are_logged_at_home_alone(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", "trunkline.packets"):
        async with shards() as (here, home), await here.wire() as wire:
            await wire.connect(home.id())
            assert not here.connections
    lines = [record.getMessage() for record in caplog.records if record.name == "trunkline.packets"]
    assert [line.split()[:2] for line in lines][:2] == [["received", "CONNECT"], ["sent", "CONNACK"]]
    assert len([line for line in lines if "CONNECT" in line]) == 1


async def test_the_layers_of_a_node_stay_where_a_client_was_accepted() -> None:
    """Those of the testing kit, say."""
    async with shards("memory", layers=[Counted]) as (here, home), await here.wire() as wire:
        await wire.connect(home.id())
        assert len(here.relays) == 1
        assert Counted.number == 1
