"""How chains run: order, replacing, stopping, refusing, crashes, waiting."""

import logging
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from tests.hooks.calling import CLIENT, MESSAGE, Boom, boom, run_plain
from trunkline.hooks import (
    ALLOW,
    DROP,
    STOP,
    TAKEN,
    ClientInfo,
    Continue,
    Deny,
    Exchange,
    Hooks,
    Stop,
    Success,
)
from trunkline.hooks.points import (
    CLIENT_AUTHENTICATE,
    CLIENT_CHECK_ACL,
    CLIENT_CONNECTED,
    CLIENT_ENHANCED_AUTHENTICATE,
    CLIENT_SUBSCRIBE,
    CLIENT_UNSUBSCRIBE,
    MESSAGE_ACKED,
    MESSAGE_DELIVER,
    MESSAGE_PUBLISH,
    SESSION_CREATED,
)
from trunkline.hooks.registration import Registration
from trunkline.mqtt.message import Message
from trunkline.mqtt.packets import SubscriptionRequest
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.publication import PublishBatch
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.versions import Version

NO = Deny(Reason.BANNED)


def suffix(text: str) -> Callable[[ClientInfo, Message], Message]:
    return lambda client, message: replace(message, topic=message.topic + text)


def topic_of(result: Message | Deny) -> str:
    assert isinstance(result, Message)
    return result.topic


class TestNotify:
    def test_every_callback_is_called_with_the_arguments(self) -> None:
        hooks, seen = Hooks(), list[ClientInfo]()
        hooks.add(CLIENT_CONNECTED, seen.append)
        hooks.add("client.connected", lambda client: seen.insert(0, client))
        hooks.notify(CLIENT_CONNECTED, CLIENT)
        assert seen == [CLIENT, CLIENT]

    def test_what_it_returns_is_not_used(self) -> None:
        hooks, seen = Hooks(), list[str]()
        hooks.add(CLIENT_CONNECTED, lambda client: "something")
        hooks.add(CLIENT_CONNECTED, lambda client: seen.append("second"))
        hooks.notify(CLIENT_CONNECTED, CLIENT)
        assert seen == ["second"]

    @pytest.mark.parametrize("stop", [STOP, Stop("x")])
    def test_stop_ends_the_chain(self, stop: object) -> None:
        hooks, seen = Hooks(), list[str]()
        hooks.add(CLIENT_CONNECTED, lambda client: stop)
        hooks.add(CLIENT_CONNECTED, lambda client: seen.append("second"))
        hooks.notify(CLIENT_CONNECTED, CLIENT)
        assert seen == []

    def test_a_crash_is_logged_counted_and_passed_over(self, caplog: pytest.LogCaptureFixture) -> None:
        hooks, seen = Hooks(), list[str]()
        hooks.add(CLIENT_CONNECTED, boom)
        hooks.add(CLIENT_CONNECTED, lambda client: seen.append("second"))
        for _ in range(5):
            hooks.notify(CLIENT_CONNECTED, CLIENT)
        assert seen == ["second"] * 5
        assert [entry.crashes for entry in hooks.listing(CLIENT_CONNECTED)] == [5, 0]
        # the first, second and fourth are told
        assert [record.levelno for record in caplog.records] == [logging.ERROR] * 3
        assert "hooks.calling.boom at client.connected crashed (1 so far)" in caplog.messages[0]
        assert caplog.records[0].exc_info is not None

    def test_a_coroutine_from_a_plain_function_is_a_crash(self) -> None:
        async def later(client: ClientInfo) -> None:
            raise AssertionError("never run")

        hooks = Hooks()
        hooks.add(CLIENT_CONNECTED, lambda client: later(client))
        hooks.notify(CLIENT_CONNECTED, CLIENT)
        assert hooks.listing()[0].crashes == 1

    def test_what_is_no_exception_goes_through(self) -> None:
        def interrupt(client: ClientInfo) -> None:
            raise KeyboardInterrupt

        hooks = Hooks()
        hooks.add(CLIENT_CONNECTED, interrupt)
        with pytest.raises(KeyboardInterrupt):
            hooks.notify(CLIENT_CONNECTED, CLIENT)


