"""A connection that speaks NATS: its life, its limits, and its place among all others."""

import gc

import pytest
import trio
from trio.testing import MockClock

from tests.broker.nats.speaking import NATS, Speaker, nats_room
from tests.conformance import raw
from trunkline.broker.connection.lifecycle import ConnectionState
from trunkline.broker.metrics import LimitKind
from trunkline.broker.nats.client import NatsClient
from trunkline.broker.nats.connection import NatsConnection
from trunkline.broker.nats.delivering import Delivering
from trunkline.broker.nats.dialogue import OPERATIONS_AT_ONCE, Dialogue
from trunkline.broker.nats.login import NatsLogin
from trunkline.broker.nats.publishing import SubjectPublishing
from trunkline.broker.nats.subscriptions import SubjectSubscriptions
from trunkline.broker.node.opening import open_node
from trunkline.broker.session import mail
from trunkline.config.reader import from_mapping
from trunkline.nats.protocol.operations import Publish


async def test_the_first_line_is_info() -> None:
    async with nats_room(node={"name": "plant-1"}) as here:
        speaker = await here.stranger()
        info = speaker.info
        wanted = {"server_id", "server_name", "version", "go", "host", "port", "headers", "max_payload", "proto"}
        assert wanted | {"client_id", "client_ip"} <= info.keys()
        assert (info["server_name"], info["headers"], info["proto"]) == ("plant-1", True, 1)
        assert info["max_payload"] == 1 << 20
        assert info["jetstream"]
        other = await here.stranger()
        assert other.info["server_id"] == info["server_id"]
        assert other.info["client_id"] != info["client_id"]


async def test_what_is_wrong_ends_the_connection() -> None:
    for line, answer in (
        (b"FOO", b"-ERR 'Unknown Protocol Operation'\r\n"),
        (b"PUB a 2000000", b"-ERR 'Maximum Payload Violation'\r\n"),
        (b"PUB " + b"a" * 5000, b"-ERR 'maximum control line exceeded'\r\n"),
        (b'CONNECT {"user":"somebody"}', b"-ERR 'Authorization Violation'\r\n"),
    ):
        async with nats_room() as here:
            speaker = await here.speaker()
            await speaker.say(b"SUB a 1", b"PUB a 1", b"x", line)
            assert await speaker.rest() == b"MSG a 1 1\r\nx\r\n" + answer
            assert here.node.metrics.client_disconnected == 1


