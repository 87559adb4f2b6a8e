import pytest
import trio
from trio.testing import MockClock

from tests.client.opening import client_of, cut, session_of
from tests.client.reading import published
from trunkline.client.errors import RequestQueueFull
from trunkline.testing import Broker


@pytest.mark.mqtt_broker(mqtt={"receive_maximum": 10})
async def test_a_cancelled_publish_leaves_the_queue(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with client_of(mqtt_broker, max_queued=2) as client:
        mqtt_broker.faults.delay("PUBACK", 10)
        async with trio.open_nursery() as nursery:
            burst = [b"%d" % number for number in range(30)]  # more than the window
            nursery.start_soon(lambda: client.publish_many("first", burst, qos=1))
            await trio.testing.wait_all_tasks_blocked()
            with trio.move_on_after(1) as scope:
                await client.publish("cancelled", qos=1)
            assert scope.cancelled_caught
            await client.publish("last", qos=1)
        assert [each.topic for each in mqtt_broker.messages if each.topic != "first"] == ["last"]


@pytest.mark.mqtt_broker(mqtt={"receive_maximum": 10})
async def test_a_full_queue(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    mqtt_broker.faults.drop("PUBACK", times=1)
    async with client_of(mqtt_broker, max_queued=2) as client:
        maximum = client.server.receive_maximum
        receipts = [client.publish_nowait("t", qos=1) for _ in range(maximum + 2)]
        with pytest.raises(RequestQueueFull):
            client.publish_nowait("t", qos=1)
        receipts[-1].cancel()
        last = client.publish_nowait("t", qos=1)
        assert await last.wait() == 0x10
        assert [receipt.is_done for receipt in receipts] == [False] + [True] * (maximum + 1)
        assert await receipts[1].wait() == 0x10


async def test_publish_waits_for_room(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    done: list[int] = []
    async with client_of(mqtt_broker, max_queued=1) as client, trio.open_nursery() as nursery:

        async def publish(number: int) -> None:
            await client.publish("t", b"%d" % number, qos=1)
            done.append(number)

        for number in range(500):
            nursery.start_soon(publish, number)
    assert sorted(done) == list(range(500))
    assert len(published(mqtt_broker, "t")) == 500


async def test_a_full_queue_discards_no_unsubscription(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with session_of(mqtt_broker, max_queued=2, overflow="drop_oldest") as client:
        subscription = await client.subscribe("t")
        await cut(mqtt_broker, client)
        with pytest.raises(LookupError):
            async with subscription:
                raise LookupError
        receipts = [client.publish_nowait("u", qos=1) for _ in range(3)]
        await client.connected()
        await client.ping()
        assert receipts[0].error is not None
        assert receipts[2].error is None
        assert mqtt_broker.subscriptions == []