class TestTransform:
    def test_each_callback_sees_what_the_one_before_left(self) -> None:
        hooks = Hooks()
        hooks.add(MESSAGE_PUBLISH, suffix("/1"))
        hooks.add(MESSAGE_PUBLISH, lambda client, message: None)
        hooks.add(MESSAGE_PUBLISH, suffix("/2"))
        assert topic_of(hooks.transform(MESSAGE_PUBLISH, CLIENT, MESSAGE)) == "a/b/1/2"
        assert MESSAGE.topic == "a/b"

    def test_stop_keeps_the_value_and_ends_the_chain(self) -> None:
        hooks = Hooks()
        hooks.add(MESSAGE_PUBLISH, suffix("/1"))
        hooks.add(MESSAGE_PUBLISH, lambda client, message: STOP)
        hooks.add(MESSAGE_PUBLISH, suffix("/2"))
        assert topic_of(hooks.transform(MESSAGE_PUBLISH, CLIENT, MESSAGE)) == "a/b/1"

    def test_stop_with_a_value_replaces_it_and_ends_the_chain(self) -> None:
        hooks = Hooks()
        hooks.add(MESSAGE_PUBLISH, lambda client, message: Stop(replace(message, topic="z")))
        hooks.add(MESSAGE_PUBLISH, suffix("/2"))
        assert topic_of(hooks.transform(MESSAGE_PUBLISH, CLIENT, MESSAGE)) == "z"

    @pytest.mark.parametrize("answer", [DROP, Stop(DROP)])
    def test_a_refusal_ends_the_chain(self, answer: object) -> None:
        hooks, seen = Hooks(), list[Message]()
        hooks.add(MESSAGE_DELIVER, lambda client, message: answer)
        hooks.add(MESSAGE_DELIVER, lambda client, message: seen.append(message))
        assert hooks.transform(MESSAGE_DELIVER, CLIENT, MESSAGE) is DROP
        assert seen == []

    @pytest.mark.parametrize(
        "returned",
        [
            True,
            "text",
            Stop(3),
            Message("a/b", "text"),  # type: ignore[arg-type]
            Message("a/b", b"", 3),
            Message("a/b", b"", properties={"content_type": 5}),  # type: ignore[typeddict-item]
        ],
        ids=repr,
    )
    def test_what_is_no_message_counts_as_a_crash(self, returned: object) -> None:
        hooks = Hooks()
        hooks.add(MESSAGE_PUBLISH, lambda client, message: returned)
        hooks.add(MESSAGE_PUBLISH, suffix("/2"))
        assert topic_of(hooks.transform(MESSAGE_PUBLISH, CLIENT, MESSAGE)) == "a/b/2"
        assert hooks.listing()[0].crashes == 1

    def test_a_refusal_that_cannot_be_told_counts_as_a_crash(self) -> None:
        hooks = Hooks()
        hooks.add(MESSAGE_PUBLISH, lambda client, message: Deny("go away"))  # type: ignore[arg-type]
        assert hooks.transform(MESSAGE_PUBLISH, CLIENT, MESSAGE) is MESSAGE
        assert hooks.listing()[0].crashes == 1
        with pytest.raises(TypeError, match="Deny takes a Reason, then a text.*'go away'"):
            Deny("go away")  # type: ignore[arg-type]

    @pytest.mark.parametrize("answer", [DROP, TAKEN])
    def test_nobody_is_let_in_by_a_yes_without_effect(self, answer: object) -> None:
        hooks = Hooks()
        hooks.add(CLIENT_AUTHENTICATE, lambda client, password: answer)
        assert hooks.decide(CLIENT_AUTHENTICATE, CLIENT, None) == Deny()
        assert hooks.listing()[0].crashes == 1

    def test_a_crash_leaves_the_value_as_it_was(self) -> None:
        hooks = Hooks()
        hooks.add(MESSAGE_PUBLISH, suffix("/1"))
        hooks.add(MESSAGE_PUBLISH, boom)
        hooks.add(MESSAGE_PUBLISH, suffix("/2"))
        assert topic_of(hooks.transform(MESSAGE_PUBLISH, CLIENT, MESSAGE)) == "a/b/1/2"

    @pytest.mark.parametrize("copied", [lambda message: message, copy, replace])
    def test_a_changed_message_loses_the_encoded_forms_of_the_original(
        self, copied: Callable[[Message], Message]
    ) -> None:
        def change(client: ClientInfo, message: Message) -> Message:
            changed = copied(message)
            changed.payload = b"new"
            return changed

        original = Message("a", b"old")
        original.wire3 = original.wire5 = b"0...old"
        original.frames = {1: (b"", b"old")}
        hooks = Hooks()
        hooks.add(MESSAGE_PUBLISH, change)
        result = hooks.transform(MESSAGE_PUBLISH, CLIENT, original)
        assert isinstance(result, Message)
        assert (result.payload, result.wire3, result.wire5, result.frames) == (b"new", None, None, None)

    def test_a_message_that_a_callback_keeps_for_many_is_encoded_once(self) -> None:
        kept = Message("a", b"kept")
        kept.wire5 = b"0...kept"
        hooks = Hooks()
        hooks.add(MESSAGE_DELIVER, lambda client, message: kept)
        assert hooks.transform(MESSAGE_DELIVER, CLIENT, MESSAGE) is kept
        assert kept.wire5 is not None

    def test_a_topic_or_filter_that_is_none_counts_as_a_crash(self) -> None:
        hooks = Hooks()
        hooks.add(MESSAGE_PUBLISH, suffix("/#"))
        hooks.add(CLIENT_SUBSCRIBE, lambda client, request, properties: SubscriptionRequest("a+"))
        hooks.add(CLIENT_UNSUBSCRIBE, lambda client, filter, properties: "")
        assert hooks.transform(MESSAGE_PUBLISH, CLIENT, MESSAGE) is MESSAGE
        request = SubscriptionRequest("a")
        assert hooks.transform(CLIENT_SUBSCRIBE, CLIENT, request, NO_PROPERTIES) is request
        assert hooks.transform(CLIENT_UNSUBSCRIBE, CLIENT, "a", NO_PROPERTIES) == "a"
        assert [entry.crashes for entry in hooks.listing()] == [1, 1, 1]

    def test_filters_and_requests_are_checked_too(self) -> None:
        hooks = Hooks()
        hooks.add(CLIENT_SUBSCRIBE, lambda client, request, properties: "text")
        hooks.add(CLIENT_SUBSCRIBE, lambda client, request, properties: SubscriptionRequest("b"))
        hooks.add(CLIENT_UNSUBSCRIBE, lambda client, filter, properties: 7)
        hooks.add(CLIENT_UNSUBSCRIBE, lambda client, filter, properties: filter + "/x")
        request = SubscriptionRequest("a")
        assert hooks.transform(CLIENT_SUBSCRIBE, CLIENT, request, NO_PROPERTIES) == SubscriptionRequest("b")
        assert hooks.transform(CLIENT_UNSUBSCRIBE, CLIENT, "a", NO_PROPERTIES) == "a/x"
        assert [entry.crashes for entry in hooks.listing()] == [1, 0, 1, 0]


