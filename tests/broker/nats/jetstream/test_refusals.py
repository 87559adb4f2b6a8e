"""Which error of the API an error of a stream is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from trunkline.broker.nats.jetstream.refusals import bad_consumer, bad_json, bad_stream, refusal_of
from trunkline.nats.jetstream.replies import ApiError
from trunkline.store import StoreError
from trunkline.streams import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Each error that a stream can have, as it is raised, and what a client is told.
SEEN: list[tuple[errors.StreamError, int, int, str]] = [
    (errors.InvalidStreamConfig("that is no stream"), 500, 10052, "that is no stream"),
    (errors.InvalidTransform("invalid subject"), 500, 10052, "invalid subject"),
    (errors.StreamNotFound("s"), 404, 10059, "stream not found"),
    (errors.ConsumerNotFound("s", "c"), 404, 10014, "consumer not found"),
    (errors.MessageNotFound("no"), 404, 10037, "no message found"),
    (errors.StreamExists("s"), 400, 10058, "stream name already in use with a different configuration"),
    (errors.FiltersTaken("s", "t", "a", "b"), 400, 10065, "subjects overlap with an existing stream"),
    (errors.ConsumerExists("c"), 400, 10148, "consumer already exists"),
    (errors.ConsumerBound("c"), 400, 10013, "consumer name already in use"),
    (errors.StreamForbids("no", "sealed"), 400, 10109, "invalid operation on sealed stream"),
    (errors.StreamForbids("no", "delete"), 500, 10057, "message delete not permitted"),
    (errors.StreamForbids("no", "purge"), 500, 10110, "stream purge not permitted"),
    (errors.StreamsNotOffered("no"), 503, 10076, "JetStream not enabled"),
    (errors.StreamRefuses("some reason"), 503, 10077, "some reason"),
    (errors.MessageTooLarge("no"), 400, 10054, "message size exceeds maximum allowed"),
    (errors.StreamFull("no", "messages"), 503, 10077, "maximum messages exceeded"),
    (errors.StreamFull("no", "bytes"), 503, 10077, "maximum bytes exceeded"),
    (errors.StreamFull("no", "topic"), 503, 10077, "maximum messages per subject exceeded"),
    (errors.StreamSealed("no"), 400, 10109, "invalid operation on sealed stream"),
    (errors.RollupForbidden("no"), 500, 10111, "rollup not permitted"),
    (errors.InvalidLife("no"), 400, 10165, "invalid per-message TTL"),
    (errors.LifeForbidden("no"), 400, 10166, "per-message TTL is disabled"),
    (errors.WrongLastId("s", "i7"), 400, 10070, "wrong last msg ID: i7"),
    (errors.WrongLastSequence(1, 7, "s"), 400, 10071, "wrong last sequence: 7"),
]


def subclasses(kind: type[Exception]) -> Iterator[type[Exception]]:
    for each in kind.__subclasses__():
        if each.__module__ == errors.__name__:
            yield each
            yield from subclasses(each)


@pytest.mark.parametrize(("error", "code", "number", "text"), SEEN, ids=lambda value: type(value).__name__)
def test_what_an_error_of_a_stream_is(error: errors.StreamError, code: int, number: int, text: str) -> None:
    refusal = refusal_of(error)
    assert (refusal.code, refusal.err_code, refusal.description) == (code, number, text)


def test_each_error_of_streams_is_one_of_these() -> None:
    assert {type(error) for error, *_ in SEEN} == set(subclasses(errors.StreamError))


def test_a_store_that_does_not_work() -> None:
    refusal = refusal_of(StoreError("the disk is full"))
    assert (refusal.code, refusal.err_code) == (503, 10008)
    assert "disk" not in refusal.description


def test_what_is_refused_already_stays_as_it_is() -> None:
    own = ApiError(400, 1, "x")
    assert refusal_of(own) is own


def test_an_error_of_the_broker_is_none_that_a_client_is_told() -> None:
    error = KeyError("x")
    with pytest.raises(KeyError) as raised:
        refusal_of(error)
    assert raised.value is error


def test_errors_with_a_text_of_their_own() -> None:
    assert [
        (each.code, each.err_code, each.description) for each in (bad_json("a"), bad_stream("b"), bad_consumer("c"))
    ] == [
        (400, 10025, "invalid JSON: a"),
        (500, 10052, "b"),
        (500, 10012, "c"),
    ]
