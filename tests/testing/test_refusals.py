import pytest

from tests.broker.room import room
from tests.conformance import raw
from trunkline.mqtt.reasons import Reason


@pytest.mark.parametrize(("version", "code"), [(5, 0x89), (4, 3), (3, 3)])
async def test_connects_are_refused(version: int, code: int) -> None:
    async with room() as here:
        fault = here.broker.faults.refuse_connect("server_busy", client="a", times=1)
        refused = here.wire(version)
        await refused.send(raw.connect("a", version=version))
        assert (await refused.expect_type(raw.CONNACK)).reason == code
        await here.client("b", version)
        await here.client("a", version)
        assert fault.hits == 1


async def test_an_enhanced_authentication_is_refused_too() -> None:
    async with room() as here:
        here.broker.faults.refuse_connect(Reason.BANNED)
        refused = here.wire()
        await refused.send(raw.connect("a", properties=raw.authentication_method("RIDDLE")))
        assert (await refused.expect_type(raw.CONNACK)).reason == 0x8A


async def test_subscribes_are_refused_by_filter() -> None:
    async with room() as here:
        client = await here.client("a")
        with here.broker.faults.refuse_subscribe(0x87, filter="secret/#") as fault:
            assert await client.subscribe("secret/one", "$share/g/secret/+", "open") == [0x87, 0x87, 2]
            assert fault.hits == 2
        old = await here.client("old", 4)
        with here.broker.faults.refuse_subscribe("QUOTA_EXCEEDED"):
            assert await old.subscribe("open") == [0x80]
        assert await client.subscribe("secret/one") == [2]


async def test_publishes_are_refused_by_topic() -> None:
    async with room() as here:
        client = await here.client("a")
        here.broker.faults.refuse_publish("QUOTA_EXCEEDED", topic="full/#")
        answer = await client.publish("full/1", qos=1)
        assert answer is not None
        assert answer.reason == 0x97
        answer = await client.publish("full/1", qos=2)
        assert answer is not None
        assert answer.reason == 0x97
        answer = await client.publish("empty", qos=1)
        assert answer is not None
        assert answer.reason == 0x10
