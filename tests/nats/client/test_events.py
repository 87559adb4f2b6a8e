from typing import get_args

import pytest

from tests.nats.client.test_subscription import Owner, subscription
from trunkline.nats.client.events import (
    AnswersDropped,
    ChunksLeft,
    ConsumerRenewed,
    DeleteFailed,
    Disconnected,
    Discovered,
    Event,
    HeartbeatMissed,
    LameDuck,
    MessagesMissed,
    PullFailed,
    Reconnected,
    ServerSaid,
    SlowConsumer,
    words_of,
)
from trunkline.nats.errors import ConnectionLost, RequestTimeout, ServerError, StatusError

SOME = subscription(Owner())

WORDS = {
    Disconnected(ConnectionLost("it broke")): "lost: it broke",
    Reconnected("nats://a:1"): "again: nats://a:1",
    Discovered(("nats://a:1", "nats://b:2")): "nats://a:1, nats://b:2",
    LameDuck(): "going to end",
    SlowConsumer(SOME): "'a' are dropped",
    AnswersDropped("status"): "a request to 'status' are dropped",
    ServerSaid(ServerError("No")): "says: No",
    HeartbeatMissed(SOME, 15.0): "for 15 s",
    MessagesMissed(SOME, 3, 5): "messages 3 to 5",
    ConsumerRenewed(SOME): "made anew",
    PullFailed(SOME, StatusError(503, "nobody answers")): "503 nobody answers",
    DeleteFailed(SOME, RequestTimeout("no answer")): "could not be deleted: no answer",
    ChunksLeft("$O.b.C.N", RequestTimeout("no answer")): "'$O.b.C.N', which no object has any more, could not",
}


@pytest.mark.parametrize(("event", "words"), WORDS.items(), ids=lambda value: type(value).__name__)
def test_words(event: Event, words: str) -> None:
    assert words in words_of(event)


def test_every_event_has_words() -> None:
    assert {type(event) for event in WORDS} == set(get_args(Event))
