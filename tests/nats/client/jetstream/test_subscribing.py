"""How a subscription finds its stream and its consumer, or creates it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.nats.client.jetstream.scripted import JetStreamPeer, wires
from tests.nats.client.jetstream.stub import StubApi, info
from tests.nats.client.scripted import serving
from tests.nats.servers import NatsServer
from trunkline.nats import Client, connect
from trunkline.nats.client.jetstream import JetStream, NotSupported
from trunkline.nats.client.jetstream.push import PushSubscription
from trunkline.nats.client.jetstream.subscribing import subscribe_push, wanted_of
from trunkline.nats.errors import BadSubject, CannotSubscribe
from trunkline.nats.jetstream.configs import AckPolicy, ConsumerConfig, DeliverPolicy, Storage, StreamConfig
from trunkline.nats.jetstream.replies import ApiError, ConsumerInfo, ConsumerMissing, NameTaken, StreamMissing


@asynccontextmanager
async def orders(server: NatsServer) -> AsyncGenerator[tuple[Client, JetStream]]:
    async with connect(server.url) as client:
        js = client.jetstream()
        await js.create_stream(StreamConfig(name="orders", storage=Storage.MEMORY, subjects=("orders.>",)))
        try:
            yield client, js
        finally:
            for found in await js.streams():
                await js.delete_stream(found.config.name)


# The stream


async def test_the_stream_of_a_subject(server: NatsServer) -> None:
    async with orders(server) as (_, js):
        await js.create_stream(StreamConfig(name="other", storage=Storage.MEMORY, subjects=("other.a", "other.b")))
        await js.publish("other.b", b"1")
        async with js.subscribe("other.b") as found:
            assert (found.stream, (await found.receive()).payload) == ("other", b"1")
        async with js.subscribe_pull("other.*") as pulled:
            assert pulled.stream == "other"
        for begin in (js.subscribe, js.subscribe_pull, js.subscribe_ordered):
            with pytest.raises(CannotSubscribe, match="no stream takes messages of 'nobody'"):
                async with begin("nobody"):
                    pass
            with pytest.raises(CannotSubscribe, match="several streams take messages of '>': orders, other"):
                async with begin(">"):
                    pass
            with pytest.raises(StreamMissing):
                async with begin(stream="nobody"):
                    pass
            with pytest.raises(CannotSubscribe, match="neither a subject nor a stream"):
                async with begin():
                    pass


async def test_a_stream_without_a_subject(server: NatsServer) -> None:
    async with orders(server) as (_, js):
        await js.publish("orders.a", b"1")
        async with js.subscribe(stream="orders") as found:
            assert found.info is not None
            assert found.info.config.filter_subject == ""
            assert (await found.receive()).payload == b"1"


# A consumer that is created


async def test_what_is_created(server: NatsServer) -> None:
    async with orders(server) as (_, js):
        config = ConsumerConfig(
            ack_policy=AckPolicy.ALL,
            ack_wait=7.5,
            deliver_policy=DeliverPolicy.NEW,
            max_ack_pending=17,
            max_deliver=3,
            description="of a test",
            idle_heartbeat=5.0,
            flow_control=True,
            rate_limit=10_000_000,
            sample_frequency="50",
        )
        async with js.subscribe("orders.new", config=config) as found:
            info = await js.consumer("orders", found.consumer)
            assert info.config.filter_subject == "orders.new"
            assert info.config.deliver_subject == found.subject
            assert info.push_bound
            for name in ("ack_policy", "ack_wait", "deliver_policy", "max_ack_pending", "max_deliver", "description"):
                assert getattr(info.config, name) == getattr(config, name)
            for name in ("idle_heartbeat", "flow_control", "rate_limit", "sample_frequency"):
                assert getattr(info.config, name) == getattr(config, name)
        async with js.subscribe("orders.new", durable="d") as found:
            assert (found.consumer, (await js.consumer("orders", "d")).config.durable) == ("d", "d")
        async with js.subscribe("orders.new", config=ConsumerConfig(name="n", inactive_threshold=60.0)) as found:
            assert (found.consumer, (await js.consumer("orders", "n")).config.durable) == ("n", "")
        async with js.subscribe("orders.new", queue="q") as found:
            info = await js.consumer("orders", "q")
            assert (info.config.durable, info.config.deliver_group) == ("q", "q")
        async with js.subscribe_pull("orders.new", config=ConsumerConfig(max_waiting=9)) as pulled:
            info = await js.consumer("orders", pulled.consumer)
            assert (info.config.deliver_subject, info.config.max_waiting) == ("", 9)
        async with js.subscribe("orders.new", config=ConsumerConfig(deliver_subject="there")) as found:
            assert found.subject == "there"


@pytest.mark.parametrize(
    ("config", "code"),
    [
        (ConsumerConfig(max_waiting=5), 10080),
        (ConsumerConfig(start_sequence=5), 10094),
        (ConsumerConfig(start_time=1_700_000_000.0), 10094),
        (ConsumerConfig(flow_control=True), 10108),
        (ConsumerConfig(idle_heartbeat=0.01), 10083),
    ],
    ids=str,
)
async def test_what_the_server_refuses(server: NatsServer, config: ConsumerConfig, code: int) -> None:
    async with orders(server) as (client, js):
        with pytest.raises(ApiError) as caught:
            async with js.subscribe("orders.new", config=config):
                pass
        assert caught.value.err_code == code
        await client.flush()
        assert await js.consumers("orders") == []


async def test_what_an_old_server_ignores(server: NatsServer) -> None:
    """Two filters are one that delivers everything, for a server that does not know them."""
    async with orders(server) as (client, js):
        wanted = js.subscribe(stream="orders", config=ConsumerConfig(filter_subjects=("orders.a", "orders.b")))
        if client.server["version"] == "2.9.10":
            with pytest.raises(NotSupported, match="filter_subjects"):
                await wanted.__aenter__()
        else:
            async with wanted as found:
                assert found.info is not None
                assert found.info.config.filter_subjects == ("orders.a", "orders.b")
        with trio.fail_after(60):
            while await js.consumers("orders"):
                await trio.lowlevel.checkpoint()


class Shared(StubApi):
    """Others of the group subscribe."""

    async def consumer(self, stream: str, name: str) -> ConsumerInfo:
        config = ConsumerConfig(durable=name, deliver_subject="d", deliver_group=name)
        return replace(info(name, config), push_bound=True)


async def test_a_member_of_a_group_does_not_wait_for_the_others_to_go(autojump_clock: MockClock) -> None:
    wanted = wanted_of("a", "s", "", "", None, queue="q")
    found = await subscribe_push(Shared(), wanted, PushSubscription, None, None)
    assert (found.subject, found.consumer, found.is_created) == ("d", "q", False)
    assert trio.current_time() == 0


class Leaving(StubApi):
    """The server sees for so many seconds that somebody subscribes."""

    until = 0.1

    async def consumer(self, stream: str, name: str) -> ConsumerInfo:
        config = ConsumerConfig(durable=name, deliver_subject="d")
        return replace(info(name, config), push_bound=trio.current_time() < self.until)


async def test_a_server_may_see_late_that_a_subscription_has_ended(autojump_clock: MockClock) -> None:
    """It is looked at for half a second, until that is a second subscription."""
    api, wanted = Leaving(), wanted_of("a", "s", "", "d", None)
    assert (await subscribe_push(api, wanted, PushSubscription, None, None)).consumer == "d"
    assert trio.current_time() == pytest.approx(0.12)
    api.until = 100
    with pytest.raises(CannotSubscribe, match="duplicate subscription"):
        await subscribe_push(api, wanted, PushSubscription, None, None)
    assert trio.current_time() == pytest.approx(0.12 + 0.52)


async def test_what_cannot_be_a_name(server: NatsServer) -> None:
    async with orders(server) as (_, js):
        values: dict[str, Any]
        for values in ({"durable": "a.b"}, {"stream": "a b"}, {"consumer": "*"}, {"queue": "a b"}):
            with pytest.raises(BadSubject):
                async with js.subscribe("orders.new", **values):
                    pass
        for stream in ("", "orders"):
            with pytest.raises(BadSubject):
                async with js.subscribe("orders..new", stream=stream):
                    pass
        with pytest.raises(CannotSubscribe, match="two durable consumers are named, 'a' and 'b'"):
            async with js.subscribe("orders.new", durable="a", config=ConsumerConfig(durable="b")):
                pass
        for ahead in ({"ahead": 0}, {"ahead_bytes": -1}, {"ahead": 10, "ahead_bytes": 1000}):
            values = dict(ahead)
            with pytest.raises(ValueError, match="ahead: "):
                async with js.subscribe_pull("orders.new", **values):
                    pass


# A consumer that is there


async def test_a_consumer_that_is_named(server: NatsServer) -> None:
    async with orders(server) as (_, js):
        with pytest.raises(ConsumerMissing):
            async with js.subscribe("orders.new", consumer="c"):
                pass
        async with js.subscribe_pull("orders.new", consumer="c") as pulled:
            assert (pulled.info, pulled.consumer) == (None, "c")
        await js.create_consumer("orders", ConsumerConfig(durable="c", deliver_subject="there"))
        await js.publish("orders.new", b"1")
        async with js.subscribe(stream="orders", consumer="c") as found:
            assert (found.subject, (await found.receive()).payload) == ("there", b"1")


async def test_a_second_subscription(server: NatsServer) -> None:
    values: dict[str, Any]
    async with orders(server) as (_, js), js.subscribe("orders.>", durable="d"):
        for values in ({"durable": "d"}, {"consumer": "d"}):
            with pytest.raises(CannotSubscribe, match="duplicate subscription"):
                async with js.subscribe("orders.>", **values):
                    pass
        with pytest.raises(CannotSubscribe, match="without a deliver group"):
            async with js.subscribe("orders.>", durable="d", queue="q"):
                pass
        with pytest.raises(CannotSubscribe, match="are pushed, and cannot be pulled"):
            async with js.subscribe_pull("orders.>", durable="d"):
                pass


async def test_members_of_a_group(server: NatsServer) -> None:
    async with orders(server) as (_, js), js.subscribe("orders.>", queue="q") as first:
        with pytest.raises(CannotSubscribe, match="queue group 'q', and the subscription has no queue"):
            async with js.subscribe("orders.>", durable="q"):
                pass
        with pytest.raises(CannotSubscribe, match="queue group 'q', and the queue is 'other'"):
            async with js.subscribe("orders.>", durable="q", queue="other"):
                pass
        async with js.subscribe("orders.>", queue="q") as second:
            for number in range(200):
                await js.publish("orders.new", b"%d" % number)
            seen: list[set[bytes]] = [set(), set()]
            async with trio.open_nursery() as nursery:

                async def take(index: int) -> None:
                    async for message in (first, second)[index]:
                        message.ack()
                        seen[index].add(message.payload)
                        if len(seen[0]) + len(seen[1]) == 200:
                            nursery.cancel_scope.cancel()

                nursery.start_soon(take, 0)
                nursery.start_soon(take, 1)
            assert all(seen)
            assert len(seen[0] | seen[1]) == 200


async def test_the_configuration_of_what_is_there(server: NatsServer) -> None:
    """It is not changed, and differences are said; only a deliver subject may be another one."""
    async with orders(server) as (_, js):
        config = ConsumerConfig(durable="d", deliver_subject="there", ack_wait=30.0)
        await js.create_consumer("orders", config)
        for other in (ConsumerConfig(ack_wait=5.0), ConsumerConfig(max_deliver=7), ConsumerConfig(headers_only=True)):
            with pytest.raises(CannotSubscribe, match="has another configuration"):
                async with js.subscribe("orders.>", durable="d", config=other):
                    pass
        async with js.subscribe("orders.>", durable="d", config=ConsumerConfig(deliver_subject="other")) as found:
            assert found.subject == "there"
        assert (await js.consumer("orders", "d")).config.ack_wait == 30.0


@pytest.mark.parametrize("kind", ["push", "pull"])
async def test_the_same_configuration_again(server: NatsServer, kind: str) -> None:
    """What a server makes of it is no difference."""
    config = ConsumerConfig(
        durable="d",
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=7.5,
        deliver_policy=DeliverPolicy.BY_START_TIME,
        description="of a test",
        inactive_threshold=90.0,
        max_ack_pending=17,
        max_deliver=3,
        start_time=1_700_000_000.123456,
    )
    if kind == "push":
        config = replace(config, flow_control=True, idle_heartbeat=5.1, rate_limit=10_000_000, headers_only=True)
    else:
        config = replace(config, backoff=(7.5, 10.25), max_batch=600, max_expires=9.5, max_waiting=9)
    async with orders(server) as (_, js):
        begin: Any = js.subscribe if kind == "push" else js.subscribe_pull
        for is_created in (True, False, False):
            async with begin("orders.>", config=config) as found:
                assert found.is_created == is_created


@pytest.mark.parametrize(
    "config",
    [
        ConsumerConfig(ack_wait=5.0, backoff=(1.0, 2.0), max_deliver=3),
        ConsumerConfig(ack_policy="explicit", deliver_policy="new", replay_policy="original"),
    ],
    ids=["backoff", "words"],
)
@pytest.mark.parametrize("kind", ["push", "pull"])
async def test_the_same_configuration_again_of_what_servers_write_otherwise(
    server: NatsServer, kind: str, config: ConsumerConfig
) -> None:
    async with orders(server) as (_, js):
        begin: Any = js.subscribe if kind == "push" else js.subscribe_pull
        for is_created in (True, False):
            async with begin("orders.>", config=replace(config, durable="d")) as found:
                assert found.is_created == is_created


async def test_a_pull_of_what_is_there(server: NatsServer) -> None:
    async with orders(server) as (_, js):
        await js.create_consumer("orders", ConsumerConfig(durable="d", filter_subject="orders.a"))
        with pytest.raises(CannotSubscribe, match="so a pull subscription is required"):
            async with js.subscribe("orders.a", durable="d"):
                pass
        await js.create_consumer("orders", ConsumerConfig(durable="p", filter_subject="orders.a", deliver_subject="x"))
        with pytest.raises(CannotSubscribe, match="'orders.b' is not what the consumer 'p' has: 'orders.a'"):
            async with js.subscribe("orders.b", durable="p"):
                pass
        with pytest.raises(CannotSubscribe, match="'orders.b' is not what"):
            async with js.subscribe_pull("orders.b", durable="d"):
                pass
        async with js.subscribe_pull("orders.a", durable="d") as found:
            assert not found.is_created


# The order in which things are asked, and races: with a server that shows them


@pytest.mark.parametrize(
    ("values", "create"),
    [
        ({}, "CONSUMER.CREATE.orders"),
        ({"durable": "d"}, "CONSUMER.DURABLE.CREATE.orders.d"),
        ({"queue": "q"}, "CONSUMER.DURABLE.CREATE.orders.q"),
        ({"config": ConsumerConfig(name="n")}, "CONSUMER.CREATE.orders.n.orders.new"),
    ],
    ids=str,
)
async def test_the_subscription_is_there_before_its_consumer(values: dict[str, Any], create: str) -> None:
    """A server sees by that whether a durable consumer is in use."""
    peer = JetStreamPeer()
    async with (
        serving(peer.story) as port,
        connect(f"127.0.0.1:{port}") as client,
        client.jetstream().subscribe("orders.new", **values) as found,
    ):
        pass
    subscribe = f"SUB {found.subject} {values.get('queue', '')}".strip()
    assert peer.order.index(subscribe) < peer.order.index(create)
    assert peer.bodies[create]["config"]["deliver_subject"] == found.subject


async def test_another_one_creates_the_consumer_meanwhile() -> None:
    """A member of a group joins it, at the deliver subject that the consumer has."""
    peer = JetStreamPeer()
    peer.races["q"] = {"deliver_subject": "theirs", "deliver_group": "q", "durable_name": "q"}
    async with serving(peer.story) as port, connect(f"127.0.0.1:{port}") as client:
        async with client.jetstream().subscribe("orders.new", queue="q") as found:
            assert (found.subject, found.is_created) == ("theirs", False)
            await client.flush()
            await peer.send(wires(peer.sids["theirs"], 1))
            assert (await found.receive()).origin.stream_sequence == 1
        first, second = [line for line in peer.order if line.startswith("SUB ") and line.endswith(" q")]
        assert first.startswith("SUB _INBOX.")
        assert second == "SUB theirs q"
        assert f"UNSUB {first.split()[1]}" in peer.order
    assert "CONSUMER.DELETE.orders.q" not in peer.order


@pytest.mark.parametrize(
    ("theirs", "error", "words"),
    [
        ({"deliver_subject": "theirs", "durable_name": "d"}, NameTaken, "exists"),
        ({"deliver_subject": "theirs"}, CannotSubscribe, "durable is '', not 'd'"),
        ({"deliver_subject": "theirs", "deliver_group": "q"}, CannotSubscribe, "queue group 'q'"),
        ({}, CannotSubscribe, "a pull subscription is required"),
        ({"deliver_subject": "theirs", "filter_subject": "other"}, CannotSubscribe, "'orders.new' is not"),
    ],
    ids=str,
)
async def test_another_one_creates_the_consumer_of_one(
    theirs: dict[str, Any], error: type[Exception], words: str
) -> None:
    peer = JetStreamPeer()
    peer.races["d"] = theirs
    async with serving(peer.story) as port, connect(f"127.0.0.1:{port}") as client:
        with pytest.raises(error, match=words):
            async with client.jetstream().subscribe("orders.new", durable="d"):
                pass
        await client.flush()
        subject = next(line.split()[1] for line in peer.order if line.startswith("SUB _INBOX.") and "*" not in line)
        assert f"UNSUB {subject}" in peer.order


async def test_another_one_creates_the_consumer_to_pull_from() -> None:
    peer = JetStreamPeer()
    peer.races |= {"d": {"durable_name": "d"}, "e": {"deliver_subject": "theirs"}}
    async with serving(peer.story) as port, connect(f"127.0.0.1:{port}") as client:
        js = client.jetstream()
        async with js.subscribe_pull("orders.new", durable="d") as found:
            assert not found.is_created
        with pytest.raises(CannotSubscribe, match="are pushed"):
            async with js.subscribe_pull("orders.new", durable="e"):
                pass


def hide_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next look at a consumer finds none."""
    missing = iter([True, False])
    look = JetStream.consumer

    async def consumer(self: JetStream, stream: str, name: str) -> Any:
        if next(missing, False):
            raise ConsumerMissing(404, 10014, "consumer not found")
        return await look(self, stream, name)

    monkeypatch.setattr(JetStream, "consumer", consumer)


async def test_a_race_in_a_group_with_servers(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look finds nothing, and the consumer of the group is there when it is created: the second member joins it."""
    async with orders(server) as (_, js), js.subscribe("orders.>", queue="q") as first:
        hide_once(monkeypatch)
        async with js.subscribe("orders.>", queue="q") as second:
            assert (second.subject, second.is_created) == (first.subject, False)
            await first.unsubscribe()
            await js.publish("orders.new", b"1")
            with trio.fail_after(60):
                assert (await second.receive()).payload == b"1"


async def test_a_race_with_servers(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look finds nothing, and the consumer is there when it is created."""
    async with orders(server) as (client, js), js.subscribe("orders.>", durable="d"):
        hide_once(monkeypatch)
        with pytest.raises((NameTaken, CannotSubscribe)):
            async with js.subscribe("orders.>", durable="d"):
                pass
        assert client.is_connected
