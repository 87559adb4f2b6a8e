"""What is published arrives in its order, whatever the broker and the network do; and what cannot arrive is named."""

import itertools
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.plugins.shipped.certificates import authority
from trunkline import testing
from trunkline.analytics.sinks.deduplicator import Deduplicator
from trunkline.analytics.sinks.messages import Outgoing
from trunkline.analytics.sinks.publisher import Publisher, PublishError, client_id
from trunkline.analytics.sinks.settings import SinkError, SinkSettings
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.packets import Connack, Packet
from trunkline.mqtt.versions import Version
from trunkline.testing import Broker, ThreadBroker, broker


def messages(count: int, size: int = 4, topic: str = "results/{}") -> list[Outgoing]:
    return [Outgoing(f"0/{n}", topic.format(n % 7), f"{n:0{size}}".encode()) for n in range(count)]


@pytest.fixture
def waits() -> list[float]:
    """How long the publisher has slept, had it slept."""
    return []


@pytest.fixture
def publisher(mqtt_broker: ThreadBroker, waits: list[float]) -> Callable[..., Publisher]:
    def make(**options: Any) -> Publisher:
        settings = SinkSettings(host=mqtt_broker.host, port=mqtt_broker.port, **options)
        return Publisher(settings, "sink", "query/3", sleeping(waits))

    return make


def sleeping(waits: list[float]) -> Callable[[float], Awaitable[None]]:
    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    return sleep


def elsewhere(call: Callable[[], object]) -> None:
    """In a thread: the publisher runs trio in its own, and its rows cannot wait for another run."""
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def payloads(broker: ThreadBroker) -> list[bytes]:
    return [message.payload for message in broker.messages]


@pytest.mark.parametrize("qos", [0, 1])
def test_all_messages_arrive_in_order_with_their_numbers(
    mqtt_broker: ThreadBroker, publisher: Callable[..., Publisher], qos: int
) -> None:
    sent = messages(500)
    publisher(qos=qos).publish(iter(sent))
    mqtt_broker.wait_until(lambda: not mqtt_broker.clients)
    assert [
        (message.topic, message.payload, message.qos, message.retain, list(message.properties["user_property"]))
        for message in mqtt_broker.messages
    ] == [
        (topic, payload, qos, False, [("trunkline-batch", "query/3"), ("trunkline-row", row)])
        for row, topic, payload in sent
    ]
    assert {message.publisher for message in mqtt_broker.messages} == {"sink"}


def test_it_says_goodbye(mqtt_broker: ThreadBroker, publisher: Callable[..., Publisher]) -> None:
    ends: list[object] = []
    mqtt_broker.hooks.add("client.disconnected", lambda client, reason, text: ends.append(reason))
    publisher().publish(messages(1))
    mqtt_broker.wait_until(lambda: ends)
    assert ends == [0]


def test_without_messages_there_is_no_connection() -> None:
    Publisher(SinkSettings(port=1), "sink", "query/0").publish([])


def test_the_state_of_a_topic_is_retained_and_deleted(
    mqtt_broker: ThreadBroker, publisher: Callable[..., Publisher]
) -> None:
    publisher(retain=True).publish([Outgoing("0/0", "state/a", b"1"), Outgoing("0/1", "state/b", b"2")])
    assert {row.topic for row in mqtt_broker.retained} == {"state/a", "state/b"}
    publisher(retain=True).publish([Outgoing("0/0", "state/a", b"")])
    assert {row.topic for row in mqtt_broker.retained} == {"state/b"}


def test_ten_thousand_messages_pass_through_the_brokers_window(waits: list[float]) -> None:
    """The window is smaller than what the sink would send ahead; a broker cuts off who ignores it."""
    with broker(history=0, mqtt={"receive_maximum": 20}) as here:
        arrived: list[bytes] = []
        here.hooks.add("message.publish", lambda client, message: arrived.append(message.payload))
        settings = SinkSettings(host=here.host, port=here.port, max_inflight=65_535)
        Publisher(settings, "sink", "q/0", sleeping(waits)).publish(messages(10_000))
    assert arrived == [payload for _, _, payload in messages(10_000)]
    assert not waits


def test_large_messages_pass(mqtt_broker: ThreadBroker, publisher: Callable[..., Publisher]) -> None:
    publisher(max_inflight=3).publish(messages(6, size=400_000))
    assert [len(payload) for payload in payloads(mqtt_broker)] == [400_000] * 6


# Lost connections


def test_what_was_not_acknowledged_comes_again_with_its_number(
    mqtt_broker: ThreadBroker, publisher: Callable[..., Publisher], waits: list[float]
) -> None:
    mqtt_broker.faults.drop("PUBACK", client="sink", after=100, times=10)
    cut = mqtt_broker.faults.cut(before="PUBACK", client="sink", skip=200)
    publisher().publish(messages(1000))
    assert cut.hits == 1
    assert waits == [0.1]
    deduplicator = Deduplicator()
    came = [
        (message.payload, deduplicator.is_new(message.properties["user_property"])) for message in mqtt_broker.messages
    ]
    assert len(came) > 1010
    assert [payload for payload, new in came if new] == [payload for _, _, payload in messages(1000)]


