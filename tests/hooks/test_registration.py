from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.hooks.calling import CLIENT, MESSAGE, boom, run_plain
from trunkline.hooks import ALLOW, ClientInfo, Deny, HookError, Hooks
from trunkline.hooks.points import CLIENT_AUTHENTICATE, MESSAGE_DELIVERED
from trunkline.mqtt.message import Message
from trunkline.mqtt.reasons import Reason


async def _async_two(client: ClientInfo, message: Message) -> None: ...


class Callable2:
    def __call__(self, client: ClientInfo) -> None: ...


class AsyncCallable:
    async def __call__(self, client: ClientInfo, password: bytes | None) -> object:
        return ALLOW


class TestFitting:
    @pytest.mark.parametrize(
        ("point", "callback", "args", "needles"),
        [
            ("message.publish", lambda message: None, (), ["message.publish(client, message)", "(message)"]),
            ("client.connected", lambda: None, (), ["client.connected(client)", "takes ()"]),
            ("client.connected", lambda client: None, ("x",), ["and 1 of its own"]),
            ("client.connected", Callable2, (), ["client.connected(client)", "Callable2"]),
            ("message.publish", lambda message, client: None, (), ["in this order", "'message'"]),
            ("message.publish", lambda client, *, message: None, (), ["message.publish", "message"]),
            ("message.publish", _async_two, (), ["_async_two is async", "message.publish cannot wait"]),
            ("message.publish", "text", (), ["'text' cannot be called"]),
        ],
    )
    def test_what_does_not_fit_is_refused(
        self, point: str, callback: Callable[..., object], args: tuple[object, ...], needles: list[str]
    ) -> None:
        hooks = Hooks()
        with pytest.raises(HookError) as caught:
            hooks.add(point, callback, args=args)
        for needle in needles:
            assert needle in str(caught.value)
        assert hooks.listing() == []

    @pytest.mark.parametrize(
        "callback", [Callable2(), lambda client, more=1: None, lambda *all: None, lambda who: None, set[object]().add]
    )
    def test_what_can_be_called_that_way_fits(self, callback: Callable[..., object]) -> None:
        assert Hooks().add("client.connected", callback)

    def test_an_argument_in_brackets_goes_to_those_who_name_it(self) -> None:
        hooks, got = Hooks(), list[tuple[object, ...]]()
        callbacks: list[tuple[Callable[..., object], tuple[object, ...]]] = [
            (lambda client, message: got.append((client, message)), ()),
            (lambda client, message, word="own": got.append((client, message, word)), ()),
            (lambda client, message, word: got.append((client, message, word)), ("extra",)),
            (lambda client, message, delivery: got.append((client, message, delivery)), ()),
            (lambda client, message, delivery=None: got.append((client, message, delivery)), ()),
            (lambda client, message, delivery, word: got.append((client, message, delivery, word)), ("extra",)),
            (lambda *all: got.append(all), ()),
        ]
        for callback, args in callbacks:
            hooks.add(MESSAGE_DELIVERED, callback, args=args, filter=lambda client, message: True)
        hooks.notify(MESSAGE_DELIVERED, CLIENT, MESSAGE, "live")
        rest = [(), ("own",), ("extra",), ("live",), ("live",), ("live", "extra"), ("live",)]
        assert got == [(CLIENT, MESSAGE, *each) for each in rest]
        hooks.add(MESSAGE_DELIVERED, vars)
        with pytest.raises(HookError, match=r"message.delivered\(client, message, \[delivery\]\) calls back with 2"):
            hooks.add(MESSAGE_DELIVERED, lambda client: None)

    def test_objects_and_partials_are_looked_into(self) -> None:
        hooks = Hooks()
        hooks.add(CLIENT_AUTHENTICATE, partial(AsyncCallable()))
        assert hooks.is_async(CLIENT_AUTHENTICATE)
        hooks.add(CLIENT_AUTHENTICATE, AsyncCallable(), priority=-1)
        assert [entry.is_async for entry in hooks.listing()] == [True, True]
        assert [entry.name.rpartition(".")[2] for entry in hooks.listing()] == ["AsyncCallable"] * 2
        assert run_plain(hooks.decide_async(CLIENT_AUTHENTICATE, CLIENT, None)) is ALLOW

    def test_a_callable_that_does_not_tell_its_signature_is_taken(self) -> None:
        assert Hooks().add("client.connected", vars)

    def test_a_filter_must_fit_and_cannot_wait(self) -> None:
        async def later(client: ClientInfo) -> bool:
            return True

        hooks = Hooks()
        with pytest.raises(HookError, match="takes"):
            hooks.add("client.connected", boom, filter=lambda: True)
        with pytest.raises(HookError, match="a filter cannot wait"):
            hooks.add("client.connected", boom, filter=later)

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"prority": 3}, r"boom: a hook has no option 'prority'; did you mean priority\?"),
            ({"priority": "high"}, "boom: priority is 'high'; accepted is a whole number"),
        ],
    )
    def test_wrong_options(self, options: dict[str, Any], words: str) -> None:
        with pytest.raises(HookError, match=words):
            Hooks().add("client.connected", boom, **options)

    def test_a_filter_that_crashes_is_a_crash_of_its_callback(self) -> None:
        hooks = Hooks()
        hooks.add(CLIENT_AUTHENTICATE, lambda client, password: ALLOW, filter=boom)
        assert hooks.decide(CLIENT_AUTHENTICATE, CLIENT, None) == Deny(Reason.NOT_AUTHORIZED)
        assert hooks.listing()[0].crashes == 1


@pytest.mark.parametrize(
    ("point", "more", "words"),
    [
        ("client.connected", {}, "client.connected has single messages alone"),
        ("message.deliver", {}, "message.deliver has single messages alone"),
        ("message.publish", {"filter": lambda client, message: True}, "neither a filter nor extra arguments"),
        ("message.publish", {"args": (1,)}, "neither a filter nor extra arguments"),
    ],
)
def test_publications_where_there_are_none(point: str, more: dict[str, Any], words: str) -> None:
    def any_number(*args: object) -> None: ...

    with pytest.raises(HookError, match=words):
        Hooks().add(point, any_number, publications=True, **more)
