import pytest

from trunkline.nats.jetstream.pulls import MAX_OPEN, Pulls, size_of
from trunkline.nats.protocol.operations import Deliver

WIRE = Deliver(b"orders", b"1", b"$JS.ACK", b"NATS/1.0\r\n\r\n", b"12345")


def test_size() -> None:
    assert size_of(WIRE) == 6 + 7 + 12 + 5


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
