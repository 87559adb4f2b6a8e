"""gmqtt: an asyncio client with a codec of its own, MQTT 3.1.1 and 5."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Self

import pytest
from gmqtt import Client, Message, Subscription
from gmqtt.mqtt.constants import MQTTv50, MQTTv311

from tests import outside_loop
from tests.interop.server import Broker, differs, with_passwords

PATIENCE = 60
VERSIONS = {"v311": MQTTv311, "v5": MQTTv50}
every_version = pytest.mark.parametrize("version", VERSIONS.values(), ids=VERSIONS.keys())

Received = tuple[str, bytes, int, dict[str, Any]]


def within(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    outside_loop.run(test(), within=3 * PATIENCE)


class Gmqtt:
    """A connected client; messages and acknowledgements in queues."""

    def __init__(self, broker: Broker, client_id: str, version: int, *, keep_alive: int = 60, **options: Any) -> None:
        self.broker, self.version, self.keep_alive = broker, version, keep_alive
        self.client = Client(client_id, **options)
        self.client.set_config({"reconnect_retries": 0})
        self.messages: asyncio.Queue[Received] = asyncio.Queue()
        self.subacks: asyncio.Queue[tuple[int, ...]] = asyncio.Queue()
        self.unsubacks: asyncio.Queue[tuple[int, ...]] = asyncio.Queue()
        self.session_present = False
        self.lost = asyncio.Event()
        self.client.on_connect = self._on_connect
        self.client.on_message = self._on_message
        self.client.on_subscribe = lambda _client, _mid, qos, _properties: self.subacks.put_nowait(qos)
        self.client.on_unsubscribe = lambda _client, _mid, qos: self.unsubacks.put_nowait(qos)
        self.client.on_disconnect = lambda _client, _packet, _exc=None: self.lost.set()

    def _on_connect(self, _client: Client, flags: int, _reason: int, _properties: dict[str, Any]) -> None:
        self.session_present = bool(flags)

    async def _on_message(
        self, _client: Client, topic: str, payload: bytes, qos: int, properties: dict[str, Any]
    ) -> int:
        self.messages.put_nowait((topic, bytes(payload), qos, properties))
        return 0

    async def __aenter__(self) -> Self:
        await self.client.connect(self.broker.host, self.broker.port, keepalive=self.keep_alive, version=self.version)
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.client.disconnect()

    async def subscribe(self, topic_filter: str, qos: int = 0, **options: Any) -> int:
        self.client.subscribe(Subscription(topic_filter, qos=qos, **options))
        async with asyncio.timeout(PATIENCE):
            return (await self.subacks.get())[0]

    async def receive(self) -> Received:
        async with asyncio.timeout(PATIENCE):
            return await self.messages.get()


@every_version
def test_all_qos(broker: Broker, name: str, version: int) -> None:
    async def test() -> None:
        async with Gmqtt(broker, name, version) as client:
            for wanted in range(3):
                assert await client.subscribe(f"{name}/{wanted}", wanted) == wanted
                for qos in range(3):
                    client.client.publish(f"{name}/{wanted}", b"%d" % qos, qos=qos)
                    topic, payload, got, _ = await client.receive()
                    assert (topic, payload, got) == (f"{name}/{wanted}", b"%d" % qos, min(wanted, qos))

    within(test)


@every_version
@pytest.mark.parametrize("at_once", [45, 101, 1000])
def test_a_burst(broker: Broker, name: str, version: int, at_once: int) -> None:
    """gmqtt takes the receive maximum for the highest packet id, so more than it at once is its own error. Towards
    3.1.1 it knows no limit."""
    if at_once > 45:
        differs(broker, "drops QoS 2 messages beyond its window")

    async def test() -> None:
        async with Gmqtt(broker, name, version) as client:
            await client.subscribe(name + "/#", 2)
            for turn in range(3):
                for qos in (1, 2):
                    for number in range(at_once):
                        client.client.publish(f"{name}/{qos}", b"%d" % (at_once * turn + number), qos=qos)
                got: dict[int, list[int]] = {1: [], 2: []}
                for _ in range(2 * at_once):
                    _, payload, qos, _ = await client.receive()
                    got[qos].append(int(payload))
                expected = list(range(at_once * turn, at_once * turn + at_once))
                assert got == {1: expected, 2: expected}
                # a second round needs the ids of the first
                async with asyncio.timeout(PATIENCE):
                    await client.client._persistent_storage.wait_empty()
            assert not client.lost.is_set()

    within(test)


@every_version
def test_the_connection_is_cut_with_many_in_flight(broker: Broker, name: str, version: int) -> None:
    """gmqtt comes back by itself and sends again what was not acknowledged: nothing is lost, nothing comes twice."""
    differs(broker, "drops QoS 2 messages beyond its window")
    expiry = {"session_expiry_interval": 300} if version == MQTTv50 else {}

    async def test() -> None:
        async with (
            Gmqtt(broker, name + "-s", version) as subscriber,
            Gmqtt(broker, name, version, clean_session=False, **expiry) as publisher,
        ):
            await subscriber.subscribe(name, 2)
            publisher.client.set_config({"reconnect_retries": -1, "reconnect_delay": 0})
            for number in range(1000):
                publisher.client.publish(name, b"%d" % number, qos=2)
            got = [int((await subscriber.receive())[1])]
            publisher.client._connection._transport.abort()
            await publisher.lost.wait()
            got += [int((await subscriber.receive())[1]) for _ in range(999)]
            assert sorted(got) == list(range(1000))
            async with asyncio.timeout(PATIENCE):
                await publisher.client._persistent_storage.wait_empty()
            publisher.client.publish(name, b"1000", qos=2)
            assert int((await subscriber.receive())[1]) == 1000

    within(test)


@every_version
@pytest.mark.parametrize("password", [None, ""])
def test_an_empty_user_name_is_none(tmp_path: Path, name: str, version: int, password: str | None) -> None:
    async def test(broker: Broker) -> None:
        client = Gmqtt(broker, name, version)
        client.client.set_auth_credentials("", password)
        async with client:
            await client.subscribe(name, 1)
            client.client.publish(name, b"here", qos=1)
            assert (await client.receive())[1] == b"here"

    with with_passwords(tmp_path) as broker:
        within(lambda: test(broker))


@every_version
def test_retained_and_unsubscribe(broker: Broker, name: str, version: int) -> None:
    async def test() -> None:
        async with Gmqtt(broker, name, version) as client:
            client.client.publish(name, b"kept", qos=1, retain=True)
            await client.subscribe(name, 1)
            _, payload, _, properties = await client.receive()
            assert payload == b"kept"
            assert properties["retain"]
            client.client.unsubscribe(name)
            async with asyncio.timeout(PATIENCE):
                reasons = await client.unsubacks.get()
            assert reasons == ((0,) if version == MQTTv50 else ())
            client.client.publish(name, b"", qos=1, retain=True)
            await client.subscribe(name + "-fence", 1)
            client.client.publish(name + "-fence", b"fence", qos=1)
            assert (await client.receive())[1] == b"fence"

    within(test)


@every_version
def test_resume_with_offline_messages(broker: Broker, name: str, version: int) -> None:
    expiry = {"session_expiry_interval": 300} if version == MQTTv50 else {}

    async def test() -> None:
        async with Gmqtt(broker, name, version, clean_session=False, **expiry) as client:
            await client.subscribe(name, 2)
        async with Gmqtt(broker, name + "-p", version) as publisher:
            for number in range(20):
                publisher.client.publish(name, b"%d" % number, qos=1 + number % 2)
            async with asyncio.timeout(PATIENCE):
                await publisher.client._persistent_storage.wait_empty()
        async with Gmqtt(broker, name, version, clean_session=False, **expiry) as client:
            assert client.session_present
            got: dict[int, list[int]] = {1: [], 2: []}
            for _ in range(20):
                _, payload, qos, _ = await client.receive()
                got[qos].append(int(payload))
            assert got == {1: list(range(0, 20, 2)), 2: list(range(1, 20, 2))}
        async with Gmqtt(broker, name, version):
            pass

    within(test)


@every_version
def test_will(broker: Broker, name: str, version: int) -> None:
    async def test() -> None:
        async with Gmqtt(broker, name + "-w", version) as watcher:
            await watcher.subscribe(name, 1)
            will = Message(name, b"gone", qos=1)
            dying = Gmqtt(broker, name, version, will_message=will)
            await dying.__aenter__()
            dying.client.stop_reconnect()
            dying.client._connection._transport.abort()
            assert (await watcher.receive())[1] == b"gone"
            await dying.client.disconnect()

    within(test)


@every_version
def test_keep_alive_pings_are_answered(broker: Broker, name: str, version: int) -> None:
    """With a keep-alive of 1 s gmqtt pings after 1 s; the broker gives up after 1.5 s, gmqtt after 2 s."""

    async def test() -> None:
        async with Gmqtt(broker, name, version, keep_alive=1) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2.5):
                    await client.lost.wait()
            await client.subscribe(name, 1)

    within(test)


def test_properties(broker: Broker, name: str) -> None:
    async def test() -> None:
        async with Gmqtt(broker, name, MQTTv50) as client:
            await client.subscribe(name, 1, subscription_identifier=17)
            client.client.publish(
                name,
                b"{}",
                qos=1,
                content_type="application/json",
                response_topic=name + "/answer",
                correlation_data=b"\0\1\xff",
                message_expiry_interval=60,
                payload_format_id=1,
                user_property=[("a", "1"), ("a", "2")],
            )
            _, _, _, got = await client.receive()
            assert got["content_type"] == ["application/json"]
            assert got["response_topic"] == [name + "/answer"]
            assert got["correlation_data"] == [b"\0\1\xff"]
            assert 58 <= got["message_expiry_interval"][0] <= 60
            assert got["payload_format_id"] == [1]
            assert got["user_property"] == [("a", "1"), ("a", "2")]
            assert got["subscription_identifier"] == [17]

    within(test)


def test_topic_aliases_of_the_broker(broker: Broker, name: str) -> None:
    differs(broker, "sends no aliases")

    async def test() -> None:
        async with Gmqtt(broker, name, MQTTv50, topic_alias_maximum=5) as client:
            await client.subscribe(name + "/#", 1)
            for number in range(6):
                client.client.publish(f"{name}/{number % 2}", b"%d" % number, qos=1)
            for number in range(6):
                topic, payload, _, properties = await client.receive()
                assert (topic, payload) == (f"{name}/{number % 2}", b"%d" % number)
                assert properties["topic_alias"][0] in (1, 2)

    within(test)


def test_acknowledged_when_the_handler_has_finished(broker: Broker, name: str) -> None:
    """Without optimistic acknowledgement PUBACK carries what the handler returned."""

    async def test() -> None:
        options = {"optimistic_acknowledgement": False, "receive_maximum": 2}
        async with Gmqtt(broker, name, MQTTv50, **options) as client:
            await client.subscribe(name, 2)
            for qos in (1, 2):
                for number in range(15):
                    client.client.publish(name, b"%d" % number, qos=qos)
                assert [(await client.receive())[1:3] for _ in range(15)] == [
                    (b"%d" % number, qos) for number in range(15)
                ]
            async with asyncio.timeout(PATIENCE):
                await client.client._persistent_storage.wait_empty()

    within(test)
