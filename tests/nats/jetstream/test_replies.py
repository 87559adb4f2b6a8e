import json

import pytest

from trunkline.nats.jetstream.fields import BadReply
from trunkline.nats.jetstream.replies import (
    ApiError,
    ConsumerMissing,
    MessageMissing,
    NameTaken,
    NotEnabled,
    PublishAck,
    StreamMissing,
    WrongLast,
    parse,
    publish_ack_of,
)


def refused(**error: object) -> bytes:
    return json.dumps({"type": "io.nats.x", "error": error}).encode()


@pytest.mark.parametrize(
    ("err_code", "kind"),
    [
        (10059, StreamMissing),
        (10014, ConsumerMissing),
        (10037, MessageMissing),
        (10058, NameTaken),
        (10013, NameTaken),
        (10148, NameTaken),
        (10071, WrongLast),
        (10164, WrongLast),
        (10076, NotEnabled),
        (10039, NotEnabled),
        (10025, ApiError),
    ],
)
def test_errors(err_code: int, kind: type[ApiError]) -> None:
    with pytest.raises(ApiError) as caught:
        parse(refused(code=400, err_code=err_code, description="what it says"))
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.err_code, caught.value.description) == (400, err_code, "what it says")
    assert str(caught.value) == f"what it says ({err_code})"


def test_errors_that_say_less() -> None:
    for error in ({"code": 503}, {"code": "x", "err_code": None, "description": ""}):
        with pytest.raises(ApiError, match="^no description$"):
            parse(refused(**error))


@pytest.mark.parametrize(
    "payload", [b"", b"x", b"[]", b"3", b'{"error":"x"}', b'{"error":[]}', b"[" * 100_000, b"\xff"]
)
def test_nonsense(payload: bytes) -> None:
    with pytest.raises(BadReply):
        parse(payload)


def test_an_acknowledgement() -> None:
    assert publish_ack_of(b'{"stream":"S", "seq":7}') == PublishAck(stream="S", sequence=7)
    assert publish_ack_of(b'{"stream":"S", "seq":7,"duplicate":true,"domain":"hub","new":"b"}') == PublishAck(
        stream="S", sequence=7, duplicate=True, domain="hub", unknown={"new": "b"}
    )
    with pytest.raises(BadReply, match="PublishAck has no seq"):
        publish_ack_of(b'{"stream":"S"}')
