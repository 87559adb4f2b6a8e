import pytest

from trunkline.broker.guid import to_text
from trunkline.broker.traced_message import ACKED, COMPLETED, DELIVERED, DROPPED, FAULT, HELD, QUEUED, TracedMessage
from trunkline.mqtt.message import Message

MESSAGE = Message("t", b"0123456789", 1, True, {"content_type": "x"}, "p", guid=7, timestamp=5.0)


def traced(*steps: tuple[str, str, str]) -> TracedMessage:
    """With these steps: client, word, reason."""
    record = TracedMessage(MESSAGE, 3, 4, whole=True)
    for at, (client_id, word, reason) in enumerate(steps):
        record.add(client_id, float(at), word, reason)
    return record


def test_the_beginning_of_the_payload_is_kept_with_its_size() -> None:
    row = traced().row()
    assert (row.guid, row.topic, row.publisher, row.qos, row.retain) == (to_text(7), "t", "p", 1, True)
    assert (row.payload, row.size, row.published_at) == (b"0123", 10, 5.0)


def test_what_a_hook_has_changed() -> None:
    record = traced()
    before = record.weight
    grown = record.take(Message("u", b"01", guid=7), 4)
    assert (record.topic, record.published_to, record.payload, record.size) == ("u", "t", b"01", 2)
    assert record.weight == before + grown < before


def test_who_else_gets_it() -> None:
    record = traced()
    before = record.weight
    for others in (("stream a", "worker 0"), (), ("stream b",)):
        record.go_to(others)
        assert record.row().others == others
        assert record.weight == before + sum(map(len, others))


def test_every_step_weighs_and_a_new_subscriber_weighs_more() -> None:
    record = traced()
    before = record.weight
    first, second, own = (record.add(to, 1.0, QUEUED, "") for to in ("a", "a", ""))
    assert first > second == own > 0
    assert record.weight == before + first + second + own
    assert record.steps == 3


def test_the_state_of_the_message_as_a_whole() -> None:
    record = traced()
    assert (record.state, record.reason) == ("", "")
    record.begun = True
    assert record.state == HELD
    record.add("", 1.0, DROPPED, "hook")
    assert (record.state, record.reason) == (DROPPED, "hook")
    assert [str(step.word) for step in record.own_steps] == [DROPPED]
    assert record.clients == ()


def test_the_outcome_for_one_subscriber() -> None:
    record = traced(("a", QUEUED, ""), ("b", QUEUED, ""), ("a", DELIVERED, ""), ("b", DROPPED, "queue_full"))
    assert record.clients == ("a", "b")
    assert str(record.outcome("a")) == "queued, delivered"
    assert (record.outcome("a").state, record.outcome("a").deliveries) == (DELIVERED, 1)
    assert str(record.outcome("b")) == "queued, dropped (queue_full)"
    assert (record.outcome("b").reason, record.outcome("b").deliveries) == ("queue_full", 0)
    assert str(record.outcome("nobody")) == "did not go there"


def test_what_a_fault_of_a_test_lost_was_not_delivered() -> None:
    record = traced(("a", DELIVERED, ""), ("a", DROPPED, FAULT), ("a", DELIVERED, ""))
    assert record.outcome("a").deliveries == 1


def test_whom_it_concerns() -> None:
    record = traced(("a", QUEUED, ""))
    assert [record.concerns(client_id) for client_id in ("p", "a", "b")] == [True, True, False]


@pytest.mark.parametrize(
    ("after", "limit", "found", "cursor"),
    [("", 2, "ab", "b"), ("b", 2, "cd", None), ("b", 1, "c", "c"), ("d", 5, "", None), ("", 4, "abcd", None)],
)
def test_pages_of_subscribers_in_order(after: str, limit: int, found: str, cursor: str | None) -> None:
    record = traced(*[(client_id, QUEUED, "") for client_id in "dbca"])
    page, following = record.outcomes(after, limit)
    assert ("".join(outcome.client_id for outcome in page), following) == (found, cursor)


def test_subscribers_are_counted_in_each_stage_that_they_reached() -> None:
    row = traced(
        *[("a", word, "") for word in (QUEUED, DELIVERED, ACKED, COMPLETED)],
        *[("b", word, "") for word in (QUEUED, DELIVERED, QUEUED)],
        ("c", DROPPED, "too_large"),
    ).row()
    assert (row.receivers, row.waiting, row.delivered, row.acked, row.completed, row.dropped) == (3, 1, 2, 1, 1, 1)