class TestDecide:
    def test_the_first_that_does_not_pass_decides(self) -> None:
        hooks = Hooks()
        hooks.add(CLIENT_AUTHENTICATE, lambda client, password: None)
        hooks.add(CLIENT_AUTHENTICATE, lambda client, password: Deny(Reason.BANNED, "go away"))
        hooks.add(CLIENT_AUTHENTICATE, lambda client, password: ALLOW)
        assert hooks.decide(CLIENT_AUTHENTICATE, CLIENT, b"") == Deny(Reason.BANNED, "go away")

    def test_nobody_decides(self) -> None:
        hooks = Hooks()
        assert hooks.decide(CLIENT_AUTHENTICATE, CLIENT, None) is None
        hooks.add(CLIENT_AUTHENTICATE, lambda client, password: None)
        assert hooks.decide(CLIENT_AUTHENTICATE, CLIENT, None) is None

    def test_stop_means_that_nobody_decides(self) -> None:
        hooks = Hooks()
        hooks.add(CLIENT_AUTHENTICATE, lambda client, password: STOP)
        hooks.add(CLIENT_AUTHENTICATE, lambda client, password: ALLOW)
        assert hooks.decide(CLIENT_AUTHENTICATE, CLIENT, None) is None

    def test_a_decision_in_stop_is_that_decision(self) -> None:
        hooks = Hooks()
        hooks.add(CLIENT_AUTHENTICATE, lambda client, password: Stop(ALLOW))
        assert hooks.decide(CLIENT_AUTHENTICATE, CLIENT, None) is ALLOW

    def test_a_crash_denies(self) -> None:
        hooks = Hooks()
        hooks.add(CLIENT_CHECK_ACL, boom)
        hooks.add(CLIENT_CHECK_ACL, lambda *args: ALLOW)
        assert hooks.decide(CLIENT_CHECK_ACL, CLIENT, "publish", "a", 0, False) == Deny(Reason.NOT_AUTHORIZED)
        assert hooks.listing()[0].crashes == 1

    @pytest.mark.parametrize("answer", [True, False, "allow", Success()])
    def test_an_answer_that_is_none_denies(self, answer: object, caplog: pytest.LogCaptureFixture) -> None:
        hooks = Hooks()
        hooks.add(CLIENT_AUTHENTICATE, lambda client, password: answer)
        assert hooks.decide(CLIENT_AUTHENTICATE, CLIENT, None) == Deny(Reason.NOT_AUTHORIZED)
        assert "a callback answers None, ALLOW, Deny" in (caplog.text)

    def test_a_coroutine_denies(self) -> None:
        async def later(client: ClientInfo, password: bytes | None) -> object:
            return ALLOW

        hooks = Hooks()
        hooks.add(CLIENT_AUTHENTICATE, lambda client, password: later(client, password))
        assert hooks.decide(CLIENT_AUTHENTICATE, CLIENT, None) == Deny(Reason.NOT_AUTHORIZED)

    def test_enhanced_authentication_has_answers_of_its_own(self) -> None:
        hooks = Hooks()
        hooks.add(CLIENT_ENHANCED_AUTHENTICATE, lambda client, exchange: Continue(b"challenge"))
        exchange = Exchange("PLAIN", b"")
        assert hooks.decide(CLIENT_ENHANCED_AUTHENTICATE, CLIENT, exchange) == Continue(b"challenge")
        hooks.add(CLIENT_ENHANCED_AUTHENTICATE, lambda client, exchange: ALLOW, priority=1)
        assert hooks.decide(CLIENT_ENHANCED_AUTHENTICATE, CLIENT, exchange) == Deny(Reason.NOT_AUTHORIZED)


