from collections.abc import Callable

from trunkline.broker.links.frames import NOWHERE, BurstFrame, LinkPlace
from trunkline.broker.links.outgoing import OutgoingBursts


class Told:
    def __init__(self) -> None:
        self.stored: list[str] = []

    def __call__(self, name: str) -> Callable[[], None]:
        return lambda: self.stored.append(name)


def numbers(outgoing: OutgoingBursts) -> list[int]:
    return [burst.number for burst in outgoing.take()]


def test_what_is_sent_once_is_in_memory_no_more() -> None:
    outgoing = OutgoingBursts()
    outgoing.begin(NOWHERE, 100)
    outgoing.add(b"one", None)
    outgoing.add(b"two", None)
    assert outgoing.weight == 6
    assert list(outgoing.take()) == [BurstFrame(1, b"one", is_kept=False), BurstFrame(2, b"two", is_kept=False)]
    assert (outgoing.weight, outgoing.unstored, outgoing.lost) == (0, 0, 0)


def test_what_is_kept_is_there_until_it_is_stored() -> None:
    outgoing, told = OutgoingBursts(), Told()
    outgoing.begin(NOWHERE, 100)
    for name in "abc":
        outgoing.add(name.encode(), told(name))
    assert numbers(outgoing) == [1, 2, 3]
    assert (outgoing.weight, outgoing.unstored) == (3, 3)
    outgoing.acked(2)
    assert (told.stored, outgoing.weight, outgoing.unstored) == (["a", "b"], 1, 1)
    outgoing.acked(2)
    outgoing.acked(3)
    assert (told.stored, outgoing.weight, outgoing.unstored) == (["a", "b", "c"], 0, 0)


def test_no_more_than_the_credit_is_on_its_way() -> None:
    outgoing = OutgoingBursts()
    outgoing.begin(NOWHERE, 5)
    for _ in range(5):
        outgoing.add(b"xxx", None)
    assert numbers(outgoing) == [1, 2], "the second one exceeds it"
    assert numbers(outgoing) == []
    outgoing.worked_off(1, 5)
    assert numbers(outgoing) == [], "six are on their way, and six may be"
    outgoing.worked_off(2, 5)
    assert numbers(outgoing) == [3]
    outgoing.worked_off(9, 5)
    assert numbers(outgoing) == [4, 5]


def test_the_next_connection_gets_what_was_kept_and_has_not_come() -> None:
    outgoing, told = OutgoingBursts(), Told()
    outgoing.begin(NOWHERE, 100)
    for name in "abcd":
        outgoing.add(name.encode(), told(name))
    outgoing.add(b"once", None)
    assert numbers(outgoing) == [1, 2, 3, 4, 5]
    outgoing.add(b"e", told("e"))
    outgoing.add(b"lost", None)
    outgoing.end()
    assert (outgoing.lost, outgoing.weight) == (1, 5)
    outgoing.lose()
    outgoing.add(b"f", told("f"))
    assert numbers(outgoing) == [], "there is no connection"
    outgoing.begin(LinkPlace(1, received=3, applied=1), 100)
    assert told.stored == ["a"]
    assert list(outgoing.take()) == [BurstFrame(4, b"d"), BurstFrame(6, b"e"), BurstFrame(9, b"f")]
    outgoing.acked(9)
    assert told.stored == list("abcdef")
    assert (outgoing.weight, outgoing.unstored, outgoing.lost) == (0, 0, 2)


def test_a_connection_has_a_credit_of_its_own() -> None:
    outgoing, told = OutgoingBursts(), Told()
    outgoing.begin(NOWHERE, 2)
    for name in "abc":
        outgoing.add(name.encode(), told(name))
    assert numbers(outgoing) == [1, 2]
    outgoing.end()
    outgoing.begin(NOWHERE, 1)
    assert numbers(outgoing) == [1]
    outgoing.worked_off(1, 1)
    assert numbers(outgoing) == [2]
