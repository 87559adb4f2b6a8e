"""What goes wrong on purpose does so, and nothing else."""

from typing import Any

import pytest

from tests.broker.room import room
from tests.conformance import raw
from tests.testing.people import both_ways, people
from tests.wire import Wire
from trunkline import testing
from trunkline.mqtt.packets import Disconnect, Puback, Publish
from trunkline.mqtt.reasons import Reason


@both_ways
async def test_a_dropped_packet_does_not_arrive(how: str) -> None:
    async with testing.broker() as b, people(how, b) as (one, other):
        fault = b.faults.drop("PUBACK", client="a", times=1)
        await one.send(raw.publish("t", b"1", qos=1, packet_id=1))
        await one.send(raw.publish("t", b"2", qos=1, packet_id=2))
        assert (await one.expect_type(raw.PUBACK)).packet_id == 2
        await other.publish("t", b"3", qos=1)
        assert fault.hits == 1
        await one.expect_nothing()


async def test_of_two_faults_the_older_one_happens() -> None:
    async with room() as here:
        client = await here.client("a")
        first, second = here.broker.faults.drop("PINGRESP", times=1), here.broker.faults.drop("*", direction="to")
        await client.send(raw.PINGREQ)
        await first.triggered()
        await client.send(raw.PINGREQ)
        await second.triggered()
        assert (first.hits, second.hits) == (1, 1)
        assert len(list(here.broker.faults)) == 2
        here.broker.faults.clear()
        assert not list(here.broker.faults)
        await client.ping()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda f: f.drop("PUBAK"), r"no packet is called 'PUBAK' \(did you mean PUBACK\?\); there are CONNECT, CONN"),
        (lambda f: f.drop("WILL"), "no packet is called 'WILL'"),
        (lambda f: f.drop("SUBSCRIBE", direction="to"), r"a broker sends no SUBSCRIBE; 'to' a client go CONNACK, PUBL"),
        (lambda f: f.drop("CONNACK", direction="from"), r"a client sends no CONNACK; 'from' a client go CONNECT, PUB"),
        (lambda f: f.drop("PUBLISH", direction="up"), r"direction='up': it is 'from' or 'to' \(the client\)"),
        (lambda f: f.drop("PUBACK", topic="t"), "topic='t' selects PUBLISH packets; PUBACK has no topic"),
        (lambda f: f.drop("PUBLISH", topic="a#"), "'a#' is not a topic filter: "),
        (lambda f: f.drop("PUBLISH", times=0), "times=0: must be 1 or more"),
        (lambda f: f.drop("PUBLISH", after=-1), "after=-1: must be 0 or more"),
        (lambda f: f.delay("PUBLISH", -1), "seconds=-1: must be more than 0"),
        (lambda f: f.duplicate("PUBLISH", 0), "copies=0: must be more than 0"),
        (lambda f: f.reorder("PUBLISH", 0), "behind=0: must be more than 0"),
        (lambda f: f.cut(before="PUBLISH", after_bytes=1), "give one of them"),
        (lambda f: f.cut(topic="t"), "topic=, where= and skip= choose the packet to cut before= or after=: name one"),
        (lambda f: f.cut(direction="to"), "a connection is cut as a whole"),
        (lambda f: f.drip(seconds=-1), "seconds=-1: must be 0 or more"),
        (lambda f: f.refuse_connect("SUCCESS"), "CONNACK does not refuse with SUCCESS, but with UNSPECIFIED_ERROR, "),
        (lambda f: f.refuse_connect(0xF3), "CONNACK does not refuse with 0xF3, but with "),
        (lambda f: f.refuse_subscribe("banned"), "SUBACK does not refuse with banned, but with "),
        (lambda f: f.refuse_connect("SERVER_BUZY"), "QUOTA_EXCEEDED.*; did you mean SERVER_BUSY?"),
        (lambda f: f.refuse_publish(Reason.BANNED), "PUBACK does not refuse with BANNED, but with "),
    ],
)
async def test_impossible_faults_are_refused_with_what_is_possible(make: Any, message: str) -> None:
    async with testing.broker() as b:
        with pytest.raises(ValueError, match=message):
            make(b.faults)
        assert not list(b.faults)


async def test_a_client_gets_what_the_broker_has_not_sent() -> None:
    async with testing.broker() as b, Wire(b.connect()) as wire, Wire(b.connect(), version=4) as old:
        await wire.connect("a")
        await old.connect("old")
        fault = b.faults.inject(Puback(7), client="a")
        assert (await wire.expect_type(raw.PUBACK)).packet_id == 7
        assert repr(fault) == "<inject PUBACK to 'a', 1 hit>"
        b.faults.inject(Publish("unasked", b"x"))
        await wire.expect_publish("unasked", b"x")
        await old.expect_publish("unasked", b"x")
        b.faults.inject(Disconnect(Reason.SERVER_BUSY), client="a")
        assert (await wire.expect_type(raw.DISCONNECT)).reason == 0x89
        b.faults.inject(b"\xff\x00", client="old")
        assert await old.stream.receive_some() == b"\xff\x00"
        with pytest.raises(LookupError, match="no client 'nobody' is connected"):
            b.faults.inject(b"", client="nobody")