class TestWaiting:
    def test_the_broker_knows_whether_to_wait(self) -> None:
        async def later(client: ClientInfo, password: bytes | None) -> object:
            return ALLOW

        hooks = Hooks()
        hooks.add(CLIENT_AUTHENTICATE, lambda client, password: None)
        assert not hooks.is_async(CLIENT_AUTHENTICATE)
        hooks.add(CLIENT_AUTHENTICATE, later)
        assert hooks.is_async(CLIENT_AUTHENTICATE)
        hooks.remove(CLIENT_AUTHENTICATE, later)
        assert not hooks.is_async(CLIENT_AUTHENTICATE)

    def test_plain_and_async_callbacks_mix(self) -> None:
        async def rename(client: ClientInfo, request: SubscriptionRequest, properties: object) -> SubscriptionRequest:
            return replace(request, filter=request.filter + "/1")

        hooks = Hooks()
        hooks.add(CLIENT_SUBSCRIBE, rename)
        hooks.add(CLIENT_SUBSCRIBE, lambda client, request, properties: replace(request, filter=request.filter + "/2"))
        hooks.add(CLIENT_SUBSCRIBE, boom)
        result = run_plain(hooks.transform_async(CLIENT_SUBSCRIBE, CLIENT, SubscriptionRequest("a"), NO_PROPERTIES))
        assert result == SubscriptionRequest("a/1/2")

    @pytest.mark.parametrize(
        ("answer", "expected"),
        [
            (None, "a/last"),
            (STOP, "a"),
            (Stop(SubscriptionRequest("z")), "z"),
            (Deny(Reason.QUOTA_EXCEEDED), Deny(Reason.QUOTA_EXCEEDED)),
            (True, "a/last"),
        ],
    )
    def test_async_answers_mean_the_same(self, answer: object, expected: object) -> None:
        async def reply(client: ClientInfo, request: SubscriptionRequest, properties: object) -> object:
            return answer

        hooks = Hooks()
        hooks.add(CLIENT_SUBSCRIBE, reply)
        hooks.add(
            CLIENT_SUBSCRIBE, lambda client, request, properties: replace(request, filter=request.filter + "/last")
        )
        result = run_plain(hooks.transform_async(CLIENT_SUBSCRIBE, CLIENT, SubscriptionRequest("a"), NO_PROPERTIES))
        assert (result.filter if isinstance(result, SubscriptionRequest) else result) == expected

    @pytest.mark.parametrize(("answer", "expected"), [(STOP, None), (Stop(ALLOW), ALLOW), (None, NO), (NO, NO)])
    def test_async_decisions_mean_the_same(self, answer: object, expected: object) -> None:
        async def reply(client: ClientInfo, password: bytes | None) -> object:
            return answer

        hooks = Hooks()
        hooks.add(CLIENT_AUTHENTICATE, reply)
        hooks.add(CLIENT_AUTHENTICATE, lambda client, password: NO)
        assert run_plain(hooks.decide_async(CLIENT_AUTHENTICATE, CLIENT, None)) is expected

    def test_a_stray_coroutine_leaves_the_value(self) -> None:
        async def rename(client: ClientInfo, message: Message) -> Message:
            raise AssertionError("never run")

        hooks = Hooks()
        hooks.add(MESSAGE_PUBLISH, lambda client, message: rename(client, message))
        assert hooks.transform(MESSAGE_PUBLISH, CLIENT, MESSAGE) is MESSAGE
        assert hooks.listing()[0].crashes == 1

    def test_an_async_decider_that_crashes_denies(self) -> None:
        async def crash(client: ClientInfo, password: bytes | None) -> object:
            raise Boom

        hooks = Hooks()
        hooks.add(CLIENT_AUTHENTICATE, lambda client, password: None)
        hooks.add(CLIENT_AUTHENTICATE, crash)
        assert run_plain(hooks.decide_async(CLIENT_AUTHENTICATE, CLIENT, None)) == Deny(Reason.NOT_AUTHORIZED)

    def test_a_filtered_async_callback_is_awaited(self) -> None:
        async def allow(client: ClientInfo, password: bytes | None, extra: str) -> object:
            return ALLOW if extra == "x" else None

        hooks = Hooks()
        hooks.add(CLIENT_AUTHENTICATE, allow, filter=lambda client, password: password == b"yes", args=("x",))
        assert hooks.is_async(CLIENT_AUTHENTICATE)
        assert run_plain(hooks.decide_async(CLIENT_AUTHENTICATE, CLIENT, b"no")) is None
        assert run_plain(hooks.decide_async(CLIENT_AUTHENTICATE, CLIENT, b"yes")) is ALLOW

    async def test_it_waits_under_an_event_loop(self) -> None:
        async def slow(client: ClientInfo, password: bytes | None) -> object:
            await trio.lowlevel.checkpoint()
            return ALLOW

        hooks = Hooks()
        hooks.add(CLIENT_AUTHENTICATE, slow)
        assert await hooks.decide_async(CLIENT_AUTHENTICATE, CLIENT, None) is ALLOW


