import pytest

from tests.broker.room import room
from tests.conformance import raw
from trunkline import testing


async def test_what_a_client_sends_can_be_dropped_too() -> None:
    async with room() as here:
        one, other = await here.client("a"), await here.client("b")
        await other.subscribe("#")
        here.broker.faults.drop("PUBLISH", direction="from", topic="t/+")
        await one.send(raw.publish("t/1", b"lost"), raw.publish("other", b"kept"))
        await other.expect_publish("other", b"kept")


async def test_a_predicate_sees_the_decoded_packet() -> None:
    async with room() as here:
        client = await here.client("a")
        await client.subscribe("#")
        here.broker.faults.drop("PUBLISH", direction="to", where=lambda publish: publish.payload == b"bad")
        for payload in (b"good", b"bad", b"better"):
            here.broker.publish("t", payload)
        await client.expect_publish("t", b"good")
        await client.expect_publish("t", b"better")


async def test_a_topic_is_known_by_its_alias() -> None:
    async with room() as here:
        one, other = await here.client("a"), await here.client("b")
        await other.subscribe("#")
        await one.send(raw.publish("secret", b"1", properties=raw.topic_alias(1)))
        await other.expect_publish("secret", b"1")
        fault = here.broker.faults.drop("PUBLISH", direction="from", topic="secret")
        await one.send(raw.publish("", b"2", properties=raw.topic_alias(1)))
        await one.ping()
        assert fault.hits == 1
        await other.expect_nothing()


async def test_an_alias_of_the_broker_is_known_too() -> None:
    async with room() as here:
        client = await here.client("a", properties=raw.topic_alias_maximum(5))
        await client.subscribe("#")
        here.broker.publish("secret", b"1")
        assert (await client.expect_type(raw.PUBLISH)).get(raw.TOPIC_ALIAS) == 1
        fault = here.broker.faults.drop("PUBLISH", direction="to", topic="secret")
        here.broker.publish("secret", b"2")
        await client.expect_nothing()
        assert fault.hits == 1


async def test_a_selection_that_does_not_exist_is_named() -> None:
    async with testing.broker() as b:
        with pytest.raises(TypeError, match="topics"):
            b.faults.drop("PUBLISH", topics="t")  # type: ignore[call-arg]
