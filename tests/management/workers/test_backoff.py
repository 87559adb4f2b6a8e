"""How long a worker that crashes waits."""

from trunkline.management.workers.backoff import FIRST, LONGEST, LOOP, STEADY, Backoff


def test_it_waits_twice_as_long_each_time_up_to_a_limit() -> None:
    backoff = Backoff()
    assert [backoff.crashed(1) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert all(backoff.crashed(1) == LONGEST for _ in range(2000))


def test_one_that_was_steady_begins_anew() -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff.crashed(STEADY - 1)
    assert backoff.crashed(STEADY) == FIRST
    assert not backoff.is_loop


def test_some_crashes_in_a_row_are_a_loop() -> None:
    backoff = Backoff()
    for _ in range(LOOP - 1):
        backoff.crashed(0)
        assert not backoff.is_loop
    backoff.crashed(0)
    assert backoff.is_loop