def test_connections_may_be_cut_again_and_again_as_long_as_something_arrives(
    mqtt_broker: ThreadBroker, publisher: Callable[..., Publisher], waits: list[float]
) -> None:
    counting = itertools.count(1)

    def thirtieth(_: object) -> bool:
        return next(counting) % 30 == 0

    # a reset takes acknowledgements along that were not read, so no more than a few are under way
    cut = mqtt_broker.faults.cut(before="PUBACK", client="sink", where=thirtieth, times=1000)
    publisher(retry_for=0.25, max_inflight=10).publish(messages(300))
    assert cut.hits > 5
    assert set(waits) == {0.1}
    deduplicator = Deduplicator()
    new = [m.payload for m in mqtt_broker.messages if deduplicator.is_new(m.properties["user_property"])]
    assert new == [payload for _, _, payload in messages(300)]


def test_it_gives_up_when_nothing_arrives(
    mqtt_broker: ThreadBroker, publisher: Callable[..., Publisher], waits: list[float]
) -> None:
    mqtt_broker.faults.cut(after="PUBLISH", client="sink", times=1000)
    with pytest.raises(PublishError, match="gave up after 7 connections in 6.3 s, with at least 3 messages not sent"):
        publisher(retry_for=8.0).publish(messages(3))
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2]


def test_a_broker_that_is_not_there_is_named(waits: list[float]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and not listened on
        port = taken.getsockname()[1]
        with pytest.raises(
            PublishError, match=f"^cannot connect to mqtt://127.0.0.1:{port}: Connection refused; gave up"
        ):
            Publisher(SinkSettings(port=port, retry_for=0.2), "sink", "q/0", sleeping(waits)).publish(messages(1))
    assert waits == [0.1]


def test_a_broker_that_is_silent_is_not_waited_for_for_ever(
    mqtt_broker: ThreadBroker, publisher: Callable[..., Publisher]
) -> None:
    mqtt_broker.faults.drop("PUBACK", client="sink")
    with pytest.raises(PublishError, match="no answer for 0.05 s; gave up after 1 connection in 0.0 s"):
        publisher(timeout=0.05, retry_for=0).publish(messages(2))


def test_it_comes_back_to_a_broker_that_was_started_anew(
    mqtt_broker: ThreadBroker, publisher: Callable[..., Publisher]
) -> None:
    def rows() -> Iterator[Outgoing]:
        yield from messages(100)
        elsewhere(lambda: mqtt_broker.restart(graceful=True))
        yield from messages(200)[100:]

    publisher().publish(rows())
    deduplicator = Deduplicator()
    new = [m.payload for m in mqtt_broker.messages if deduplicator.is_new(m.properties["user_property"])]
    assert new == [payload for _, _, payload in messages(200)]


def test_at_qos_0_what_was_under_way_is_lost_and_the_rest_is_not(
    mqtt_broker: ThreadBroker, publisher: Callable[..., Publisher], waits: list[float]
) -> None:
    mqtt_broker.faults.cut(before="PUBLISH", client="sink", skip=10)
    sent = [payload for _, _, payload in messages(640, 20_000)]  # more than sockets hold
    publisher(qos=0).publish(messages(640, 20_000))
    came = payloads(mqtt_broker)
    assert waits == [0.1]
    assert came[:10] == sent[:10]
    assert came[-1] == sent[-1]
    assert len(set(came)) == len(came) < 640


# Refusals


def test_a_message_that_is_refused_is_named(mqtt_broker: ThreadBroker, publisher: Callable[..., Publisher]) -> None:
    mqtt_broker.faults.refuse_publish("NOT_AUTHORIZED", topic="results/3")
    with pytest.raises(
        PublishError,
        match=r"row 0/3 to topic 'results/3': .* refused the message to results/3: not authorized \(0x87\)",
    ):
        publisher().publish(messages(7))


def test_nobody_listening_is_no_refusal(mqtt_broker: ThreadBroker, publisher: Callable[..., Publisher]) -> None:
    publisher().publish(messages(1))
    assert mqtt_broker.messages[0].delivered_to == ()


def test_a_refused_connection_is_named_and_not_tried_again(
    mqtt_broker: ThreadBroker, publisher: Callable[..., Publisher], waits: list[float]
) -> None:
    with (
        mqtt_broker.faults.refuse_connect("BAD_USER_NAME_OR_PASSWORD"),
        pytest.raises(PublishError, match=r"refused the connection: bad user name or password \(0x86\)") as caught,
    ):
        publisher(username="job", password="hunter2").publish(messages(1))
    assert "hunter2" not in str(caught.value)
    assert not waits


def test_a_broker_that_is_busy_is_asked_again(
    mqtt_broker: ThreadBroker, publisher: Callable[..., Publisher], waits: list[float]
) -> None:
    mqtt_broker.faults.refuse_connect("SERVER_BUSY", times=2)
    publisher().publish(messages(1))
    assert waits == [0.1, 0.2]
    assert payloads(mqtt_broker) == [b"0000"]


def test_who_has_lost_its_client_id_does_not_fight_for_it(
    mqtt_broker: ThreadBroker, publisher: Callable[..., Publisher]
) -> None:
    def rows() -> Iterator[Outgoing]:
        yield from messages(64)
        elsewhere(lambda: publisher().publish(messages(1)))
        yield from messages(64)

    with pytest.raises(PublishError, match="session taken over"):
        publisher().publish(rows())


def test_a_message_that_is_too_large_for_the_broker_is_named(waits: list[float]) -> None:
    with broker(mqtt={"max_packet_size": 1000}) as here:
        settings = SinkSettings(host=here.host, port=here.port)
        with pytest.raises(
            PublishError, match="row 0/0 to topic 'results/0': a packet of 1,061 bytes; the server accepts 1,000"
        ):
            Publisher(settings, "sink", "q/0", sleeping(waits)).publish(messages(1, size=1000))


@pytest.mark.parametrize(
    ("told", "options", "words"),
    [
        ({"maximum_qos": 0}, {}, "the server offers QoS 0 at most, not 1"),
        ({"retain_available": 0}, {"retain": True}, "the server offers no retained messages"),
    ],
)
def test_what_the_broker_does_not_have_is_said(
    told: dict[str, int], options: dict[str, Any], words: str, waits: list[float]
) -> None:
    mqtt = {"max_qos": told.get("maximum_qos", 2), "retain_available": bool(told.get("retain_available", 1))}
    with broker(mqtt=mqtt) as here:
        settings = SinkSettings(host=here.host, port=here.port, **options)
        with pytest.raises(PublishError, match=words):
            Publisher(settings, "sink", "q/0", sleeping(waits)).publish(messages(1))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the server speaks HTTP, not MQTT"),
        (b"", "the server closed the connection"),
        (Connack(reason=0x9D), r"server moved \(0x9D\), go away"),
    ],
)
def test_who_is_no_broker_is_told_so(answer: bytes | Packet, words: str, waits: list[float]) -> None:
    if isinstance(answer, Connack):
        answer.properties = {"reason_string": "go away"}
        answer = encode(answer, Version.V5)
    assert isinstance(answer, bytes)
    reply = answer
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        settings = SinkSettings(port=server.getsockname()[1], retry_for=0)
        with pytest.raises(PublishError, match=words):
            Publisher(settings, "sink", "q/0", sleeping(waits)).publish(messages(1))
        thread.join()


