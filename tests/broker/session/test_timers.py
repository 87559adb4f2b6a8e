"""What happens, and when, while nobody is connected. Time is a list of timers here."""

from collections.abc import Callable
from math import inf

from trunkline.broker.session.timers import AwayTimers
from trunkline.mqtt.packets import Will


class Timers:
    def __init__(self) -> None:
        self.set: list[tuple[float, Callable[[], None]]] = []
        self.log: list[str] = []

    def after(self, delay: float, action: Callable[[], None]) -> Callable[[], None]:
        timer = (delay, action)
        self.set.append(timer)
        return lambda: self.set.remove(timer)

    def fire(self, delay: float) -> None:
        next(action for due, action in self.set if due == delay)()

    def absence(self) -> AwayTimers:
        return AwayTimers(self.after, lambda will: self.log.append(will.topic), lambda: self.log.append("expired"))


def will(delay: int = 0) -> Will:
    return Will("will", b"", properties={"will_delay_interval": delay})


def test_a_will_without_delay_is_published_at_once() -> None:
    timers = Timers()
    timers.absence().begin(will(), 100.0)
    assert timers.log == ["will"]
    assert [delay for delay, _ in timers.set] == [100.0]


def test_a_will_waits_for_its_delay_and_is_published_once() -> None:
    timers = Timers()
    absence = timers.absence()
    absence.begin(will(5), 100.0)
    assert timers.log == []
    timers.fire(5.0)
    absence.publish_will()
    assert timers.log == ["will"]


def test_a_delay_is_no_longer_than_the_session() -> None:
    timers = Timers()
    timers.absence().begin(will(50), 10.0)
    assert sorted(delay for delay, _ in timers.set) == [10.0, 10.0]


def test_a_session_that_ends_with_its_connection_publishes_at_once_and_needs_no_timer() -> None:
    timers = Timers()
    timers.absence().begin(will(50), 0.0)
    assert (timers.log, timers.set) == (["will"], [])


def test_a_session_that_stays_for_ever_needs_no_timer() -> None:
    timers = Timers()
    timers.absence().begin(None, inf)
    assert timers.set == []


def test_a_client_that_is_back_ends_it_all() -> None:
    timers = Timers()
    absence = timers.absence()
    absence.begin(will(5), 100.0)
    late = [action for _, action in timers.set]  # as if their messages lay in the mailbox already
    absence.over()
    absence.publish_will()
    for action in late:
        action()
    assert (timers.log, timers.set) == ([], [])


def test_a_late_timer_of_one_absence_is_not_one_of_the_next() -> None:
    timers = Timers()
    absence = timers.absence()
    absence.begin(None, 100.0)
    _, late = timers.set[0]
    absence.over()
    absence.begin(None, 100.0)
    late()
    assert timers.log == []
    timers.fire(100.0)
    assert timers.log == ["expired"]


def test_an_absence_goes_on_where_it_was_elsewhere() -> None:
    timers = Timers()
    absence = timers.absence()
    absence.begin(will(5), 100.0, gone=3.0)
    assert absence.will is not None
    assert sorted(delay for delay, _ in timers.set) == [2.0, 97.0]
    absence.over()
    absence.begin(will(5), 100.0, gone=7.0)
    assert timers.log == ["will"]
    absence.over()
    absence.begin(None, 100.0, gone=200.0)
    timers.fire(0.0)
    assert timers.log == ["will", "expired"]
