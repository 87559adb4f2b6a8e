"""Two session clients, one that publishes and one that receives, while the broker cuts, delays, refuses and restarts:
nothing acknowledged is lost, nothing of QoS 2 is doubled, and the order stays.

`THOROUGH=5 pytest tests/client/test_fault_storm.py` tries five times as many seeds.
"""

import os
from contextlib import suppress
from random import Random

import pytest
import trio
from trio.testing import MockClock

from trunkline.client.receivers import Receiver
from trunkline.client.retry import ExponentialBackoff
from trunkline.client.session_client import SessionClient
from trunkline.client.settings import ConnectionSettings
from trunkline.testing import Broker

SEEDS = range(20 * int(os.environ.get("THOROUGH", "1")))
NUMBER = 150


def session_of(broker: Broker, client_id: str, random: Random) -> SessionClient:
    policy = ExponentialBackoff(first=0.1, largest=2, random=random.random)
    settings = ConnectionSettings(client_id=client_id, keep_alive=10, ping_timeout=5, connect_timeout=5)
    return SessionClient(settings, retry=policy, open_stream=broker.connect)


def cut_all(broker: Broker) -> None:
    with suppress(LookupError):  # nobody is connected at this moment
        broker.faults.cut()


async def storm(broker: Broker, random: Random) -> None:
    """Until it is cancelled."""
    packets = ("PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "CONNACK", "PINGRESP")
    while True:
        await trio.sleep(random.uniform(0.1, 3))
        packet = random.choice(packets)
        match random.randrange(6):
            case 0:
                cut_all(broker)
            case 1:
                broker.faults.cut(before=packet, times=1, skip=random.randrange(5)).optional()
            case 2:
                broker.faults.cut(after=packet, times=1).optional()
            case 3:
                with broker.faults.delay(packet, random.uniform(0.1, 8)).optional():
                    await trio.sleep(3)
            case 4:
                broker.faults.refuse_connect("SERVER_BUSY", times=random.randrange(1, 4)).optional()
                cut_all(broker)
            case _:
                await broker.restart(graceful=random.random() < 0.5)


async def collect(messages: Receiver, seen: list[int], random: Random) -> None:
    async for message in messages:
        seen.append(int(message.payload))
        if random.random() < 0.2:
            await trio.sleep(random.random())


@pytest.mark.mqtt_broker(mqtt={"receive_maximum": 20})
@pytest.mark.parametrize("seed", SEEDS)
async def test_a_storm_of_faults(mqtt_broker: Broker, autojump_clock: MockClock, seed: int) -> None:
    random = Random(seed)
    once: list[int] = []
    at_least_once: list[int] = []
    async with (
        session_of(mqtt_broker, "sender", random) as sender,
        session_of(mqtt_broker, "receiver", random) as receiver,
        await receiver.subscribe("two", qos=2) as two,
        await receiver.subscribe("one", qos=1) as one,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(collect, two, once, random)
        nursery.start_soon(collect, one, at_least_once, random)
        nursery.start_soon(storm, mqtt_broker, random)
        for number in range(NUMBER):
            if random.random() < 0.5:
                await sender.publish("two", b"%d" % number, qos=2)
                await sender.publish("one", b"%d" % number, qos=1)
            else:
                receipts = [
                    sender.publish_nowait(topic, b"%d" % number, qos=qos) for topic, qos in (("two", 2), ("one", 1))
                ]
                for receipt in receipts:
                    await receipt.wait()
            await trio.sleep(random.uniform(0, 0.3))
        with trio.fail_after(600):
            while len(once) < NUMBER or NUMBER - 1 not in at_least_once:  # noqa: ASYNC110 - of virtual time
                await trio.sleep(1)
        await trio.sleep(30)
        nursery.cancel_scope.cancel()
    assert len(mqtt_broker.connections) > 10, "the storm was none"
    assert once == list(range(NUMBER))
    assert list(dict.fromkeys(at_least_once)) == list(range(NUMBER))