class TestRegistering:
    def test_the_same_callback_only_once(self) -> None:
        hooks, seen = Hooks(), list[ClientInfo]()
        assert hooks.add(CLIENT_CONNECTED, seen.append)
        assert not hooks.add(CLIENT_CONNECTED, seen.append, priority=9)
        assert hooks.add(SESSION_CREATED, seen.append)
        assert len(hooks.client_connected) == 1

    def test_removing(self) -> None:
        hooks, seen = Hooks(), list[ClientInfo]()
        hooks.add("client.connected", seen.append)
        assert hooks.client_connected
        assert hooks.remove("client.connected", seen.append)
        assert not hooks.remove("client.connected", seen.append)
        assert hooks.client_connected == ()
        hooks.notify(CLIENT_CONNECTED, CLIENT)
        assert seen == []

    def test_the_decorator_gives_the_function_back(self) -> None:
        hooks = Hooks()

        @hooks.on("client.connected", priority=3)
        def greet(client: ClientInfo) -> str:
            return client.client_id

        assert greet(CLIENT) == "c1"
        (entry,) = hooks.listing("client.connected")
        assert (entry.callback, entry.priority, entry.name.rpartition(".")[2]) == (greet, 3, "greet")
        assert "greet at client.connected, priority 3" in repr(entry)

    def test_extra_arguments_and_filter(self) -> None:
        hooks, seen = Hooks(), list[tuple[str, str]]()

        def note(client: ClientInfo, tag: str) -> None:
            seen.append((client.client_id, tag))

        hooks.add(CLIENT_CONNECTED, note, args=("tag",), filter=lambda client: client.client_id.startswith("a"))
        hooks.notify(CLIENT_CONNECTED, ClientInfo("a1"))
        hooks.notify(CLIENT_CONNECTED, ClientInfo("b1"))
        assert seen == [("a1", "tag")]

    def test_registering_while_the_chain_runs_is_for_the_next_time(self) -> None:
        hooks, seen = Hooks(), list[str]()

        def first(client: ClientInfo) -> None:
            seen.append("first")
            hooks.remove(CLIENT_CONNECTED, first)
            hooks.remove(CLIENT_CONNECTED, second)
            hooks.add(CLIENT_CONNECTED, third)

        def second(client: ClientInfo) -> None:
            seen.append("second")

        def third(client: ClientInfo) -> None:
            seen.append("third")

        hooks.add(CLIENT_CONNECTED, first)
        hooks.add(CLIENT_CONNECTED, second)
        hooks.notify(CLIENT_CONNECTED, CLIENT)
        hooks.notify(CLIENT_CONNECTED, CLIENT)
        assert seen == ["first", "second", "third"]

    def test_a_callback_that_removes_itself_and_crashes(self) -> None:
        hooks = Hooks()

        def once(client: ClientInfo) -> None:
            hooks.remove(CLIENT_CONNECTED, once)
            raise Boom

        hooks.add(CLIENT_CONNECTED, once)
        hooks.notify(CLIENT_CONNECTED, CLIENT)
        assert hooks.listing() == []

    def test_the_generation_tells_of_a_change(self) -> None:
        hooks = Hooks()
        before = hooks.generation
        hooks.add(CLIENT_CONNECTED, boom)
        added = hooks.generation
        hooks.add(CLIENT_CONNECTED, boom)
        assert before < added == hooks.generation
        hooks.remove(CLIENT_CONNECTED, boom)
        assert hooks.generation > added

    def test_an_unknown_point_names_the_nearest(self) -> None:
        hooks = Hooks()
        with pytest.raises(LookupError, match=r"'message\.publihs'; did you mean message\.publish"):
            hooks.add("message.publihs", boom)
        with pytest.raises(LookupError, match=r"did you mean alarm\.activated, "):
            hooks.remove("zzz", boom)
        with pytest.raises(LookupError, match=r"client\.connected"):
            hooks.listing("client.conected")


