"""Numbers that anybody may have written: one of thousands of digits is none, and no error of Python."""

from collections.abc import Callable

import pytest

from trunkline.nats.client.message import Message
from trunkline.nats.client.services.request import service_error_of
from trunkline.nats.errors import NotJetStream
from trunkline.nats.jetstream.flows import asked_by
from trunkline.nats.jetstream.statuses import LAST_CONSUMER, number_in
from trunkline.nats.protocol.acknowledging import origin_of
from trunkline.nats.protocol.numbers import number_of
from trunkline.nats.protocol.operations import Deliver

LONG = "9" * 5000


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("17", 17),
        (b"0017", 17),
        (str((1 << 64) - 1), (1 << 64) - 1),
        (str(1 << 64), None),
        ("0" * 20 + "1", None),
        *[(text, None) for text in ("", b"", "-1", "+1", "1.5", "1_0", " 1", "²", "١", b"\xb2", LONG, LONG.encode())],
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_what_is_a_number(text: str | bytes, number: int | None) -> None:
    assert number_of(text) == number


def in_header(name: str) -> Deliver:
    return Deliver(b"a", b"1", b"", f"NATS/1.0\r\n{name}: {LONG}\r\n\r\n".encode(), b"")


@pytest.mark.parametrize(
    ("read", "found"),
    [
        (lambda: number_in(in_header(LAST_CONSUMER), LAST_CONSUMER), None),
        (lambda: asked_by(f"inbox.b.10.ok.{LONG}.1.$FI".encode()), (0, 0)),
        (lambda: asked_by(f"inbox.b.10.ok.1.{LONG}.$FI".encode()), (0, 0)),
    ],
    ids=["in a header", "a sequence", "a step"],
)
def test_too_many_digits_are_no_number(read: Callable[[], object], found: object) -> None:
    assert read() == found


def test_too_many_digits_of_a_service() -> None:
    error = service_error_of(Message(in_header("Nats-Service-Error-Code"), None))  # type: ignore[arg-type]
    assert error is not None
    assert error.code == 0


@pytest.mark.parametrize("place", range(5))
def test_too_many_digits_in_an_origin(place: int) -> None:
    numbers = ["1"] * 5
    numbers[place] = LONG
    with pytest.raises(NotJetStream, match="something else where numbers are") as caught:
        origin_of(f"$JS.ACK.s.c.{'.'.join(numbers)}")
    assert len(str(caught.value)) < 1500
