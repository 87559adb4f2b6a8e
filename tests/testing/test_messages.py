"""A test looks at what was published in its broker, waits for it, and says what it expected."""

from dataclasses import replace

import pytest
import trio
import trio.testing
from paho.mqtt import publish as paho
from trio.testing import MockClock

from tests.testing.watching import watched
from trunkline import testing
from trunkline.testing.published import Published

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
