import pytest

from trunkline.streams.errors import (
    ConsumerNotFound,
    FiltersTaken,
    InvalidStreamConfig,
    MessageNotFound,
    MessageTooLarge,
    RollupForbidden,
    StreamError,
    StreamExists,
    StreamFull,
    StreamNotFound,
    StreamRefuses,
    StreamSealed,
    WrongLastId,
    WrongLastSequence,
)


def test_what_is_missing_is_named() -> None:
    stream, consumer = StreamNotFound("orders"), ConsumerNotFound("orders", "bills")
    assert (str(stream), stream.stream) == ("there is no stream 'orders'", "orders")
    assert (str(consumer), consumer.stream, consumer.consumer) == (
        "the stream 'orders' has no consumer 'bills'",
        "orders",
        "bills",
    )


def test_two_streams_that_would_take_the_same_are_named_with_their_filters() -> None:
    error = FiltersTaken("new", "old", "a/#", "+/b")
    assert str(error) == "the stream 'old' takes messages that the stream 'new' would take: '+/b' and 'a/#' overlap"
    assert error.other == "old"
    assert isinstance(error, StreamExists)


def test_a_publisher_learns_where_the_stream_is() -> None:
    error = WrongLastSequence(3, 5, "the stream 'orders'")
    assert str(error) == "the last sequence of the stream 'orders' is 5, not 3"
    assert (error.expected, error.actual) == (3, 5)


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (StreamNotFound, LookupError),
        (ConsumerNotFound, LookupError),
        (MessageNotFound, LookupError),
        (InvalidStreamConfig, ValueError),
    ],
)
def test_programs_may_catch_them_as_they_catch_pythons_own(kind: type[StreamError], builtin: type[Exception]) -> None:
    assert issubclass(kind, StreamError)
    assert issubclass(kind, builtin)


@pytest.mark.parametrize("kind", [MessageTooLarge, RollupForbidden, StreamFull, StreamSealed, WrongLastId])
def test_whoever_is_refused_may_ask_for_nothing_more(kind: type[StreamError]) -> None:
    assert issubclass(kind, StreamRefuses)
