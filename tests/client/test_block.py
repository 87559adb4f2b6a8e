# ruff: noqa: PT012 - how a block ends is the matter here
import pytest
import trio
from trio.testing import MockClock

from tests.client.opening import client_of
from tests.client.reading import published
from trunkline.client.client import Client
from trunkline.client.errors import AuthenticationFailed, ClientClosed, Disconnected, ReauthenticationFailed
from trunkline.client.running import CLOSE_TIMEOUT
from trunkline.client.settings import ConnectionSettings, WillMessage
from trunkline.hooks.exchange import Success
from trunkline.testing import Broker


async def test_a_ping_is_answered_when_all_before_it_was_read(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with client_of(mqtt_broker) as client:
        receipt = client.publish_nowait("a", "1")
        await client.ping()
        assert receipt.is_done
        assert receipt.error is None
        assert len(published(mqtt_broker, "a")) == 1


async def test_a_ping_fails_with_its_connection(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    client = client_of(mqtt_broker)
    with pytest.raises(ClientClosed):
        await client.ping()
    with pytest.raises(Disconnected):
        async with client:
            mqtt_broker.faults.cut(before="PINGREQ")
            await client.ping()
    with pytest.raises(Disconnected):
        await client.ping()


@pytest.mark.mqtt_broker(auth={"allow_anonymous": True})
async def test_what_the_server_says(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with Client(ConnectionSettings(), open_stream=mqtt_broker.connect) as client:
        assert client.client_id
        assert [row.client_id for row in mqtt_broker.clients] == [client.client_id]
        assert client.server.maximum_qos == 2


async def test_the_error_of_the_block_comes_out_as_it_is(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    error = ValueError("of the block")
    with pytest.raises(ValueError, match="of the block") as caught:
        async with client_of(mqtt_broker):
            raise error
    assert caught.value is error
    assert not mqtt_broker.clients


async def test_leaving_the_block_is_no_loss(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    will = WillMessage(topic="will")
    async with client_of(mqtt_broker, "c", will=will):
        pass
    async with client_of(mqtt_broker, "d", will=will) as client:
        await client.disconnect(0x04)
        with pytest.raises(ClientClosed):
            await client.publish("t")
        with pytest.raises(ClientClosed):
            client.publish_nowait("t")
        await client.disconnect()
    assert [each.publisher for each in published(mqtt_broker, "will")] == ["d"]


async def test_what_was_published_before_the_end_arrives(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with client_of(mqtt_broker) as client:
        for number in range(100):
            await client.publish("t", b"%d" % number)
    assert len(published(mqtt_broker, "t")) == 100


async def test_loops_end_when_the_client_disconnects(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with client_of(mqtt_broker) as client:
        messages = await client.subscribe("t")
        await client.publish("t", b"x")
        await client.publish("t", b"y", qos=1)
        await client.disconnect()
        assert [each.payload async for each in messages] == [b"x", b"y"]


async def test_after_disconnect_the_connection_is_closed(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    opened: list[trio.abc.Stream] = []

    async def opens(settings: ConnectionSettings) -> trio.abc.Stream:
        opened.append(mqtt_broker.connect(settings))
        return opened[0]

    async with Client(ConnectionSettings(), open_stream=opens) as client:
        await client.disconnect()
        with pytest.raises(trio.ClosedResourceError):
            await opened[0].send_all(b"x")


async def test_a_cancelled_block_disconnects(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    with trio.move_on_after(5) as scope:
        async with client_of(mqtt_broker, will=WillMessage(topic="will")):
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert not mqtt_broker.clients
    assert published(mqtt_broker, "will") == []


async def test_a_client_that_was_never_opened() -> None:
    client = Client()
    with pytest.raises(ClientClosed):
        await client.publish("t")
    with pytest.raises(ClientClosed):
        await client.disconnect()
    with pytest.raises(ClientClosed):
        assert client.client_id


async def test_no_reauthentication_without_an_authenticator(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with client_of(mqtt_broker) as client:
        with pytest.raises(AuthenticationFailed):
            await client.reauthenticate()


class Nod:
    """Authentication by a method that needs no data."""

    method = "nod"

    def begin(self) -> None: ...

    def answer(self, challenge: bytes) -> None: ...

    def finish(self, data: bytes) -> None: ...


async def test_a_reauthentication_without_an_answer_ends_the_connection(
    mqtt_broker: Broker, autojump_clock: MockClock
) -> None:
    mqtt_broker.hooks.add("client.enhanced_authenticate", lambda client, exchange: Success())
    with pytest.raises(ReauthenticationFailed):
        async with client_of(mqtt_broker, authenticator=Nod(), connect_timeout=7) as client:
            mqtt_broker.faults.drop("AUTH")
            began = trio.current_time()
            with pytest.raises(ReauthenticationFailed):
                await client.reauthenticate()
            assert trio.current_time() == began + 7
            with trio.move_on_after(CLOSE_TIMEOUT):
                await trio.sleep_forever()
            raise AssertionError("it goes on")
