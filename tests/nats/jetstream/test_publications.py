import pytest

from trunkline.nats.errors import BadHeaders
from trunkline.nats.jetstream.publications import Demands, headers_of
from trunkline.nats.protocol.headers import Headers


@pytest.mark.parametrize(
    ("demands", "pairs"),
    [
        ({}, []),
        ({"message_id": "m"}, [("Nats-Msg-Id", "m")]),
        ({"expected_stream": "s"}, [("Nats-Expected-Stream", "s")]),
        ({"expected_last_sequence": 0}, [("Nats-Expected-Last-Sequence", "0")]),
        ({"expected_last_sequence": None}, []),
        ({"expected_last_subject_sequence": 7}, [("Nats-Expected-Last-Subject-Sequence", "7")]),
        ({"expected_last_message_id": "m"}, [("Nats-Expected-Last-Msg-Id", "m")]),
        ({"ttl": 90}, [("Nats-TTL", "90000000us")]),
        ({"ttl": 1.5}, [("Nats-TTL", "1500000us")]),
        ({"ttl": 30 * 86_400 + 1}, [("Nats-TTL", "2592001000000us")]),
    ],
)
def test_demands(demands: Demands, pairs: list[tuple[str, str]]) -> None:
    assert list(headers_of(None, demands).pairs()) == pairs
    assert list(headers_of({"A": "b"}, demands).pairs()) == [("A", "b"), *pairs]
    own = Headers([("A", "b"), ("A", "c")])
    assert list(headers_of(own, demands).pairs()) == [("A", "b"), ("A", "c"), *pairs]
    assert len(own) == 1


def test_what_cannot_stand_in_a_header() -> None:
    with pytest.raises(BadHeaders):
        headers_of(None, {"message_id": "a\r\nb"})
