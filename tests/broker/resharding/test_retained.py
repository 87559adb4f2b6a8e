"""Which of the retained messages of several parts is kept."""

from math import inf
from typing import Final

import pytest

from tests.broker.resharding.divided import all_rows, divide, holding
from trunkline.broker.shards.outbox import SPREADING
from trunkline.broker.stored_retained import RETAINED, retained_to_bytes
from trunkline.mqtt.message import Message
from trunkline.mqtt.message_row import message_from_row
from trunkline.mqtt.packing import pack, unpack
from trunkline.router.retained import Retained
from trunkline.store import Space

Held = tuple[Space, bytes, bytes]

#: Seconds.
LATE: Final = 1000.0


def kept(payload: bytes, version: int = 0, deadline: float = inf) -> Held:
    message = Message("t", payload, retain=True, expires_at=deadline)
    return RETAINED, b"t", retained_to_bytes(Retained(message, deadline, 1, 1, version), 0.0)


def spreading(version: int) -> Held:
    return SPREADING, b"t", pack(version)


OLD, NEW = kept(b"old", 256), kept(b"new", 513)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([[kept(b"x")]], kept(b"x")),
        ([[OLD], [NEW], [OLD]], NEW),
        ([[NEW], [OLD], [NEW]], NEW),
        ([[OLD], [NEW, spreading(513)]], NEW),
        ([[kept(b"first", 5)], [kept(b"second", 5)]], kept(b"first", 5)),
        ([[], [OLD]], OLD),
        # deleted at one, and the other does not know yet
        ([[OLD], [spreading(300)]], None),
        # deleted, and published anew at another
        ([[NEW], [spreading(300)]], NEW),
        ([[OLD, spreading(256)], [OLD]], OLD),
    ],
    ids=["one", "newest last", "newest first", "on its way", "the same", "not everywhere", "deleted", "anew", "told"],
)
def test_the_newest_is_everywhere(parts: list[list[Held]], expected: Held | None) -> None:
    new = divide(*[holding(*held) for held in parts], into=3)
    for engine in new:
        assert all_rows(engine, RETAINED) == ([] if expected is None else [expected[1:]])
        assert engine.count(SPREADING) == 0


def test_topics_of_all_parts_are_there() -> None:
    former = [holding((RETAINED, b"t%d" % number, OLD[2])) for number in (2, 0, 1)]
    assert [key for key, _ in all_rows(divide(*former, into=1)[0], RETAINED)] == [b"t0", b"t1", b"t2"]


def test_moments_are_those_of_the_first_part() -> None:
    late = holding(kept(b"x", 5, LATE), stored=100, calendar=400)
    (new,) = divide(holding(stored=400, calendar=400), late, into=1)
    ((_, row),) = all_rows(new, RETAINED)
    _, deadline, message, version = unpack(row)
    assert (deadline, message_from_row(message, 0.0).expires_at, version) == (LATE + 300, LATE + 300, 5)
