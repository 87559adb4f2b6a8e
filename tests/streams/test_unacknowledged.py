"""What waits for an acknowledgement, and until when."""

import math

from trunkline.streams.unacknowledged import Outstanding, Unacknowledged


def waiting(*deadlines: float) -> Unacknowledged:
    found = Unacknowledged()
    for sequence, deadline in enumerate(deadlines, 1):
        found[sequence] = Outstanding(sequence + 10, 1, math.inf)
        found.wait(sequence, found[sequence], deadline)
    return found


def test_the_first_deadline_comes_first_and_a_later_one_takes_its_place() -> None:
    found = waiting(5.0, 3.0)
    assert (found.next_due, found.first_due()) == (3.0, (2, found[2]))
    found.wait(2, found[2], 9.0)
    assert found.first_due() is None, "it waits for another deadline now"
    found.pass_first_due()
    assert (found.next_due, found.first_due()) == (5.0, (1, found[1]))
    del found[1]
    assert found.first_due() is None, "it is acknowledged"
    found.pass_first_due()
    assert found.first_due() == (2, found[2])


def test_nothing_is_due_where_nothing_waits() -> None:
    assert Unacknowledged().next_due == math.inf


def test_deadlines_that_count_no_more_do_not_pile_up() -> None:
    found = waiting(1.0)
    for number in range(1000):
        found.wait(1, found[1], float(number))
    assert len(found.deadlines) < 70
    assert (999.0, 1) in found.deadlines


def test_what_is_stored_comes_back_in_its_order() -> None:
    found = waiting(5.0, 3.0, 4.0)
    found[3].count = 2
    again = Unacknowledged()
    again.restore(found.to_plain())
    assert (list(again), again) == ([1, 2, 3], found)
    assert (again.next_due, again.redelivered) == (3.0, 1)