@pytest.mark.parametrize(
    ("data", "name"),
    [(raw.connect("a"), "MQTT"), (b"\x16\x03\x01\x02\x00\x01\x00", "TLS"), (b"GET / HTTP/1.1\r\n\r\n", "HTTP")],
)
async def test_the_log_says_what_comes_in_place_of_nats(
    data: bytes, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with nats_room() as here:
        address = here.broker.listeners["nats"]
        stream = await trio.open_tcp_stream(address.host, address.port)
        await stream.send_all(data)
        await trio.aclose_forcefully(stream)
        with trio.fail_after(30):
            while "looks like" not in caplog.text:
                await trio.lowlevel.checkpoint()
    assert f"1 connection failed from 1 host: this looks like {name}" in caplog.text


async def test_a_client_that_says_nothing(autojump_clock: MockClock) -> None:
    async with nats_room(mqtt={"connect_timeout": 5, "linger": 3}) as here:
        speaker = await here.stranger()
        began = trio.current_time()
        assert await speaker.rest() == b"-ERR 'Authentication Timeout'\r\n"
        assert trio.current_time() - began == pytest.approx(5, abs=0.5)
        assert here.node.metrics.limited[LimitKind.CONNECT_TIMEOUT] == 1
        await trio.sleep(4)
        assert not here.connections  # it has not closed


async def test_a_client_that_does_not_answer_ping(autojump_clock: MockClock) -> None:
    async with nats_room(nats={"ping_interval": 10, "max_pings": 2}) as here:
        speaker = await here.speaker()
        began = trio.current_time()
        assert await speaker.rest() == b"PING\r\n" * 2 + b"-ERR 'Stale Connection'\r\n"
        assert trio.current_time() - began == pytest.approx(30, abs=1)


async def test_a_client_that_answers_ping_stays(autojump_clock: MockClock) -> None:
    async with nats_room(nats={"ping_interval": 10, "max_pings": 1}) as here:
        speaker = await here.speaker()
        for _ in range(5):
            await speaker.expect(b"PING")
            await speaker.say(b"PONG")
        assert await speaker.said() == b""


async def test_a_read_full_of_subscriptions_holds_nobody_up() -> None:
    async with nats_room() as here:
        speaker, connection = await here.speaker(), here.connection
        client = connection.client
        assert client is not None
        with here.node.scheduler.turn:
            connection.receive(b"".join(b"SUB many.%d %d\r\n" % (number, number) for number in range(10_000)))
        assert len(client.subscriptions.by_sid) <= 2 * OPERATIONS_AT_ONCE
        assert connection.is_paused
        assert await speaker.said() == b""
        assert len(client.subscriptions.by_sid) == here.node.router.subscriptions == 10_000
        assert not connection.is_paused
        await speaker.say(*[b"UNSUB %d" % number for number in range(10_000)])
        assert await speaker.said() == b""
        assert here.node.router.subscriptions == 0


async def test_a_read_full_of_messages_holds_nobody_up() -> None:
    async with nats_room() as here:
        speaker = await here.speaker()
        with here.node.scheduler.turn:
            here.connection.receive(b"PUB a 1\r\nx\r\n" * 20_000)
        assert here.node.metrics.messages_in[0] <= 2 * OPERATIONS_AT_ONCE
        assert await speaker.said() == b""
        assert here.node.metrics.messages_in[0] == 20_000


async def test_a_slow_consumer_is_cut_off() -> None:
    async with nats_room(nats={"max_pending": 65_536}, session={"backpressure": 0}) as here:
        slow, fast = await here.speaker(), await here.speaker()
        await slow.say(b"SUB a 1")
        assert await slow.said() == b""
        payload = bytes(50_000)
        while not here.node.metrics.limited[LimitKind.NATS_PENDING]:
            await fast.say(b"PUB a %d" % len(payload), payload)
            assert await fast.said() == b""
        assert await fast.said() == b""
        while await slow.read():
            pass
        assert (await here.broker.metrics())["nats.slow_consumers"] == 1


async def test_publishers_wait_for_a_slow_consumer_and_for_no_longer_than_that(autojump_clock: MockClock) -> None:
    settings = {"backpressure": 5, "max_queue_bytes": "256KiB"}
    async with nats_room(session=settings) as here:
        slow, fast, other = await here.speaker(), await here.wire("fast"), await here.speaker()
        await slow.say(b"SUB a 1")
        assert await slow.said() == b""
        held = here.node.sessions.get("fast")
        assert held is not None
        began = trio.current_time()
        for publish in (fast.send(*[raw.publish("a", bytes(60_000))] * 100), fast.ping()):
            await publish
        assert trio.current_time() - began == pytest.approx(5, abs=1)
        assert here.node.metrics.limited[LimitKind.BACKPRESSURE] >= 1
        assert await other.said() == b""


async def test_a_client_that_reads_no_answers_is_not_read_from(autojump_clock: MockClock) -> None:
    async with nats_room(nats={"max_pending": 100_000}) as here:
        speaker = await here.speaker()
        with trio.move_on_after(5) as limit:
            for _ in range(1000):
                await speaker.say(*[b"PING"] * 20_000)
        assert limit.cancelled_caught
        connection = here.connection
        assert connection.is_paused
        assert connection.pending <= 400_000


async def test_it_ends_as_an_operator_wants() -> None:
    async with nats_room() as here:
        one, two = await here.speaker(), await here.speaker()
        ids = [each.client_id for each in here.broker.clients]
        assert here.node.clients.kick(ids[0])
        assert here.node.clients.end(ids[1])
        for speaker in (one, two):
            assert await speaker.rest() == b""
        assert not here.broker.clients


async def test_its_listener_is_removed() -> None:
    async with nats_room() as here:
        speaker, stranger = await here.speaker(), await here.stranger()
        here.node.listeners.remove(here.node.listeners[0])
        assert await speaker.rest() == b""
        assert await stranger.rest() == b""


async def test_an_operation_that_does_not_come_to_its_end() -> None:
    async with nats_room() as here:
        speaker = await here.speaker()
        assert here.connection.held_packet is None
        await speaker.say(b"PING", b"PUB a 10", b"x")
        await speaker.expect(b"PONG")
        held = here.connection.held_packet
        assert held is not None
        assert held[1] == len(b"PUB a 10\r\nx\r\n")
        here.connection.end_slow_packet("now")
        assert await speaker.rest() == b""
        assert here.node.metrics.limited[LimitKind.SLOW_PACKETS] == 1


async def test_an_error_ends_this_client_alone(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = SubjectPublishing.publish

    def fail_once(self: SubjectPublishing, asked: Publish) -> None:
        if asked.subject == b"break":
            raise RuntimeError("broken")
        publish(self, asked)

    monkeypatch.setattr(SubjectPublishing, "publish", fail_once)
    async with nats_room() as here:
        broken, other = await here.speaker(), await here.speaker()
        await broken.say(b"SUB a q 1")
        assert await broken.said() == b""
        await other.say(b"SUB a q 1")
        assert await other.said() == b""
        await broken.say(b"PUB break 0", b"")
        assert await broken.rest() == b""
        assert len(here.broker.clients) == 1
        for _ in range(4):
            await other.publish(b"a", b"x")
            assert await other.said() == b"MSG a 1 1\r\nx\r\n"
        assert "RuntimeError('broken')" in caplog.text


def alive(*kinds: type) -> list[object]:
    return [each for each in gc.get_objects() if type(each) in kinds]


async def test_nothing_is_left_of_a_client_that_has_gone() -> None:
    kinds = NatsConnection, NatsClient, Delivering, SubjectSubscriptions, Dialogue, NatsLogin
    settings = {"listeners": [NATS], "sys": {"interval": 0}}
    async with open_node(from_mapping(settings)) as node:  # the layers of the testing kit keep connections

        async def once(*lines: bytes) -> None:
            speaker = await Speaker.over(await trio.open_tcp_stream(*next(iter(node.listeners)).address), {})
            await speaker.say(*lines)
            await speaker.said()
            await speaker.leave()
            await trio.testing.wait_all_tasks_blocked(0.005)

        await once()  # what is made once for all is there then
        gc.collect()
        gc.disable()
        try:
            await once(b"SUB a 1", b"SUB b q 2", b"UNSUB 1", b"PUB a 1", b"x")
            await once()
            assert [type(each) for each in alive(*kinds)] == []
        finally:
            gc.enable()


async def test_operations_do_not_overtake_messages() -> None:
    async with nats_room() as here:
        speaker, wire = await here.speaker(), await here.wire("device")
        await speaker.say(b"SUB a 1")
        assert await speaker.said() == b""
        with here.node.scheduler.turn:  # both are there in one turn, and the message came first
            here.node.messages.publish("a", b"x")
            here.connection.receive(b"UNSUB 1\r\nPING\r\n")
        await speaker.expect(b"MSG a 1 1", b"x", b"PONG")
        await wire.ping()


async def test_what_others_send_to_sessions_is_taken() -> None:
    async with nats_room() as here:
        speaker = await here.speaker()
        await speaker.say(b"SUB a 1", b"SUB b 2")
        assert await speaker.said() == b""
        (row,) = here.broker.clients
        assert here.node.clients.unsubscribe(row.client_id, ["a", "c"])
        assert not here.node.clients.subscribe(row.client_id, [])
        here.node.clients.log_packets(row.client_id, True)
        here.connection.ref.cast(mail.PublishWill())
        await speaker.say(b"PUB a 0", b"", b"PUB b 0", b"")
        assert await speaker.said() == b"MSG b 2 0\r\n\r\n"
        assert here.connection.state is ConnectionState.OPEN
