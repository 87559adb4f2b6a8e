"""What becomes of new clients and of slow ones while a mark is exceeded."""

import logging

import pytest

from tests.broker.inside import inside
from tests.conformance import raw
from tests.wire import Wire
from trunkline import testing
from trunkline.broker.overload import Resource
from trunkline.hooks.client import ClientInfo
from trunkline.mqtt.message import Message

REFUSALS = [
    (Resource.MEMORY, 5, 0x97),
    (Resource.MEMORY, 4, 3),
    (Resource.FILES, 5, 0x97),
    (Resource.FILES, 4, 3),
    (Resource.LAG, 5, 0x88),
    (Resource.LAG, 4, 3),
]


@pytest.mark.parametrize(("resource", "version", "code"), REFUSALS)
async def test_new_clients_are_refused_and_others_stay(
    resource: Resource, version: int, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with testing.broker(history=0) as b, await Wire.open(b.host, b.port, version=version) as old:
        await old.connect("old")
        inside(b.node).services.overload.exceeded[resource] = "a mark"
        for client_id in ("new", "newer"):
            async with await Wire.open(b.host, b.port, version=version) as new:
                await new.send(raw.connect(client_id, version=version))
                assert (await new.expect_type(raw.CONNACK)).reason == code
                await new.expect_close()
        await old.publish("t", qos=2)
        figures = await b.node.figures()
        assert figures[f"overload.{resource.word}"] == figures["packets.connack.error"] == 2
        inside(b.node).services.overload.exceeded.clear()
        async with await Wire.open(b.host, b.port, version=version) as new:
            await new.connect("new")
    (line,) = [each for each in caplog.records if each.name == "trunkline.limits" and "more" not in each.getMessage()]
    assert line.levelno == logging.WARNING
    assert line.getMessage() == f"overload.{resource.word} acted for 1 client: a mark (client new)"


async def test_qos_0_to_a_slow_consumer_is_dropped_first() -> None:
    payload = bytes(50_000)
    dropped: list[tuple[str, str]] = []
    async with testing.broker(history=0, session={"max_inflight": 1000}) as b:

        def note(client: ClientInfo, message: Message, word: str) -> None:
            dropped.append((client.client_id, word))

        b.node.hooks.add("message.dropped", note)
        async with (
            await Wire.open(b.host, b.port) as slow,
            await Wire.open(b.host, b.port) as quick,
            await Wire.open(b.host, b.port) as publisher,
        ):
            for client, name in ((slow, "slow"), (quick, "quick"), (publisher, "publisher")):
                await client.connect(name)
            await slow.subscribe(("t", 1))
            await quick.subscribe(("t", 1))
            inside(b.node).services.overload.exceeded[Resource.MEMORY] = "a mark"
            number = 0
            while len(dropped) < 20:  # the buffers of the system are full by then
                number += 1
                for qos in (0, 1):
                    await publisher.publish("t", payload, qos=qos)
                    await quick.take_publish("t", payload, qos=qos)
            assert set(dropped) == {("slow", "overloaded")}
            assert (await b.node.figures())["delivery.dropped.overloaded"] == len(dropped)
            got = [0, 0]
            while got[1] < number:
                packet = await slow.expect_type(raw.PUBLISH)
                await slow.acknowledge(packet)
                got[packet.qos] += 1
            assert got == [number - len(dropped), number]
