"""Answers of services that are errors."""

from typing import Any

import pytest

from trunkline.nats.client.message import Message
from trunkline.nats.client.services.request import ServiceRequest, service_error_of
from trunkline.nats.errors import NatsError
from trunkline.nats.protocol.headers import Headers, encode_headers
from trunkline.nats.protocol.operations import Deliver


class Answering:
    """Keeps what a message is answered with, as its asker gets it."""

    def __init__(self) -> None:
        self.answers: list[Message] = []

    def answer(self, subject: str, payload: bytes, *, headers: Any = None) -> None:
        block = encode_headers(headers if isinstance(headers, Headers) else Headers(headers or {}))
        self.answers.append(Message(Deliver(subject.encode(), b"1", b"", block, payload), self))


def request_of(reply: bytes = b"r") -> tuple[ServiceRequest, Answering]:
    answering = Answering()
    return ServiceRequest(Deliver(b"a", b"1", reply, b"", b"x"), answering), answering


@pytest.mark.parametrize("headers", [{"a": "b"}, Headers([("a", "b")])])
def test_an_error_is_told_in_two_headers(headers: Any) -> None:
    request, answering = request_of()
    assert request.error is None
    request.respond_error(404, "no such\r\nthing", b"{}", headers=headers)
    (answer,) = answering.answers
    assert (answer.payload, answer.headers["a"]) == (b"{}", "b")
    assert answer.headers["Nats-Service-Error"] == "no such thing"
    assert answer.headers["Nats-Service-Error-Code"] == "404"
    found = service_error_of(answer)
    assert found is not None
    assert (found.code, found.text, str(found)) == (404, "no such thing", "404:no such thing")
    assert request.error is not None
    assert request.error.code == 404


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Nats-Service-Error": "why"}, (0, "why")),
        ({"Nats-Service-Error-Code": "7"}, (7, "")),
        ({"Nats-Service-Error": "why", "Nats-Service-Error-Code": "²"}, (0, "why")),
        ({"Nats-Service-Error": "why", "Nats-Service-Error-Code": "much"}, (0, "why")),
    ],
)
def test_an_error_that_others_tell(headers: dict[str, str], expected: tuple[int, str]) -> None:
    request, answering = request_of()
    request.respond(b"", headers=headers)
    found = service_error_of(answering.answers[0])
    assert found is not None
    assert (found.code, found.text) == expected


def test_what_is_no_error() -> None:
    request, answering = request_of()
    request.respond(b"1", headers={"a": "b"})
    assert service_error_of(answering.answers[0]) is None
    nobody, _ = request_of(b"")
    with pytest.raises(NatsError, match="asks for no answer"):
        nobody.respond_error(404, "why")
    assert nobody.error is None
