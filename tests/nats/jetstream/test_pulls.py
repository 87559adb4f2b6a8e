import pytest

from trunkline.nats.jetstream.pulls import AHEAD, MAX_MESSAGES, MAX_OPEN, Ahead, Pulls, ahead_of, size_of
from trunkline.nats.protocol.operations import Deliver

WIRE = Deliver(b"orders", b"1", b"$JS.ACK", b"NATS/1.0\r\n\r\n", b"12345")


@pytest.mark.parametrize(
    ("said", "ahead"),
    [
        ({}, Ahead(500, 0, 250)),
        ({"messages": 1}, Ahead(1, 0, 0)),
        ({"messages": 7}, Ahead(7, 0, 3)),
        ({"messages": 7, "threshold": 0}, Ahead(7, 0, 0)),
        ({"messages": 7, "threshold": 6}, Ahead(7, 0, 6)),
        ({"messages": 7, "threshold": 7}, Ahead(7, 0, 6)),
        ({"messages": MAX_MESSAGES}, Ahead(1_000_000, 0, 500_000)),
        ({"size": 1001}, Ahead(AHEAD, 1001, 500)),
        ({"size": 1000, "threshold_bytes": 900}, Ahead(AHEAD, 1000, 900)),
        ({"size": 1000, "threshold_bytes": 1000}, Ahead(AHEAD, 1000, 999)),
        ({"size": 1}, Ahead(AHEAD, 1, 0)),
    ],
)
def test_how_far_a_loop_asks_ahead(said: dict[str, int], ahead: Ahead) -> None:
    assert ahead_of(**said) == ahead


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"messages": 0}, "ahead: 0 messages, and 0 bytes, of which one is possible"),
        ({"messages": MAX_MESSAGES + 1}, "ahead: 1000001 messages"),
        ({"size": -1}, "ahead: 500 messages, and -1 bytes"),
        ({"messages": 10, "size": 1000}, "of which one is possible"),
        ({"threshold": -1}, "a threshold of -1, of 500 that are asked for ahead"),
        ({"messages": 10, "threshold": 11}, "a threshold of 11, of 10 "),
        ({"size": 100, "threshold_bytes": 101}, "a threshold of 101, of 100 "),
        ({"size": 1000, "threshold": 10}, "threshold_bytes of ahead_bytes"),
        ({"messages": 10, "threshold_bytes": 10}, "threshold is a part of ahead"),
    ],
)
def test_what_contradicts_itself(said: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ahead_of(**said)


def test_what_is_asked_for_is_what_is_missing() -> None:
    ahead = ahead_of(10, threshold=4)
    assert [ahead.room(messages, 999) for messages in (0, 4, 5, 10, 11)] == [(10, 0), (6, 0), None, None, None]
    ahead = ahead_of(size=1000, threshold_bytes=400)
    assert [ahead.room(999, size) for size in (0, 400, 401, 2000)] == [(1_000_000, 1000), (1_000_000, 600), None, None]


def test_size() -> None:
    assert size_of(WIRE) == 6 + 7 + 12 + 5


@pytest.mark.parametrize("messages", [1, 2])
def test_a_pull_goes_on_behind_the_end_of_another_one_while_it_lacks_messages(messages: int) -> None:
    pulls = Pulls()
    first, second = pulls.open(2, 0), pulls.open(messages, 0)
    pulls.came(WIRE)
    pulls.end(first, 2, 0)  # so that it was the second one's
    assert (pulls.messages, second in pulls) == (messages - 1, messages > 1)


def test_a_pull_ends_with_its_last_message() -> None:
    pulls = Pulls()
    token = pulls.open(2, 0)
    assert (pulls.messages, pulls.bytes, token in pulls) == (2, 0, True)
    pulls.came(WIRE)
    assert (pulls.messages, token in pulls) == (1, True)
    pulls.came(WIRE)
    assert (pulls.messages, token in pulls) == (0, False)
    pulls.came(WIRE)  # more than was asked for
    assert pulls.messages == 0


@pytest.mark.parametrize(
    ("left", "messages", "size"),
    [
        ((3, 60), 10 + 10 - 4 - 3, 100 + 100 - 60),
        ((0, 0), 10 + 10 - 4, 100 + 100),
        ((None, None), 10 + 10 - 4 - 10, 100),
    ],
)
def test_a_pull_that_the_server_ends(left: tuple[int | None, int | None], messages: int, size: int) -> None:
    """The messages of both pulls are counted together: which one a message answers is not said."""
    pulls = Pulls()
    first, second = pulls.open(10, 100), pulls.open(10, 100)
    for _ in range(4):
        pulls.came(Deliver(b"", b"", b"", b"", b""))
    pulls.end(first, *left)
    assert (pulls.messages, pulls.bytes) == (messages, size)
    assert first not in pulls
    assert second in pulls
    pulls.end(first, 10, 100)  # it is said once more
    assert pulls.messages == messages
    pulls.end(second, 0, 0)
    assert (pulls.messages, pulls.bytes) == (0, 0)


def test_a_server_that_says_more_than_was_asked_for() -> None:
    pulls = Pulls()
    first, _ = pulls.open(10, 100), pulls.open(10, 100)
    pulls.end(first, 15, 10**18)
    assert (pulls.messages, pulls.bytes) == (10, 100)


def test_pulls_that_end_without_a_word_take_no_room() -> None:
    """One is always open beside them."""
    pulls = Pulls()
    first = pulls.open(2, 0)
    for _ in range(MAX_OPEN):
        last = pulls.open(1, 0)
        pulls.came(WIRE)
    assert (first in pulls, last in pulls, pulls.messages) == (False, True, 2)


def test_bytes() -> None:
    pulls = Pulls()
    pulls.open(100, 40)
    pulls.came(WIRE)
    assert pulls.bytes == 10
    pulls.came(WIRE)
    assert pulls.bytes == 0


def test_a_lost_connection() -> None:
    pulls = Pulls()
    token = pulls.open(2, 50)
    pulls.forget()
    assert (pulls.messages, pulls.bytes, token in pulls) == (0, 0, False)
    assert pulls.open(1, 0) != token
