import pytest

from trunkline.nats.errors import BadSubject
from trunkline.nats.jetstream.entries import Operation, check_key, check_keys, operation_of


@pytest.mark.parametrize("key", ["a", "auth.username", "A-z/9_=.x", "_a", "a._kv"])
def test_a_key(key: str) -> None:
    check_key(key)
    check_keys(key)


@pytest.mark.parametrize("key", ["", ".", ".a", "a.", "a..b", "a b", "a\n", "ä", "a$", "a:b", "a\\b", "a" * 3000])
def test_no_key(key: str) -> None:
    with pytest.raises(BadSubject):
        check_key(key)
    with pytest.raises(BadSubject):
        check_keys(key)


@pytest.mark.parametrize("key", ["*", ">", "a.*", "a.>", "_kv", "_kv.a", "_kvx"])
def test_what_is_for_reading_only(key: str) -> None:
    check_keys(key)
    with pytest.raises(BadSubject):
        check_key(key)


def test_a_rest_that_is_not_at_the_end() -> None:
    with pytest.raises(BadSubject, match="> is not the last token"):
        check_keys("a.>.b")


@pytest.mark.parametrize(
    ("headers", "operation"),
    [
        ({}, Operation.PUT),
        ({"KV-Operation": "PUT"}, Operation.PUT),
        ({"KV-Operation": "DEL"}, Operation.DELETE),
        ({"KV-Operation": "PURGE"}, Operation.PURGE),
        ({"KV-Operation": "what comes later"}, Operation.DELETE),
        # ADR-48, Retrieving Values
        ({"Nats-Marker-Reason": "MaxAge"}, Operation.PURGE),
        ({"Nats-Marker-Reason": "Purge"}, Operation.PURGE),
        ({"Nats-Marker-Reason": "Remove"}, Operation.DELETE),
    ],
)
def test_operations(headers: dict[str, str], operation: Operation) -> None:
    assert operation_of(headers) is operation
