"""What happens, and when, while no client is connected: time is a list of timers here."""

from collections.abc import Callable
from math import inf
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trunkline.broker.metrics import Metrics
from trunkline.broker.session import will as wills
from trunkline.broker.session.absence import Absence
from trunkline.broker.session.mqueue import MessageQueue
from trunkline.broker.session.state import Session
from trunkline.hooks.client import ClientInfo
from trunkline.mqtt.packets import Will
from trunkline.mqtt.session.awaiting_rel import AwaitingRel
from trunkline.mqtt.session.window import Inflight


class Timers:
    """In place of a session's context and of the rest of it."""

    def __init__(self) -> None:
        self.set: list[tuple[float, Callable[[], object]]] = []
        self.log: list[str] = []
        self.session = Session(ClientInfo("a"), Inflight(1), MessageQueue(), AwaitingRel())
        self.services = SimpleNamespace(metrics=Metrics())
        self.subscriber = None
        self.now = 0.0
        rest = cast("Any", self)
        self._absence = Absence(rest, rest)
        self.publish_will = self._absence.publish_will
        self.publish_will_at_stop = self._absence.publish_will_at_stop

    def after(self, delay: float, action: Callable[[], object]) -> Callable[[], None]:
        timer = (delay, action)
        self.set.append(timer)
        return lambda: self.set.remove(timer)

    def leave(self, will: Will | None, expiry: float, *, at: float = 0.0, now: float | None = None) -> None:
        self.session.will, self.session.expiry_interval, self.session.left_at = will, expiry, at
        self.now = at if now is None else now
        self._absence.begin(lambda: self.log.append("expired"))

    def come_back(self) -> None:
        self._absence.end()
        self.session.attach(self.session.client, 0.0, None)

    def fire(self, delay: float) -> None:
        next(action for due, action in self.set if due == delay)()

    @property
    def delays(self) -> list[float]:
        return sorted(delay for delay, _ in self.set)


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> Timers:
    timers = Timers()
    monkeypatch.setattr(wills, "publish", lambda will, *_: timers.log.append(will.topic))
    return timers


def will(delay: int = 0) -> Will:
    return Will("will", b"", properties={"will_delay_interval": delay})


def test_a_will_without_delay_is_published_at_once(timers: Timers) -> None:
    timers.leave(will(), 100.0)
    assert (timers.log, timers.delays) == (["will"], [100.0])


def test_a_will_waits_for_its_delay_and_is_published_once(timers: Timers) -> None:
    timers.leave(will(5), 100.0)
    assert timers.log == []
    timers.fire(5.0)
    timers.publish_will()
    assert timers.log == ["will"]


def test_a_delay_is_no_longer_than_the_session(timers: Timers) -> None:
    timers.leave(will(50), 10.0)
    assert timers.delays == [10.0, 10.0]


def test_a_session_that_ends_with_its_connection_publishes_at_once_and_needs_no_timer(timers: Timers) -> None:
    timers.leave(will(50), 0.0)
    assert (timers.log, timers.set) == (["will"], [])


@pytest.mark.parametrize("stored", [False, True])
def test_a_will_that_goes_on_waiting_in_the_store_is_not_published_when_the_node_stops(
    timers: Timers, stored: bool
) -> None:
    timers.session.durable = cast("Any", object() if stored else None)
    timers.publish_will_at_stop()
    assert timers.log == [], "it has none"
    timers.leave(will(5), 100.0)
    timers.publish_will_at_stop()
    assert timers.log == ([] if stored else ["will"])
    timers.session.will = will()
    timers.publish_will_at_stop()
    assert timers.log == (["will"] if stored else ["will", "will"])


def test_a_session_that_stays_for_ever_needs_no_timer(timers: Timers) -> None:
    timers.leave(None, inf)
    assert timers.set == []


def test_a_client_that_is_back_ends_it_all(timers: Timers) -> None:
    timers.leave(will(5), 100.0)
    late = [action for _, action in timers.set]  # as if their messages were in the mailbox already
    timers.come_back()
    timers.publish_will()
    for action in late:
        action()
    assert (timers.log, timers.set) == ([], [])


def test_a_late_timer_of_one_absence_is_not_one_of_the_next(timers: Timers) -> None:
    timers.leave(None, 100.0)
    _, late = timers.set[0]
    timers.come_back()
    timers.leave(None, 100.0, at=100.0)
    late()
    assert timers.log == []
    timers.fire(100.0)
    assert timers.log == ["expired"]


def test_an_absence_goes_on_where_it_was_elsewhere(timers: Timers) -> None:
    timers.leave(will(5), 100.0, at=50.0, now=53.0)
    assert (timers.log, timers.delays) == ([], [2.0, 97.0])
    timers.come_back()
    timers.leave(will(5), 100.0, at=50.0, now=57.0)
    assert timers.log == ["will"]
    timers.come_back()
    timers.leave(None, 100.0, at=50.0, now=250.0)
    timers.fire(0.0)
    assert timers.log == ["will", "expired"]
