"""How often the store notes that the broker runs."""

from tests.broker.session.test_durable import Turns
from trunkline.broker.heartbeat import Heartbeat


def test_the_heartbeat_is_as_quick_as_the_shortest_session_needs() -> None:
    heartbeat = Heartbeat(Turns(), 10.0, lambda: None)  # type: ignore[arg-type]
    for expiry in (4.0, 3600.0, 20.0, 4.0, 2.0):
        heartbeat.watch(expiry)
    assert heartbeat.interval == 1.0
    heartbeat.forget(2.0)
    heartbeat.forget(4.0)
    assert heartbeat.interval == 2.0
    heartbeat.forget(4.0)
    heartbeat.forget(3600.0)
    assert heartbeat.interval == 10.0


def test_a_slower_heartbeat_is_still_quick_enough_for_the_sessions_that_are_there() -> None:
    heartbeat = Heartbeat(Turns(), 10.0, lambda: None)  # type: ignore[arg-type]
    heartbeat.watch(30.0)
    assert heartbeat.interval == 10.0
    heartbeat.change(60.0)
    assert heartbeat.interval == 15.0
    heartbeat.forget(30.0)
    assert heartbeat.interval == 60.0