PropertyAction = tuple[str, int]
ACTIONS = st.lists(
    st.tuples(st.sampled_from(["none", "value", "stop", "stop value", "deny", "crash", "wrong"]), st.integers(-2, 2)),
    max_size=8,
)


def _callback(kind: str, position: int, ran: list[int]) -> Callable[[ClientInfo, Message], object]:
    def callback(client: ClientInfo, message: Message) -> object:
        ran.append(position)
        changed = replace(message, topic=f"{message.topic}/{position}")
        if kind == "crash":
            raise Boom
        return {
            "none": None,
            "value": changed,
            "stop": STOP,
            "stop value": Stop(changed),
            "deny": Deny(Reason.QUOTA_EXCEEDED, str(position)),
            "wrong": 5,
        }[kind]

    return callback


class TestLaws:
    @given(actions=ACTIONS)
    def test_a_chain_is_a_fold_over_the_sorted_callbacks(self, actions: list[PropertyAction]) -> None:
        logging.getLogger("trunkline.hooks").disabled = True
        hooks, ran = Hooks(), list[int]()
        for position, (kind, priority) in enumerate(actions):
            hooks.add(MESSAGE_PUBLISH, _callback(kind, position, ran), priority=priority)
        result = hooks.transform(MESSAGE_PUBLISH, CLIENT, Message("t", b""))
        logging.getLogger("trunkline.hooks").disabled = False

        expected: Message | Deny = Message("t", b"")
        order = list[int]()
        for position, (kind, _) in sorted(enumerate(actions), key=lambda item: (-item[1][1], item[0])):
            order.append(position)
            if kind in {"value", "stop value"}:
                expected = replace(expected, topic=f"{expected.topic}/{position}")
            if kind == "deny":
                expected = Deny(Reason.QUOTA_EXCEEDED, str(position))
            if kind in {"stop", "stop value", "deny"}:
                break
        assert ran == order
        if isinstance(expected, Deny):
            assert result == expected
        else:
            assert topic_of(result) == expected.topic

    @given(
        steps=st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.integers(-1, 1)), max_size=15),
    )
    def test_adding_and_removing_keeps_the_order(self, steps: list[tuple[bool, int, int]]) -> None:
        callbacks = [_callback("none", position, []) for position in range(5)]
        hooks = Hooks()
        model = list[tuple[int, int]]()
        for adding, which, priority in steps:
            known = any(which == other for other, _ in model)
            if adding:
                assert hooks.add(MESSAGE_PUBLISH, callbacks[which], priority=priority) is not known
                if not known:
                    model.append((which, priority))
            else:
                assert hooks.remove(MESSAGE_PUBLISH, callbacks[which]) is known
                model = [entry for entry in model if entry[0] != which]
        model.sort(key=lambda entry: -entry[1])
        assert hooks.message_publish == tuple(callbacks[which] for which, _ in model)


