"""Streams, consumers and acknowledgements, with real servers of two versions."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.nats.client.jetstream.stub import StubClient
from tests.nats.client.scripted import Peer, serving
from tests.nats.servers import KINDS, NatsServer, running
from trunkline.nats import connect
from trunkline.nats.client.jetstream.context import JetStream, NotSupported
from trunkline.nats.client.message import Message
from trunkline.nats.errors import BadSubject, NatsError, NoResponders, RequestTimeout
from trunkline.nats.jetstream.configs import AckPolicy, ConsumerConfig, StreamConfig
from trunkline.nats.jetstream.fields import BadReply
from trunkline.nats.jetstream.replies import (
    ConsumerMissing,
    MessageMissing,
    NameTaken,
    NotEnabled,
    StreamMissing,
    WrongLast,
)
from trunkline.nats.protocol import encoder
from trunkline.nats.protocol.headers import Headers
from trunkline.nats.protocol.operations import PING, PONG, Publish


@asynccontextmanager
async def streams(server: NatsServer, *configs: StreamConfig) -> AsyncGenerator[JetStream]:
    async with connect(server.url) as client:
        js = client.jetstream()
        for config in configs:
            await js.create_stream(config)
        try:
            yield js
        finally:
            for info in await js.streams():
                await js.delete_stream(info.config.name)


ORDERS = StreamConfig(name="orders", subjects=("orders.>",))


async def test_publish(server: NatsServer) -> None:
    async with streams(server, ORDERS) as js:
        first = await js.publish("orders.new", b"1", headers={"a": "b"}, message_id="m1")
        assert (first.stream, first.sequence, first.duplicate) == ("orders", 1, False)
        again = await js.publish("orders.new", b"1", message_id="m1")
        assert (again.sequence, again.duplicate) == (1, True)
        second = await js.publish(
            "orders.old",
            b"2",
            headers=Headers([("a", "x"), ("a", "y")]),
            expected_stream="orders",
            expected_last_sequence=1,
            expected_last_message_id="m1",
        )
        assert second.sequence == 2
        await js.publish("orders.old", expected_last_subject_sequence=2)
        for wrong in ({"expected_last_sequence": 7}, {"expected_last_subject_sequence": 1}):
            with pytest.raises(WrongLast, match="wrong last sequence: 3"):
                await js.publish("orders.old", **wrong)  # type: ignore[arg-type]
        with pytest.raises(NatsError, match="expected stream does not match"):
            await js.publish("orders.old", expected_stream="other")
        found = await js.get("orders", 1)
        assert (found.stream, found.sequence, found.subject, found.payload) == ("orders", 1, "orders.new", b"1")
        assert dict(found.headers) == {"a": "b", "Nats-Msg-Id": "m1"}
        assert found.time > 1_700_000_000
        assert (await js.get("orders", 2)).headers.all("a") == ["x", "y"]


async def test_a_subject_that_no_stream_takes(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.nats.client.jetstream.context.RETRY_WAIT", 0.001)
    async with streams(server, ORDERS) as js:
        with pytest.raises(NoResponders, match="nobody answers requests to 'other'"):
            await js.publish("other")


async def test_a_stream_that_has_no_leader_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.nats.client.jetstream.context.RETRY_WAIT", 0.001)
    asked: list[bytes] = []

    async def late(peer: Peer) -> None:
        await peer.welcome()
        while (operation := await peer.next()) is not None:
            if operation is PING:
                await peer.send(PONG.line)
            elif isinstance(operation, Publish):
                asked.append(operation.subject)
                if len(asked) <= 2:
                    await peer.send(encoder.deliver(operation.reply, b"1", b"", block=b"NATS/1.0 503\r\n\r\n"))
                else:
                    await peer.send(encoder.deliver(operation.reply, b"1", b'{"stream":"s","seq":9}'))

    async with serving(late) as port, connect(f"127.0.0.1:{port}") as client:
        assert (await client.jetstream().publish("a")).sequence == 9
    assert asked == [b"a"] * 3


async def test_how_often_and_when_it_is_tried_again(autojump_clock: MockClock) -> None:
    """Three times in all, a quarter of a second between them (ADR-22)."""

    class Nobody(StubClient):
        async def request(self, subject: str, payload: bytes = b"", **_: Any) -> Message:
            asked.append(trio.current_time())
            raise NoResponders(subject)

    asked: list[float] = []
    with pytest.raises(NoResponders):
        await JetStream(Nobody()).publish("a")
    assert asked == [0.0, 0.25, 0.5]


async def test_messages(server: NatsServer) -> None:
    async with streams(server, ORDERS) as js:
        for number in range(4):
            await js.publish(f"orders.{number % 2}", b"%d" % number)
        assert (await js.get("orders")).payload == b"0"
        assert (await js.get("orders", last="orders.0")).payload == b"2"
        assert (await js.get("orders", 2, next="orders.0")).payload == b"2"
        await js.delete_message("orders", 3)
        await js.delete_message("orders", 4, erase=True)
        for missing in (3, 4, 99):
            with pytest.raises(MessageMissing):
                await js.get("orders", missing)
        with pytest.raises(NatsError):
            await js.delete_message("orders", 99)
        assert (await js.stream("orders")).state.messages == 2


async def test_managing_streams(server: NatsServer) -> None:
    async with streams(server, ORDERS, StreamConfig(name="other", subjects=("other",))) as js:
        assert (await js.create_stream(ORDERS)).config.subjects == ("orders.>",)
        with pytest.raises(NameTaken):
            await js.create_stream(StreamConfig(name="orders", subjects=("x",)))
        info = await js.update_stream(StreamConfig(name="orders", subjects=("orders.>",), max_messages=3))
        assert info.config.max_messages == 3
        for number in range(5):
            await js.publish(f"orders.{number % 2}")
        assert (await js.stream("orders")).state.messages == 3
        assert [each.config.name for each in await js.streams()] == ["orders", "other"]
        assert [each.config.name for each in await js.streams("orders.1")] == ["orders"]
        assert await js.purge_stream("orders", subject="orders.1") == 1
        assert await js.purge_stream("orders", keep=1) == 1
        assert await js.purge_stream("orders", before=3) == 0
        assert await js.purge_stream("orders") == 1
        await js.delete_stream("orders")
        for ask in (js.stream, js.delete_stream, js.purge_stream):
            with pytest.raises(StreamMissing):
                await ask("orders")


async def test_managing_consumers(server: NatsServer) -> None:
    async with streams(server, ORDERS) as js:
        await js.publish("orders.a")
        durable = await js.create_consumer("orders", ConsumerConfig(durable="billing", ack_wait=7.0))
        assert (durable.name, durable.config.ack_wait, durable.pending) == ("billing", 7.0, 1)
        named = await js.create_consumer(
            "orders", ConsumerConfig(name="brief", filter_subject="orders.b", inactive_threshold=60.0)
        )
        assert (named.name, named.config.filter_subject, named.pending) == ("brief", "orders.b", 0)
        unnamed = await js.create_consumer("orders", ConsumerConfig(inactive_threshold=60.0))
        assert unnamed.name
        assert sorted([each.name for each in await js.consumers("orders")]) == sorted(
            ["billing", "brief", unnamed.name]
        )
        assert (await js.consumer("orders", "billing")).config.ack_policy is AckPolicy.EXPLICIT
        await js.delete_consumer("orders", "billing")
        for ask in (js.consumer, js.delete_consumer):
            with pytest.raises(ConsumerMissing):
                await ask("orders", "billing")
        with pytest.raises(StreamMissing):
            await js.create_consumer("none", ConsumerConfig(durable="x"))


async def test_a_named_consumer_that_nobody_uses(server: NatsServer) -> None:
    """It is deleted after a while, unless it is durable."""
    async with streams(server, ORDERS) as js:
        await js.create_consumer("orders", ConsumerConfig(durable="kept"))
        await js.create_consumer("orders", ConsumerConfig(name="brief", inactive_threshold=0.1))
        with trio.fail_after(60):
            while [each.name for each in await js.consumers("orders")] != ["kept"]:
                await trio.lowlevel.checkpoint()


async def test_many_streams(server: NatsServer) -> None:
    async with streams(server, *[StreamConfig(name=f"s{n:03}", subjects=(f"s{n}",)) for n in range(300)]) as js:
        names = [each.config.name for each in await js.streams()]
        assert names == [f"s{n:03}" for n in range(300)]


async def test_what_an_older_server_ignores_is_said(server: NatsServer) -> None:
    async with connect(server.url) as client:
        if client.server["version"] >= "2.11":
            pytest.skip("it knows all of it")
        js = client.jetstream()
        new = StreamConfig(name="new", subjects=("new",), allow_message_ttl=True, first_sequence=5)
        with pytest.raises(
            NotSupported, match=r"the stream new: this server, 2\.9\.\d+, does not know first_seq, allow"
        ):
            await js.create_stream(new)
        with pytest.raises(StreamMissing):
            await js.stream("new")
        await js.create_stream(ORDERS)
        with pytest.raises(NotSupported, match="does not know allow_msg_ttl"):
            await js.update_stream(StreamConfig(name="orders", subjects=("orders.>",), allow_message_ttl=True))
        many = ConsumerConfig(durable="many", filter_subjects=("orders.a", "orders.b"))
        with pytest.raises(NotSupported, match="the consumer many: .* does not know filter_subjects"):
            await js.create_consumer("orders", many)
        with pytest.raises(ConsumerMissing):
            await js.consumer("orders", "many")
        await js.create_consumer("orders", ConsumerConfig(durable="many"))
        with pytest.raises(NotSupported):
            await js.create_consumer("orders", many)
        assert (await js.consumer("orders", "many")).name == "many"  # it was there before
        await js.delete_stream("orders")


@pytest.mark.parametrize("subject", ["named.a", "named.*", "named.>", ">"])
async def test_a_named_consumer_of_some_subjects(server: NatsServer, subject: str) -> None:
    async with connect(server.url) as client:
        js = client.jetstream()
        await js.create_stream(StreamConfig(name="named", subjects=("named.>",)))
        for _ in range(2):
            found = await js.create_consumer("named", ConsumerConfig(name="n", filter_subject=subject))
            assert (found.name, found.config.filter_subject) == ("n", subject)
        async with js.subscribe_pull(subject, stream="named", config=ConsumerConfig(name="other")) as other:
            await js.publish("named.a", b"x")
            assert [message.payload for message in await other.fetch(1)] == [b"x"]
        await js.delete_stream("named")


async def test_names_are_checked_before_anything_is_sent(server: NatsServer) -> None:
    async with connect(server.url) as client:
        js = client.jetstream()
        for name in ("", "a.b", "*", "a b"):
            for ask in (js.stream, js.delete_stream, js.purge_stream, js.get):
                with pytest.raises(BadSubject, match="stream"):
                    await ask(name)
            with pytest.raises(BadSubject, match="stream"):
                await js.create_stream(StreamConfig(name=name))
        for name in ("a.b", ">"):
            with pytest.raises(BadSubject, match="consumer"):
                await js.create_consumer("s", ConsumerConfig(durable=name))
        with pytest.raises(BadSubject):
            client.jetstream(domain="a b")


async def test_no_jetstream(tmp_path: Path) -> None:
    with running(KINDS[0], tmp_path) as server:
        async with connect(server.url) as client:
            with pytest.raises(NotEnabled, match=r"nobody answers at \$JS.API: is JetStream enabled?"):
                await client.jetstream().stream("orders")
            with pytest.raises(NotEnabled, match=r"nobody answers at \$JS.hub.API"):
                await client.jetstream(domain="hub").stream("orders")


@pytest.mark.parametrize(
    ("ask", "reply"),
    [
        (lambda js: js.stream("s"), b"nonsense"),
        (lambda js: js.stream("s"), b"{}"),
        (lambda js: js.create_stream(ORDERS), b'{"config":7}'),
        (lambda js: js.create_consumer("s", ConsumerConfig()), b'{"stream_name":"s"}'),
        (lambda js: js.publish("a"), b'{"stream":"s"}'),
        (lambda js: js.get("s"), b"{}"),
        (lambda js: js.get("s"), b'{"message":{"subject":"a","seq":1,"time":"2023-11-14T22:13:20Z","data":"!"}}'),
        (lambda js: js.get("s"), b'{"message":{"subject":"a","seq":1,"time":7}}'),
        (lambda js: js.get("s"), b'{"message":{"subject":"a","seq":Infinity,"time":"2023-11-14T22:13:20Z"}}'),
        (lambda js: js.purge_stream("s"), b'{"purged":"many"}'),
        (lambda js: js.streams(), b'{"streams":7,"total":1}'),
        (lambda js: js.consumers("s"), b'{"consumers":[7],"total":1}'),
    ],
)
async def test_nonsense(ask: Any, reply: bytes) -> None:
    async def talk(peer: Peer) -> None:
        await peer.welcome()
        while (operation := await peer.next()) is not None:
            if isinstance(operation, Publish):
                await peer.send(encoder.deliver(operation.reply, b"1", reply))

    async with serving(talk) as port, connect(f"127.0.0.1:{port}") as client:
        with pytest.raises(BadReply):
            await ask(client.jetstream())


async def test_a_server_that_says_nothing() -> None:
    async def mute(peer: Peer) -> None:
        await peer.welcome()
        while await peer.next() is not None:
            pass

    async with serving(mute) as port, connect(f"127.0.0.1:{port}") as client:
        with pytest.raises(RequestTimeout):
            await client.jetstream(timeout=0.05).publish("a")
