import pytest

from trunkline.nats.jetstream.fields import BadReply
from trunkline.nats.jetstream.flows import (
    FlowAck,
    FlowGap,
    FlowRefusal,
    Step,
    answer_of,
    asked_by,
    knows_fast_batches,
    reply_subject,
)
from trunkline.nats.jetstream.replies import ApiError, PublishAck, WrongLast


@pytest.mark.parametrize(
    ("server", "knows"), [({}, False), ({"api_lvl": 3}, False), ({"api_lvl": 4}, True), ({"api_lvl": "4"}, False)]
)
def test_which_servers_know_fast_batches(server: dict[str, object], knows: bool) -> None:
    assert knows_fast_batches(server) is knows


def test_reply_subjects() -> None:
    assert reply_subject(b"_INBOX.id", 100, 1, Step.START, gaps=False) == b"_INBOX.id.100.fail.1.0.$FI"
    assert reply_subject(b"_INBOX.id", 7, 12, Step.PING, gaps=True) == b"_INBOX.id.7.ok.12.4.$FI"
    assert asked_by(b"_INBOX.id.7.ok.12.4.$FI") == (12, 4)


@pytest.mark.parametrize("subject", [b"", b"a", b"_INBOX.id", b"_INBOX.id.x.4.$FI", b"_INBOX.id.4.x.$FI", b"..$FI"])
def test_no_reply_subjects(subject: bytes) -> None:
    assert asked_by(subject) == (0, 0)


def test_answers() -> None:
    assert answer_of(b'{"type":"ack","seq":10,"msgs":5}') == FlowAck(10, 5)
    assert answer_of(b'{"type":"gap","last_seq":2,"seq":5}') == FlowGap(2, 5)
    refusal = answer_of(b'{"type":"err","seq":2,"error":{"code":400,"err_code":10071,"description":"no"}}')
    assert isinstance(refusal, FlowRefusal)
    assert isinstance(refusal.error, WrongLast)
    assert refusal.sequence == 2
    ack = answer_of(b'{"stream":"f","seq":7,"batch":"id","count":3}')
    assert ack == PublishAck(stream="f", sequence=7, batch="id", count=3)
    with pytest.raises(ApiError, match="disabled"):
        answer_of(b'{"error":{"code":400,"err_code":10205,"description":"disabled"},"stream":"f","seq":0}')


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"[" * 100_000,
        b'{"type":"new"}',
        b'{"type":"err","seq":1}',
        b'{"type":"ack","seq":1}',
        b'{"type":"ack","seq":-1,"msgs":1}',
        b'{"type":"gap","last_seq":"1","seq":2}',
    ],
)
def test_no_answers(payload: bytes) -> None:
    with pytest.raises(BadReply):
        answer_of(payload)
