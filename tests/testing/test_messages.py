"""A test looks at what was published in its broker, waits for it, and says what it expected."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing
from paho.mqtt import publish as paho
from trio.testing import MockClock

from tests.broker.room import Room, room
from tests.conformance import raw
from tests.wire import Wire
from trunkline import testing
from trunkline.hooks import ClientInfo, Deny, Hooks
from trunkline.testing.history import HISTORY
from trunkline.testing.published import Published


@asynccontextmanager
async def watched(history: int = HISTORY, **settings: Any) -> AsyncIterator[Room]:
    async with room(history=history, **settings) as here:
        yield here


async def test_what_was_published_by_whom_when_and_to_whom_it_went(autojump_clock: MockClock) -> None:
    async with watched() as here:
        a, p = await here.client("a"), await here.client("p")
        await a.subscribe(("t/+", 1))
        before = here.node.host.wall
        await trio.sleep(10)
        await p.publish("t/1", b"x", qos=1, properties=raw.content_type("text/plain"), retain=True)
        here.broker.publish("u", "y")
        await a.take_publish("t/1", b"x", qos=1)
        await a.ping()
        first, second = here.broker.messages
        assert (first.topic, first.payload, first.qos, first.retain, first.publisher) == ("t/1", b"x", 1, True, "p")
        assert first.properties == {"content_type": "text/plain"}
        assert first.time == pytest.approx(before + 10)
        assert (first.delivered_to, first.dropped, first.refused, first.routed) == (("a",), {}, "", True)
        assert str(first.outcome("a")) == "routed, delivered, acked, completed"
        assert (second.publisher, second.delivered_to, second.outcomes) == ("", (), {})
        assert here.node.trace.on is False
        assert len(first.guid) == 32
        assert first.guid < second.guid
        assert repr(here.broker.messages) == (
            "[<t/1 b'x' QoS 1 RETAIN from 'p'; 'a': completed>, <u b'y' QoS 0 from the broker itself; no subscribers>]"
        )


async def test_a_message_tells_how_things_stand_now() -> None:
    async with watched() as here:
        a = await here.client("a")
        await a.subscribe(("t", 1))
        here.broker.publish("t", "x", qos=1)
        message = await here.broker.wait_for("t")
        packet = await a.expect_publish("t", b"x", qos=1)
        assert message.outcome("a").state == "delivered"
        await a.acknowledge(packet)
        await a.ping()
        assert message.outcome("a").state == "completed"


async def test_what_the_broker_did_not_take_says_why() -> None:
    def deny(client: ClientInfo, action: str, topic: str, *_: object) -> Deny | None:
        return Deny() if (action, topic) == ("publish", "secret") else None

    async with watched() as here:
        here.broker.hooks.add("client.check_acl", deny)
        p = await here.client("p")
        await p.publish("secret", b"x", qos=1)
        await p.send(raw.publish("t", b"y", qos=2, packet_id=1))
        await p.expect_type(raw.PUBREC)
        secret, unreleased = here.broker.messages
        assert (secret.refused, secret.routed, unreleased.refused, unreleased.routed) == (
            "not_authorized",
            False,
            "",
            False,
        )
        assert repr(secret).endswith("; not taken (not_authorized)>")
        assert repr(unreleased).endswith("; held>")
        here.broker.assert_not_published()
        with pytest.raises(AssertionError) as failure:
            here.broker.assert_published("secret")
        assert str(failure.value).splitlines() == [
            "no message on 'secret' was published",
            "what was published instead:",
            "  secret b'x' QoS 1 from 'p': the broker refused it (not_authorized)",
            "  t b'y' QoS 2 from 'p': another topic; not published yet: a hook keeps it, or its PUBREL has not come",
        ]


async def test_long_payloads_and_many_subscribers_are_short_to_read() -> None:
    async with watched() as here:
        for number in range(12):
            client = await here.client(f"c{number}")
            await client.subscribe("t")
        here.broker.publish("t", bytes(1000))
        await trio.testing.wait_all_tasks_blocked()
        (message,) = here.broker.messages
        assert len(message.delivered_to) == 12
        assert len(str(message)) < 200
        assert "… and 4 more" in repr(message)


async def test_the_last_messages_are_kept() -> None:
    async with watched(history=3) as here:
        for number in range(5):
            here.broker.publish(f"t/{number}", "x")
        assert [message.topic for message in here.broker.messages] == ["t/2", "t/3", "t/4"]


async def test_without_a_history_nothing_is_registered() -> None:
    async with watched(history=0) as here:
        assert [entry for entry in here.node.hooks.listing() if "MessageTrace" in entry.name] == []
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


# Waiting


async def test_waiting_for_what_comes_later(autojump_clock: MockClock) -> None:
    async with watched() as here, trio.open_nursery() as nursery:

        async def publish() -> None:
            for number in range(5):
                await trio.sleep(100)
                here.broker.publish("t", str(number))

        nursery.start_soon(publish)
        began = trio.current_time()
        message = await here.broker.wait_for("t", lambda message: message.payload == b"2", timeout=1000)
        assert (message.payload, round(trio.current_time() - began)) == (b"2", 300)
        assert (await here.broker.wait_for("t", timeout=1000)).payload == b"0"
        assert (await here.broker.wait_for("t", timeout=1000, after=message)).payload == b"3"
        mark = here.broker.mark()
        assert (await here.broker.wait_for("+", timeout=1000, after=mark, qos=0, payload=4)).payload == b"4"


async def test_a_mark_where_nothing_was_published_yet() -> None:
    async with watched() as here:
        mark = here.broker.mark()
        here.broker.publish("t", "x")
        here.broker.assert_published("t", after=mark, times=1)
        here.broker.assert_not_published(after=here.broker.mark())


async def test_waiting_for_what_becomes_of_it() -> None:
    async with watched() as here, trio.open_nursery() as nursery:
        a = await here.client("a")
        await a.subscribe(("t", 1))

        async def take() -> None:
            await a.take_publish("t", b"x", qos=1)

        here.broker.publish("t", "x", qos=1)
        assert (await here.broker.wait_for("t", to="a")).delivered_to == ("a",)
        nursery.start_soon(take)
        message = await here.broker.wait_for(predicate=lambda message: message.outcome("a").state == "completed")
        assert message.topic == "t"


async def test_waiting_has_an_end(autojump_clock: MockClock) -> None:
    async with watched() as here:
        here.broker.publish("t/1", "x")
        began = trio.current_time()
        with pytest.raises(TimeoutError) as failure:
            await here.broker.wait_for("t/2", timeout=60)
        assert trio.current_time() - began == pytest.approx(60)
        assert str(failure.value).splitlines() == [
            "no message on 't/2' was published within 60 s",
            "what was published instead:",
            "  t/1 b'x' QoS 0 from the broker itself: another topic",
        ]
        with trio.move_on_after(1) as scope:
            await here.broker.wait_for("t/2", timeout=60)
        assert scope.cancelled_caught


async def test_a_predicate_that_raises_is_the_tests_own_mistake() -> None:
    async with watched() as here:
        here.broker.publish("t", "x")
        with pytest.raises(ZeroDivisionError):
            await here.broker.wait_for("t", lambda message: 1 // 0)
        with pytest.raises(ValueError, match="'#' is not alone"):
            await here.broker.wait_for("#/t")


async def test_a_message_that_a_hook_changes_is_waited_for_as_it_was_routed() -> None:
    async with watched() as here:
        here.broker.hooks.add("message.publish", lambda client, message: replace(message, topic="new"))
        p = await here.client("p")
        await p.publish("old", b"x", qos=1)
        message = await here.broker.wait_for("new")
        assert (message.payload, message.publisher, len(here.broker.messages)) == (b"x", "p", 1)


# Asserting


async def test_what_was_expected_is_there() -> None:
    async with watched() as here:
        p = await here.client("p")
        for number in range(3):
            await p.publish(f"t/{number}", b'{"n": %d}' % number, qos=1)
        b = here.broker
        assert [message.topic for message in b.assert_published("t/+")] == ["t/0", "t/1", "t/2"]
        (one,) = b.assert_published("t/+", payload={"n": 1}, qos=1, retain=False, publisher="p", times=1)
        b.assert_published("t/+", times=1, after=one)
        b.assert_not_published("t/+", payload={"n": 3})
        b.assert_not_published("u")


async def test_a_wrong_number_of_times_is_reported_with_what_there_was() -> None:
    async with watched() as here:
        for _ in range(2):
            here.broker.publish("t", "x")
        with pytest.raises(AssertionError) as failure:
            here.broker.assert_published("t", times=3)
        assert str(failure.value).splitlines() == [
            "2 messages on 't' were published, not 3",
            "these were:",
            *["  t b'x' QoS 0 from the broker itself"] * 2,
        ]
        with pytest.raises(AssertionError, match="^no message on 'u' was published\nwhat was published instead:"):
            here.broker.assert_published("u", times=3)
        with pytest.raises(AssertionError, match="^2 messages on 't' were published, not 0\n"):
            here.broker.assert_not_published("t")
        here.broker.assert_published("u", times=0)


async def test_a_delivery_that_was_expected(autojump_clock: MockClock) -> None:
    async with watched(session={"max_queue_length": 1}) as here:
        a = await here.stay("a")
        await a.subscribe("t")
        here.broker.publish("t", "1", qos=1)
        await a.take_publish("t", b"1", qos=1)
        here.broker.assert_delivered("t", to="a", times=1)
        await a.disconnect()
        for payload in ("2", "3"):
            here.broker.publish("t", payload, qos=1)
        here.broker.publish("u", "4", qos=1)
        await trio.testing.wait_all_tasks_blocked()
        lost, waiting = here.broker.messages[1:3]
        assert (lost.dropped, lost.delivered_to, waiting.dropped) == ({"a": "queue_full"}, (), {})
        assert repr(lost).endswith("; 'a': dropped (queue_full)>")
        with pytest.raises(AssertionError) as failure:
            here.broker.assert_delivered("t", to="a", after=here.broker.messages[0])
        assert str(failure.value).splitlines() == [
            "no message on 't' was delivered to 'a'",
            "what was published instead:",
            "  t b'2' QoS 1 from the broker itself: for 'a': routed, queued, dropped (queue_full)",
            "  t b'3' QoS 1 from the broker itself: for 'a': routed, queued",
            "  u b'4' QoS 1 from the broker itself: another topic; for 'a': did not go there",
            "'a' is away, and has subscribed to 't'",
        ]
        with pytest.raises(AssertionError, match="'b' has no session$"):
            here.broker.assert_delivered(to="b")
        with pytest.raises(
            AssertionError, match="^1 message was delivered to 'a', not 2\n(.*\n).*queue_full.*\n(.*\n)*these were:"
        ):
            here.broker.assert_delivered(to="a", times=2)


async def test_nothing_after_a_mark_is_not_nothing_at_all() -> None:
    async with watched() as here:
        here.broker.publish("t")
        with pytest.raises(AssertionError, match=r"no message on 't' was published\nnothing was published since$"):
            here.broker.assert_published("t", after=here.broker.mark())


async def test_a_client_that_has_not_subscribed_is_named() -> None:
    async with watched() as here:
        await here.client("a")
        with pytest.raises(
            AssertionError, match="nothing was published\n'a' is connected, and has subscribed to nothing$"
        ):
            here.broker.assert_delivered(to="a")


# Elsewhere than in trio


def test_a_broker_in_a_thread_has_it_all() -> None:
    with testing.broker() as b:
        mark = b.mark()
        paho.single("t/1", "21", qos=1, hostname=b.host, port=b.port, client_id="paho", keepalive=5)
        message = b.wait_for("t/+", after=mark)
        assert isinstance(message, Published)
        assert (message.publisher, message.delivered_to) == ("paho", ())
        assert b.assert_published("t/#", payload=21, publisher="paho", times=1)[0].guid == message.guid
        b.assert_not_published("u")
        assert len(b.messages) == 1
        with pytest.raises(AssertionError, match="'c' has no session"):
            b.assert_delivered(to="c")
        with pytest.raises(TimeoutError, match=r"on 'u' was published within 0\.01 s"):
            b.wait_for("u", timeout=0.01)
    with testing.broker(history=0) as b, pytest.raises(RuntimeError, match="history=0"):
        _ = b.messages


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


async def test_a_watch_gives_each_message_once(autojump_clock: MockClock) -> None:
    async with testing.broker() as b:
        b.publish("t/1")
        with b.watch("t/+") as watch:
            b.publish("u")
            b.publish("t/2")
            assert [(await watch.next()).topic, (await watch.next()).topic] == ["t/1", "t/2"]
            with pytest.raises(TimeoutError, match="within 1 s after 2 messages like it"):
                await watch.next(timeout=1)
            b.publish("t/3")
            assert (await watch.next()).topic == "t/3"
        with b.watch("t/+", after=b.mark()) as watch, pytest.raises(TimeoutError, match="no message on"):
            await watch.next(timeout=2)
        assert b._running.history._trace._listeners == []


async def test_as_many_as_are_waited_for(autojump_clock: MockClock) -> None:
    async with testing.broker() as b, trio.open_nursery() as nursery:

        async def publish() -> None:
            for number in range(4):
                await trio.sleep(1)
                b.publish("t", f"{number}")

        nursery.start_soon(publish)
        assert (await b.wait_for("t", times=3)).payload == b"2"
        with pytest.raises(TimeoutError, match="after 4 messages like it"):
            await b.wait_for("t", times=5)
        with pytest.raises(ValueError, match="times=0"):
            await b.wait_for("t", times=0)


def test_failures_show_the_test_and_not_the_kit() -> None:
    with testing.broker() as b:
        for fails in (
            lambda: b.assert_published("x"),
            lambda: b.assert_not_published("$nothing/#") or b.assert_delivered("x", to="a"),
            lambda: b.wait_for("x", timeout=0.01),
            lambda: b.wait_until(lambda: False, timeout=0.01),
        ):
            with pytest.raises((AssertionError, TimeoutError)) as failure:
                fails()
            shown = failure.traceback.filter(failure)
            assert [entry.path.name for entry in shown] == ["test_messages.py"] * 2


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
