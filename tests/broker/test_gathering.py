from trunkline.broker.gathering import Gathering
from trunkline.mqtt.message import Message
from trunkline.mqtt.stored import StoredPublication
from trunkline.store import Space, WriteBatch

SPACE = Space("tests")


def gathering(number: int, told: list[str]) -> Gathering:
    batch, stored = WriteBatch(), StoredPublication(number, number, Message("t", b"x", 1))
    batch.put(SPACE, b"k", b"%d" % number)
    batch.put(SPACE, b"%d" % number, b"")
    stored.waiting.append(lambda: told.append(f"publication {number}"))
    return Gathering(number, batch, {stored: None}, [lambda: told.append(f"other {number}")])


def test_what_is_stored_together_is_told_together_and_once() -> None:
    told: list[str] = []
    first = gathering(1, told)
    first.take_in(gathering(2, told))
    assert first.number == 2
    assert first.batch.values == {SPACE: {b"k": b"2", b"1": b"", b"2": b""}}
    for stored in first.unsafe:
        for action in stored.waiting:
            action()
    for action in first.waiting:
        action()
    assert told == ["publication 1", "publication 2", "other 1", "other 2"]