def test_each_attempt_at_a_partition_has_the_same_client_id() -> None:
    assert client_id("jobs", "q", 3) == client_id("jobs", "q", 3)
    assert len({client_id("jobs", query, partition) for query in "pq" for partition in (1, 2)}) == 4


# TLS


@asynccontextmanager
async def safe(broker: Broker, context: ssl.SSLContext) -> AsyncIterator[int]:
    """The port of a proxy that takes TLS off: the broker leaves that to proxies."""

    async def carry(source: trio.abc.Stream, target: trio.abc.Stream, scope: trio.CancelScope) -> None:
        with suppress(trio.BrokenResourceError):
            async for data in source:
                await target.send_all(data)
        scope.cancel()

    async def serve(outside: trio.SSLStream[trio.SocketStream]) -> None:
        with suppress(trio.BrokenResourceError):
            await outside.do_handshake()
            async with (
                outside,
                await trio.open_tcp_stream(broker.host, broker.port) as inside,
                trio.open_nursery() as both,
            ):
                both.start_soon(carry, inside, outside, both.cancel_scope)
                both.start_soon(carry, outside, inside, both.cancel_scope)

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_ssl_over_tcp, serve, 0, context, host="127.0.0.1"))
        yield listener.transport_listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


async def publish(settings: SinkSettings, sent: list[Outgoing]) -> None:
    await trio.to_thread.run_sync(Publisher(settings, "sink", "q/0", sleep=never).publish, sent)


async def test_over_tls_everything_is_as_without(tmp_path: Path) -> None:
    context, ca = authority(tmp_path)
    async with testing.broker() as here, safe(here, context) as port:
        await publish(SinkSettings(port=port, tls=True, ca=str(ca)), messages(2000))
        assert [message.payload for message in here.messages] == [payload for _, _, payload in messages(2000)]


async def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    context, _ = authority(tmp_path)
    async with testing.broker() as here, safe(here, context) as port:
        with pytest.raises(
            PublishError, match=r"127\.0\.0\.1:.*: certificate verify failed: unable to get local issuer"
        ):
            await publish(SinkSettings(port=port, tls=True, retry_for=0), messages(1))


async def test_a_certificate_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    async with testing.broker() as here:
        with pytest.raises(SinkError, match=r"no\.pem: No such file"):
            await publish(SinkSettings(port=here.port, tls=True, ca=str(tmp_path / "no.pem")), messages(1))


async def never(seconds: float) -> None:
    raise AssertionError("there was a reason to wait")
