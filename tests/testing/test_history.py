import pytest
import trio.testing
from trio.testing import MockClock

from tests.conformance import raw
from tests.testing.watching import watched
from tests.wire import Wire
from trunkline import testing
from trunkline.hooks import Hooks


async def test_the_last_messages_are_kept() -> None:
    async with watched(history=3) as here:
        for number in range(5):
            here.broker.publish(f"t/{number}", "x")
        assert [message.topic for message in here.broker.messages] == ["t/2", "t/3", "t/4"]


async def test_without_a_history_nothing_is_registered() -> None:
    async with watched(history=0) as here:
        assert [entry for entry in here.admin.hooks.listing() if "MessageTrace" in entry.name] == []
        with pytest.raises(RuntimeError, match="history=0"):
            _ = here.broker.messages
    hooks = Hooks()
    async with testing.broker(hooks=hooks) as b:
        assert len([entry for entry in hooks.listing() if "MessageTrace" in entry.name]) == 7
        b.publish("t", "x")
    assert hooks.listing() == []
    assert [message.topic for message in b.messages] == ["t"]


async def test_what_was_retained_before_is_no_new_message() -> None:
    async with watched(history=1) as here:
        here.broker.publish("r", "x", retain=True)
        here.broker.publish("t", "x")
        a = await here.client("a")
        await a.subscribe("r")
        await a.expect_publish("r", b"x")
        assert here.broker.messages == []


async def test_messages_are_kept_when_the_broker_restarts() -> None:
    async with watched() as here:
        here.broker.publish("t", "before")
        await here.broker.restart()
        here.broker.publish("t", "after")
        assert [message.payload for message in here.broker.messages] == [b"before", b"after"]
        assert here.broker.messages[0].time < here.broker.messages[1].time


async def test_the_outcome_of_a_message_goes_on_when_the_broker_restarts() -> None:
    async with watched() as here:
        a = await here.stay("a")
        await a.subscribe("t")
        here.broker.publish("t", "1", qos=1)
        await a.expect_publish("t", b"1", qos=1)
        await a.disconnect()
        here.broker.publish("t", "2", qos=1)
        await trio.testing.wait_all_tasks_blocked()
        await here.broker.restart()
        before, later = here.broker.messages
        assert (str(before.outcome("a")), str(later.outcome("a"))) == ("routed, delivered", "routed, queued")
        again = Wire(here.broker.connect())
        await again.connect("a", clean=False, properties=raw.session_expiry(1000))
        await again.take_publish("t", b"1", qos=1)
        await again.take_publish("t", b"2", qos=1)
        await again.ping()
        assert str(before.outcome("a")) == "routed, delivered, delivered, acked, completed"
        assert str(later.outcome("a")) == "routed, queued, delivered, acked, completed"
        await again.abort()
        await here.broker.restart(keep_sessions=False)
        assert len(here.broker.messages) == 2


async def test_what_was_forgotten_is_not_taken_for_what_was_not_published(autojump_clock: MockClock) -> None:
    async with testing.broker(history=3) as b:
        b.publish("bad")
        before = b.mark()
        for _ in range(4):
            b.publish("good")
        with pytest.raises(
            AssertionError, match=r"not known\nmessages up to number 2 are forgotten: kept are the last 3"
        ):
            b.assert_not_published("bad")
        with pytest.raises(AssertionError, match="not 4\n(.*\n)*messages up to number 2 are forgotten"):
            b.assert_published("good", times=4)
        with pytest.raises(AssertionError, match="messages up to number 2 are forgotten"):
            b.assert_published("good", times=3)
        with pytest.raises(AssertionError, match="no message(.*\n)*messages up to number 2 are forgotten"):
            b.assert_published("bad")
        with pytest.raises(TimeoutError, match="messages up to number 2 are forgotten"):
            await b.wait_for("bad")
        assert len(b.assert_published("good")) == 3
        with pytest.raises(AssertionError, match="not known"):
            b.assert_not_published("bad", after=before)
        b.assert_not_published("bad", after=b.messages[0])
        b.assert_not_published("bad", after=b.mark())


async def test_what_a_fault_loses_is_known(autojump_clock: MockClock) -> None:
    async with watched() as here:
        a = await here.client("a")
        await a.subscribe(("t", 1))
        with here.broker.faults.drop("PUBLISH", client="a", direction="to", times=1):
            here.broker.publish("t", "lost")
            here.broker.publish("t", "comes")
            await a.expect_publish("t", b"comes")
        lost, comes = here.broker.messages
        assert str(lost.outcome("a")) == "routed, delivered, completed, dropped (fault)"
        assert (lost.delivered_to, lost.dropped, comes.delivered_to) == ((), {"a": "fault"}, ("a",))
        with pytest.raises(AssertionError, match=r"'lost'.*dropped \(fault\)\n.*these were:\n.*'comes'"):
            here.broker.assert_delivered("t", to="a", times=2)
        with here.broker.faults.refuse_publish("QUOTA_EXCEEDED", client="a"):
            answer = await a.publish("t", b"refused", qos=1)
            assert answer is not None
            assert answer.reason == 0x97
        assert here.broker.messages[-1].refused == "fault"
        with pytest.raises(AssertionError, match=r"the broker refused it \(fault\)"):
            here.broker.assert_published("t", payload="refused")
        with here.broker.faults.cut(before="PUBLISH", client="a", direction="to"):
            here.broker.publish("t", "cut", qos=1)
            await here.broker.wait_until(lambda: not here.broker.clients)
        assert "dropped (fault)" in str(here.broker.messages[-1].outcome("a"))
