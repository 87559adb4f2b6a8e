import pytest

from trunkline.nats.errors import StatusError, UnknownStatus
from trunkline.nats.jetstream.statuses import LAST_CONSUMER, Meaning, error_of, meaning_of, number_in, status_of
from trunkline.nats.protocol.headers import Status
from trunkline.nats.protocol.operations import Deliver


@pytest.mark.parametrize(
    ("code", "text", "meaning", "error"),
    [
        (100, "Idle Heartbeat", Meaning.ALIVE, None),
        (100, "FlowControl Request", Meaning.ALIVE, None),
        (404, "No Messages", Meaning.ENDED, None),
        (408, "Request Timeout", Meaning.ENDED, None),
        (409, "Batch Completed", Meaning.ENDED, None),
        (409, "Leadership Change", Meaning.AGAIN, StatusError),
        (409, "Server Shutdown", Meaning.AGAIN, StatusError),
        (409, "Exceeded MaxWaiting", Meaning.AGAIN, StatusError),
        (409, "Message Size Exceeds MaxBytes", Meaning.TOO_LARGE, StatusError),
        (409, "Consumer Deleted", Meaning.ERROR, StatusError),
        (409, "Consumer is push based", Meaning.ERROR, StatusError),
        (409, "Exceeded MaxRequestBatch of 5", Meaning.ERROR, StatusError),
        (400, "Bad Request", Meaning.ERROR, StatusError),
        (503, "", Meaning.AGAIN, StatusError),
        (777, "What", Meaning.ERROR, UnknownStatus),
        (101, "", Meaning.ERROR, UnknownStatus),
    ],
)
def test_meanings(code: int, text: str, meaning: Meaning, error: type[StatusError] | None) -> None:
    status = Status(code, text)
    assert meaning_of(status) is meaning
    if error is not None:
        found = error_of(status)
        assert type(found) is error
        assert (found.code, str(found)) == (code, f"{code} {text or 'nobody answers'}" if code != 101 else "101")


@pytest.mark.parametrize(
    ("reply", "block", "payload", "status"),
    [
        (b"", b"NATS/1.0 503\r\n\r\n", b"", Status(503, "")),
        (b"$JS.FC.o", b"NATS/1.0 100 FlowControl Request\r\n\r\n", b"", Status(100, "FlowControl Request")),
        (b"", b"NATS/1.0\r\nA: b\r\n\r\n", b"", None),
        (b"", b"NATS/1.0 100 Idle Heartbeat\r\n\r\n", b"x", None),
        # somebody has published that to the stream
        (b"$JS.ACK.o.c.1.1.1.1.0", b"NATS/1.0 503\r\n\r\n", b"", None),
        (b"", b"NATS/1.0 what\r\n\r\n", b"", None),
        (b"", b"", b"", None),
    ],
)
def test_messages_that_are_none(reply: bytes, block: bytes, payload: bytes, status: Status | None) -> None:
    assert status_of(Deliver(b"d", b"1", reply, block, payload)) == status


@pytest.mark.parametrize(
    ("line", "number"),
    [
        (b"Nats-Last-Consumer: 17", 17),
        (b"Nats-Last-Consumer: -1", None),
        (b"Nats-Last-Consumer: 18446744073709551615", 2**64 - 1),
        (b"Nats-Last-Consumer: " + b"9" * 5000, None),  # more than Python reads
        (b"A: 1", None),
        (b"Nats-Last-Consumer:", None),
    ],
)
def test_numbers(line: bytes, number: int | None) -> None:
    wire = Deliver(b"d", b"1", b"", b"NATS/1.0 100 Idle Heartbeat\r\n%b\r\n\r\n" % line, b"")
    assert number_in(wire, LAST_CONSUMER) == number