# Publications


BATCH = PublishBatch(["t"], 0x30, Version.V311, b"\x30\x04\0\1tx" * 3, range(0, 18, 6), ())


def test_a_publication_stays_one_as_long_as_everybody_takes_it() -> None:
    hooks = Hooks()
    seen: list[object] = []

    def look(client: ClientInfo, publication: object) -> None:
        seen.append(publication)

    def look_at_one(client: ClientInfo, message: Message) -> None:
        seen.append(message.payload)

    hooks.add("message.acked", look, publications=True)
    hooks.notify(MESSAGE_ACKED, CLIENT, BATCH)
    assert seen == [BATCH]
    seen.clear()
    hooks.add("message.acked", look_at_one)
    hooks.notify(MESSAGE_ACKED, CLIENT, BATCH)
    assert seen == [each for message in BATCH.messages for each in (message, b"x")]
    seen.clear()
    hooks.remove("message.acked", look_at_one)
    hooks.notify(MESSAGE_ACKED, CLIENT, BATCH)
    assert seen == [BATCH]


def test_a_stop_is_about_one_message_of_a_publication() -> None:
    hooks = Hooks()
    seen: list[int] = []
    hooks.add("message.acked", lambda client, message: STOP if seen else None)
    hooks.add("message.acked", lambda client, publication: seen.append(publication.count), publications=True)
    hooks.notify(MESSAGE_ACKED, CLIENT, BATCH)
    assert seen == [1]


