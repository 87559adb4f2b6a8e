import logging
from collections.abc import Callable

import pytest
from trio.testing import MockClock

from tests.broker.room import room
from tests.conformance import raw
from trunkline.broker.drop_log import INTERVAL, MAX_CLIENTS, DropLog
from trunkline.broker.metrics import DropReason


class Later:
    """What is to be called, in order."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def __call__(self, delay: float, callback: Callable[[], None]) -> None:
        assert delay == INTERVAL
        self.calls.append(callback)

    def minute(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


@pytest.fixture
def later() -> Later:
    return Later()


@pytest.fixture
def log(later: Later, caplog: pytest.LogCaptureFixture) -> DropLog:
    caplog.set_level(logging.DEBUG, "trunkline")
    return DropLog(later)


def test_the_first_is_told_at_once_and_the_rest_by_the_minute(
    log: DropLog, later: Later, caplog: pytest.LogCaptureFixture
) -> None:
    log.note("c1", "a/1", DropReason.QUEUE_FULL)
    for number in range(2107):
        log.note(f"c{number % 3}", f"a/{number}", DropReason.QUEUE_FULL)
    assert caplog.messages == ["1 message dropped for 1 client: queue full (topic a/1, client c1)"]
    later.minute()
    assert caplog.messages[1:] == [
        "2,107 more messages dropped in the last minute for 3 clients: queue full (e.g. topic a/2106, client c0)"
    ]
    record = caplog.records[1]
    assert (record.levelname, vars(record)["reason"], vars(record)["count"]) == ("WARNING", "queue_full", 2107)
    log.note("c1", "a/9", DropReason.QUEUE_FULL)
    assert len(caplog.messages) == 2
    later.minute()
    assert caplog.messages[2:] == [
        "1 more message dropped in the last minute for 1 client: queue full (topic a/9, client c1)"
    ]


def test_after_a_quiet_minute_the_next_is_a_first_again(
    log: DropLog, later: Later, caplog: pytest.LogCaptureFixture
) -> None:
    log.note("c1", "a", DropReason.TOO_LARGE)
    later.minute()
    assert not later.calls
    log.note("c1", "a", DropReason.TOO_LARGE)
    assert caplog.messages == ["1 message dropped for 1 client: too large (topic a, client c1)"] * 2


def test_each_reason_has_a_record_of_its_own(log: DropLog, later: Later, caplog: pytest.LogCaptureFixture) -> None:
    for reason in DropReason:
        log.note("c1", "a", reason)
        log.note("c1", "a", reason)
    assert len(later.calls) == 1
    later.minute()
    assert len(caplog.messages) == 2 * len(DropReason)
    levels = {vars(record)["reason"]: record.levelname for record in caplog.records}
    assert levels["no_subscribers"] == "DEBUG"
    assert levels["expired"] == "INFO"
    assert levels["too_large"] == "WARNING"


def test_clients_are_counted_up_to_a_bound(log: DropLog, later: Later, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(2 * MAX_CLIENTS):
        log.note(f"c{number}", "a" * 10_000, DropReason.SLOW_CONSUMER)
    later.minute()
    assert "for 1000 or more clients" in caplog.messages[1]
    assert all(len(message) < 400 for message in caplog.messages)


def test_at_the_end_the_rest_is_told(log: DropLog, caplog: pytest.LogCaptureFixture) -> None:
    log.note("c1", "a", DropReason.EXPIRED)
    log.flush()
    assert len(caplog.messages) == 1
    log.note("c1", "a", DropReason.EXPIRED)
    log.flush()
    assert len(caplog.messages) == 2


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
    assert too_large == "1 message dropped for 1 client: too large (topic t, client small)"
    assert full == "1 message dropped for 1 client: queue full (topic t, client away)"
    assert more.startswith("49 more messages dropped in the last minute for 1 client: queue full")
