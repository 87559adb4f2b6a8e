import logging

import pytest

from tests.broker.room import Room, room
from tests.conformance import raw
from tests.management.asking import ask
from trunkline.broker.connection.connection import Connection
from trunkline.broker.connection.lifecycle import ConnectionState
from trunkline.broker.connection.packet_log import LoggedDecoder


def packets(caplog: pytest.LogCaptureFixture, client_id: str) -> list[str]:
    records = [record for record in caplog.records if record.name == "trunkline.packets"]
    return [record.getMessage() for record in records if vars(record)["client"] == client_id]


def logged(here: Room) -> list[bool]:
    """Of each connection that is open."""
    connections = [each for each in here.node.listeners.connections if isinstance(each, Connection)]
    return [isinstance(each._decoder, LoggedDecoder) for each in connections if each.state is ConnectionState.OPEN]  # pyright: ignore[reportPrivateUsage]


async def test_at_debug_all_packets_are_logged_without_what_they_carry(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "trunkline")
    async with room() as here:
        client = await here.client("a", username="ann", password="secret")
        await client.subscribe(("t", 1))
        # several in one read, which are gathered where nobody looks
        await client.send(*[raw.publish("t", b"secret", qos=1, packet_id=number) for number in (1, 2, 3)])
        for _ in range(3):
            await client.expect_type(raw.PUBLISH)
            await client.expect_type(raw.PUBACK)
        await client.disconnect()
    said = packets(caplog, "a")
    connect, connack = said[:2]
    assert connect == "received CONNECT version=5.0 client_id=a clean_start username=ann password"
    assert connack.startswith("sent CONNACK")
    assert [line for line in said if line.startswith("received PUBLISH")] == [
        f"received PUBLISH t id={number} qos=1 payload_bytes=6" for number in (1, 2, 3)
    ]
    assert [line for line in said if line.startswith("sent PUBLISH")] == [
        f"sent PUBLISH t id={number} qos=1 payload_bytes=6" for number in (1, 2, 3)
    ]
    assert "received SUBSCRIBE id=1 t qos=1" in said
    assert "sent SUBACK id=1 GRANTED_QOS_1" in said
    assert said[-1] == "received DISCONNECT"
    assert "secret" not in caplog.text


async def test_topics_of_more_levels_than_usual_are_logged_both_ways(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "trunkline")
    topic = "/" * 300
    async with room(mqtt={"max_topic_levels": 1000}) as here:
        client = await here.client("a")
        await client.subscribe((topic, 0))
        await client.send(raw.publish(topic, b"x"))
        await client.expect_publish(topic, b"x")
        await client.disconnect()
    assert [line.split()[0] for line in packets(caplog, "a") if "PUBLISH" in line] == ["received", "sent"]


@pytest.mark.parametrize("version", [4, 5])
async def test_what_is_told_to_those_who_are_refused_is_logged(caplog: pytest.LogCaptureFixture, version: int) -> None:
    caplog.set_level(logging.DEBUG, "trunkline")
    async with room(auth={"allow_anonymous": False}) as here:
        denied = here.wire(version)
        await denied.send(raw.connect("a", version=version))
        await denied.rest()
    assert [line.split()[:2] for line in packets(caplog, "a")] == [["received", "CONNECT"], ["sent", "CONNACK"]]


async def test_of_one_client_they_are_logged_while_somebody_wants_that(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "trunkline")
    async with room() as here:
        client, other = await here.client("a"), await here.client("b")
        assert await ask(here, "log.packets", client_id="a") == {"packets_logged_of": ["a"]}
        for wire in (client, other):
            await wire.publish("t", b"x", qos=1, packet_id=1)
        assert packets(caplog, "a")[0] == "received PUBLISH t id=1 qos=1 payload_bytes=1"
        await client.disconnect()
        caplog.clear()
        client = await here.client("a")
        assert packets(caplog, "a")[0].startswith("sent CONNACK")
        assert await ask(here, "log.packets", client_id="a", off=True) == {"packets_logged_of": []}
        caplog.clear()
        await client.publish("t", b"x", qos=1, packet_id=1)
        assert not packets(caplog, "a")
        assert not any(logged(here))
    assert not packets(caplog, "b")


async def test_a_connection_that_nobody_watches_has_nothing_in_its_way() -> None:
    async with room() as here:
        await here.client("a")
        assert logged(here) == [False]
