"""Faults that the client itself requests of the broker, by user properties. The rows are in `table.py`."""

import pytest
import trio
from trio.testing import MockClock

from tests.client.rows.rig import Network, sent
from trunkline.client.errors import ConnectRefused, PublishRefused, SubscribeRefused, UnsubscribeRefused
from trunkline.mqtt.properties import Properties

pytestmark = pytest.mark.mqtt_broker(plugins={"faults": {}})

ONCE = {"requestid": "one"}


def pairs(**words: object) -> list[tuple[str, str]]:
    return [(f"fault:{name}", str(value)) for name, value in words.items()]


def fault(**words: object) -> Properties:
    return {"user_property": pairs(**words)}


async def test_disconnect_on_publish(network: Network, autojump_clock: MockClock) -> None:
    """Before the acknowledgement."""
    publishes = sent(network.broker, "PUBLISH")
    async with network.session() as client:
        assert await client.publish("t", qos=1, properties=fault(disconnect=0x8B, **ONCE)) == 0x10
    assert [publish.dup for publish in publishes] == [False, True]
    assert network.attempts == 2


async def test_disconnect_on_subscribe(network: Network, autojump_clock: MockClock) -> None:
    async with network.session() as client:
        async with await client.subscribe("t", qos=1, properties=fault(disconnect=0x8B, **ONCE)) as messages:
            assert messages.granted == {"t": 1}
        assert network.attempts == 2


async def test_disconnect_on_unsubscribe(network: Network, autojump_clock: MockClock) -> None:
    async with network.session() as client:
        await client.subscribe("t")
        await client.unsubscribe_from("t", properties=fault(disconnect=0x8B, **ONCE))
        assert network.broker.subscriptions == []
    assert network.attempts == 2


async def test_disconnect_without_a_request_id(network: Network, autojump_clock: MockClock) -> None:
    """Each time, so that the request is never answered."""
    publishes = sent(network.broker, "PUBLISH")
    async with network.session() as client:
        with trio.move_on_after(10.5) as scope:
            await client.publish("t", qos=1, properties=fault(disconnect=0x8B))
        assert scope.cancelled_caught
    assert len(publishes) == network.attempts == 11


async def test_delay(network: Network, autojump_clock: MockClock) -> None:
    """The acknowledgement comes, and the end of the connection later."""
    async with network.session() as client:
        began = trio.current_time()
        assert await client.publish("t", qos=1, properties=fault(disconnect=0x8B, delay=60, **ONCE)) == 0x10
        assert trio.current_time() == began
        await client.disconnected()
        assert trio.current_time() - began == 60
        await client.connected()
    assert network.attempts == 2


async def test_reject_connect(network: Network, autojump_clock: MockClock) -> None:
    async with network.session(retry_first=True, user_properties=pairs(rejectconnect=0x89, **ONCE)) as client:
        assert client.is_connected
    assert network.attempts == 2
    with pytest.raises(ConnectRefused, match="banned"):
        async with network.session(retry_first=True, user_properties=pairs(rejectconnect=0x8A)):
            pytest.fail("it is connected")
    assert network.attempts == 3


async def test_reject_publish(network: Network, autojump_clock: MockClock) -> None:
    async with network.session() as client:
        for qos in (1, 2):
            with pytest.raises(PublishRefused) as caught:
                await client.publish("t", qos=qos, properties=fault(rejectpublish=0x97))
            assert caught.value.reason == 0x97
    assert network.attempts == 1


async def test_reject_subscribe(network: Network, autojump_clock: MockClock) -> None:
    async with network.session() as client:
        with pytest.raises(SubscribeRefused) as caught:
            await client.subscribe("t", properties=fault(rejectsubscribe=0x97))
        assert caught.value.reasons == {"t": 0x97}
    assert network.attempts == 1


async def test_reject_unsubscribe(network: Network, autojump_clock: MockClock) -> None:
    async with network.session() as client:
        await client.subscribe("t")
        with pytest.raises(UnsubscribeRefused) as caught:
            await client.unsubscribe_from("t", properties=fault(rejectunsubscribe=0x83))
        assert caught.value.reasons == {"t": 0x83}
    assert network.attempts == 1


async def test_request_id(network: Network, autojump_clock: MockClock) -> None:
    """Only the first request with it gets the fault."""
    async with network.session() as client:
        with pytest.raises(PublishRefused):
            await client.publish("t", qos=1, properties=fault(rejectpublish=0x97, **ONCE))
        assert await client.publish("t", qos=1, properties=fault(rejectpublish=0x97, **ONCE)) == 0x10
        with pytest.raises(PublishRefused):
            await client.publish("t", qos=1, properties=fault(rejectpublish=0x97, requestid="two"))
