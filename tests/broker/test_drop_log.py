import logging

import pytest
from trio.testing import MockClock

from tests.broker.room import room
from tests.conformance import raw
from trunkline.broker.drop_log import say_dropped
from trunkline.broker.log_throttle import Occurrences
from trunkline.broker.metrics import DropReason


def dropped(reason: DropReason, caplog: pytest.LogCaptureFixture, topic: str = "a/1") -> logging.LogRecord:
    times = Occurrences()
    times.count, times.whom, times.last = 2107, {"c1", "c2"}, ("c1", topic)
    caplog.set_level(logging.DEBUG, "trunkline.dropped")
    say_dropped(reason, times)
    return caplog.records[-1]


def test_a_record_names_reason_client_and_topic(caplog: pytest.LogCaptureFixture) -> None:
    record = dropped(DropReason.QUEUE_FULL, caplog)
    assert record.getMessage() == "2,107 messages dropped for 2 clients: queue full (e.g. client c1, topic a/1)"
    fields = {name: vars(record)[name] for name in ("reason", "count", "clients", "topic")}
    assert fields == {"reason": "queue_full", "count": 2107, "clients": 2, "topic": "a/1"}


@pytest.mark.parametrize(
    ("reason", "level"),
    [
        (DropReason.NO_SUBSCRIBERS, "INFO"),
        (DropReason.NO_LOCAL, "INFO"),
        (DropReason.REDISPATCHED, "INFO"),
        (DropReason.EXPIRED, "INFO"),
        (DropReason.TOO_LARGE, "WARNING"),
        (DropReason.NOT_AUTHORIZED, "WARNING"),
    ],
)
def test_what_is_lost_unwantedly_is_a_warning(reason: DropReason, level: str, caplog: pytest.LogCaptureFixture) -> None:
    assert dropped(reason, caplog).levelname == level


def test_a_long_topic_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    assert len(dropped(DropReason.EXPIRED, caplog, "a" * 10_000).getMessage()) < 400


@pytest.mark.parametrize("reason", DropReason)
def test_no_reason_is_for_the_level_debug_alone(reason: DropReason, caplog: pytest.LogCaptureFixture) -> None:
    assert dropped(reason, caplog).levelno >= logging.INFO


async def test_what_a_broker_drops_is_in_its_log(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "trunkline.dropped")
    async with room(session={"max_queue_length": 10}) as here:
        away = await here.stay("away")
        await away.subscribe("t")
        await away.disconnect()
        small = await here.client("small", properties=raw.maximum_packet_size(100))
        await small.subscribe("t")
        publisher = await here.client("p")
        for number in range(60):
            await publisher.publish("t", b"x" * (1000 if number == 0 else 1), qos=1, packet_id=1)
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    too_large, full, more = said
    assert (
        too_large
        == "1 message dropped for 1 client: too large (client small, topic t: 1009 bytes; the client accepts 100)"
    )
    assert full == "1 message dropped for 1 client: queue full (client away, topic t)"
    assert more.startswith("49 more messages dropped in the last minute for 1 client: queue full")


async def test_a_refused_subscription_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "trunkline.session")
    async with room(session={"max_subscriptions": 1}) as here:
        client = await here.client("a")
        assert await client.subscribe(("t/1", 0), ("t/2", 0), ("t/3", 0)) == [0, 0x97, 0x97]
        await client.disconnect()
    said = [message for message in caplog.messages if "refused" in message]
    assert said == [
        "1 subscription refused of 1 client: quota exceeded (client a, filter t/2: too many subscriptions)",
        (
            "1 more subscription refused in the last minute of 1 client: quota exceeded "
            "(client a, filter t/3: too many subscriptions)"
        ),
    ]