def test_a_point_says_whether_publications_have_to_be_unfolded() -> None:
    hooks = Hooks()
    assert not hooks.single
    hooks.add("message.publish", lambda client, publication: None, publications=True)
    assert MESSAGE_PUBLISH not in hooks.single
    callback = suffix("x")
    hooks.add("message.publish", callback)
    assert MESSAGE_PUBLISH in hooks.single
    hooks.remove("message.publish", callback)
    assert MESSAGE_PUBLISH not in hooks.single


def test_a_publication_cannot_be_replaced(caplog: pytest.LogCaptureFixture) -> None:
    hooks = Hooks()
    hooks.add("message.publish", lambda client, publication: Message("t", b""), publications=True)
    assert hooks.transform(MESSAGE_PUBLISH, CLIENT, BATCH) is BATCH
    assert "takes publications only watches" in caplog.text


# An exchange, while a chain waits


def test_an_exchange_keeps_the_turn_of_what_was_there() -> None:
    ran: list[str] = []

    def named(name: str) -> Callable[[ClientInfo], None]:
        return lambda client: ran.append(name)

    hooks = Hooks()
    former = [Registration(CLIENT_CONNECTED, named(f"old {number}")) for number in (1, 2)]
    hooks.add("client.connected", named("before"))
    hooks.exchange((), former[:1])
    hooks.add("client.connected", named("between"))
    hooks.exchange((), former[1:])
    hooks.add("client.connected", named("behind"))
    hooks.exchange(former, [Registration(CLIENT_CONNECTED, named(f"new {number}")) for number in (1, 2, 3)])
    hooks.notify(CLIENT_CONNECTED, CLIENT)
    assert ran == ["before", "new 1", "between", "new 2", "behind", "new 3"]


@pytest.mark.parametrize("point", [CLIENT_AUTHENTICATE, CLIENT_SUBSCRIBE], ids=lambda point: point.name)
@pytest.mark.parametrize("names", [None, ("slow", "plugin")])
def test_a_chain_that_waits_goes_on_with_what_is_registered_then(point: Any, names: tuple[str, ...] | None) -> None:
    ran: list[str] = []

    def named(name: str) -> Registration:
        return Registration(point, lambda *args: ran.append(name), authenticator="plugin")

    async def slow(*args: object) -> None:
        ran.append("slow")
        hooks.exchange(former, [named("new 1"), named("new 2")])

    hooks, former = Hooks(), [named("old 1"), named("old 2")]
    hooks.exchange((), former[:1])
    hooks.add(point, slow, authenticator="slow")
    hooks.exchange((), former[1:])
    client = replace(CLIENT, authenticators=names)
    if point is CLIENT_SUBSCRIBE:
        run_plain(hooks.transform_async(CLIENT_SUBSCRIBE, client, SubscriptionRequest("t"), NO_PROPERTIES))
    else:
        run_plain(hooks.decide_login(CLIENT_AUTHENTICATE, client, b""))
    by_name = names is not None and point is CLIENT_AUTHENTICATE
    assert ran == (["slow", "new 1", "new 2"] if by_name else ["old 1", "slow", "new 2"])
