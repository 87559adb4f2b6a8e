"""Logins by password: few are verified at a time, and not many wrong ones."""

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from trunkline.broker.alarms import PASSWORDS_GUESSED, Alarms
from trunkline.broker.node_use import ALONE, Alone, NodeUse
from trunkline.broker.password_check import REPORTED_EVERY, GuessReport, PasswordCheck, PasswordQueue
from trunkline.config.security_settings import PasswordSettings
from trunkline.hooks import ALLOW, Allow, ClientInfo, Deny, Hooks
from trunkline.hooks.passwords import REFUSED, PasswordAuthenticator
from trunkline.hooks.tries import TOO_MANY
from trunkline.mqtt.packing import pack, unpack
from trunkline.mqtt.reasons import Reason


class Instant(PasswordAuthenticator):
    """Everybody's password is `right`; nothing is hashed."""

    def __init__(self) -> None:
        super().__init__({}, None)
        self.verified: list[str] = []
        self.passes_on = False

    def __call__(self, client: ClientInfo, password: bytes | None) -> Allow | Deny | None:
        self.verified.append(client.client_id)
        if self.passes_on:
            return None
        return ALLOW if password == b"right" else REFUSED


class Queue(PasswordQueue):
    """No threads: each verification takes a second."""

    async def run(self, verify: Any) -> Any:
        await trio.sleep(1)
        return verify()


class Desk:
    def __init__(self, use: NodeUse = ALONE, **settings: Any) -> None:
        self.authenticator = Instant()
        self.timers: list[tuple[float, Any]] = []
        self.alarms = Alarms(Hooks(), trio.current_time)
        chosen = PasswordSettings(**settings)
        self.check = PasswordCheck(
            {},
            self.authenticator,
            chosen,
            Queue(chosen),
            GuessReport(self.alarms, lambda *args: self.timers.append(args)),
            use,
        )

    async def login(self, client_id: str, user: str, password: str, address: str = "10.0.0.1") -> Allow | Deny | None:
        return await self.check(ClientInfo(client_id, user, (address, 1)), password.encode())


async def test_somebody_who_guesses_is_not_looked_at_for_long(autojump_clock: MockClock) -> None:
    desk = Desk()
    answers: list[Allow | Deny | None] = []

    async def guess(number: int) -> None:
        answers.append(await desk.login(f"g{number}", "ann", f"guess{number}"))

    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(guess, number)
    assert len(desk.authenticator.verified) <= 6  # one more was looked at when the fifth was wrong
    assert answers.count(TOO_MANY) == 50 - len(desk.authenticator.verified)
    assert await desk.login("a", "ann", "right") is TOO_MANY
    assert await desk.login("a", "bob", "right") is ALLOW
    await trio.sleep(60)
    assert await desk.login("a", "ann", "right") is ALLOW


class Beside(Alone):
    """Of one of two shards: what this one says, the other hears at once."""

    other: "Beside"

    def __init__(self) -> None:
        self.hearers: dict[str, Callable[[Any], None]] = {}

    def tell(self, subject: str, content: object) -> None:
        hearer = self.other.hearers.get(subject)
        if hearer is not None:
            hearer(unpack(pack(content)))

    def hear(self, subject: str, hearer: Callable[[Any], None]) -> None:
        self.hearers[subject] = hearer


async def test_who_guesses_at_two_shards_has_as_many_tries_as_at_one(autojump_clock: MockClock) -> None:
    uses = Beside(), Beside()
    uses[0].other, uses[1].other = uses[1], uses[0]
    desks = [Desk(use, max_failures=5, max_failures_by_address=8) for use in uses]
    tries = [await desks[number % 2].login(f"g{number}", "ann", f"guess{number}") for number in range(12)]
    assert tries.count(TOO_MANY) == 7
    assert sum(len(desk.authenticator.verified) for desk in desks) == 5
    for number in range(3):
        await desks[0].login("g", f"user{number}", "guess")
    assert await desks[1].login("a", "bob", "right") is TOO_MANY, "all those at the address together"


async def test_a_failure_at_a_listener_without_passwords_counts_for_nobody() -> None:
    use = Beside()
    check = PasswordCheck({"none": None}, Instant(), PasswordSettings(), Queue(PasswordSettings()), None, use)
    use.hearers["login failed"](("none", "10.0.0.1", "ann"))
    assert await check(ClientInfo("a", "ann", ("10.0.0.1", 1)), b"right") is ALLOW


async def test_others_behind_the_same_address_come_in_while_somebody_guesses(autojump_clock: MockClock) -> None:
    desk = Desk(window=1000, pause=1000)
    assert await desk.login("d1", "fleet", "right") is ALLOW
    for number in range(200):
        await desk.login("g", f"user{number}", "guess")
    assert len(desk.authenticator.verified) == 101
    assert await desk.login("d2", "fleet", "right") is ALLOW
    assert await desk.login("g", "another", "right") is TOO_MANY
    assert await desk.login("g", "another", "right", address="10.0.0.2") is ALLOW


async def test_a_device_that_was_set_up_wrongly_shuts_out_nobody(autojump_clock: MockClock) -> None:
    desk = Desk()
    for _ in range(1000):
        assert await desk.login("d", "fleet", "wrong") is REFUSED
    assert len(desk.authenticator.verified) < 20
    assert await desk.login("other", "fleet", "right") is ALLOW


async def test_one_address_does_not_hold_up_the_others(autojump_clock: MockClock) -> None:
    desk = Desk(threads=1, max_failures=0, max_failures_by_address=0)
    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(desk.login, f"g{number}", "ann", f"guess{number}")
        await wait_all_tasks_blocked()
        began = trio.current_time()
        assert await desk.login("a", "bob", "right", address="10.0.0.2") is ALLOW
        assert trio.current_time() - began <= 3
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("before", [False, True])
async def test_wrong_logins_do_not_hold_up_others_at_their_address(before: bool, autojump_clock: MockClock) -> None:
    """Of one name. With many names, only those that were right before do not wait for them."""
    desk = Desk(threads=1, max_failures=0, max_failures_by_address=0)
    if before:
        assert await desk.login("a", "bob", "right") is ALLOW
    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(desk.login, f"g{number}", f"guest{number}" if before else "ann", f"guess{number}")
        await wait_all_tasks_blocked()
        began = trio.current_time()
        assert await desk.login("a", "bob", "right") is ALLOW
        assert trio.current_time() - began <= 3
        nursery.cancel_scope.cancel()


async def test_too_many_that_wait(autojump_clock: MockClock) -> None:
    desk = Desk(threads=1, max_waiting=3)
    answers: list[Any] = []

    async def login(number: int) -> None:
        answers.append(await desk.login("c", f"user{number}", "right"))

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(login, number)
    assert answers.count(ALLOW) == 4
    (busy,) = [answer for answer in answers if answer is not ALLOW]
    assert busy.reason is Reason.SERVER_BUSY


async def test_operators_are_told_once_and_then_each_minute(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk()

    async def guess(count: int) -> None:
        for number in range(count):
            await desk.login("g", "ann", f"secret{number}")

    await guess(15)
    (alarm,) = desk.alarms.active
    assert alarm.name == PASSWORDS_GUESSED
    assert "10.0.0.1" in alarm.text
    assert "'ann'" in alarm.text
    for number in range(6):
        await desk.login("g", "bob", f"secret{number}")
    (alarm,) = desk.alarms.active
    assert "last for the user 'bob'" in alarm.text
    ((when, report),) = desk.timers
    assert REPORTED_EVERY <= when <= trio.current_time() + REPORTED_EVERY
    with caplog.at_level(logging.WARNING):
        report()
    assert "11 logins were refused within 60 s" in caplog.text
    assert "secret" not in caplog.text
    desk.timers[1][1]()
    assert desk.alarms.active == []
    assert len(desk.timers) == 2
    await trio.sleep(60)
    await guess(10)
    assert len(desk.alarms.active) == 1


async def test_each_listener_has_its_own_passwords(autojump_clock: MockClock) -> None:
    settings = PasswordSettings()
    check = PasswordCheck({"own": Instant(), "none": None}, None, settings, Queue(settings), None)
    assert check.concerns(ClientInfo("c", "ann", listener="own"), b"right")
    for listener in ("none", "elsewhere"):
        assert not check.concerns(ClientInfo("c", "ann", listener=listener), b"right")
    assert await check(ClientInfo("c", "ann", listener="own"), b"right") is ALLOW


async def test_passwords_that_are_nobody_s_do_not_push_out_those_that_were_right(autojump_clock: MockClock) -> None:
    desk = Desk(max_tracked=10, window=1000, pause=1000)
    assert await desk.login("d1", "fleet", "right") is ALLOW
    desk.authenticator.passes_on = True
    for number in range(20):
        assert await desk.login("g", "", f"nobody{number}") is None
    desk.authenticator.passes_on = False
    for number in range(9):
        await desk.login("g", "fleet", f"guess{number}")
    assert await desk.login("d2", "fleet", "right") is ALLOW


async def test_a_thread_is_awaited_though_the_client_is_gone() -> None:
    settings = PasswordSettings(threads=1)
    queue = PasswordQueue(settings)
    began, go_on = trio.Event(), threading.Event()

    def verify() -> Allow:
        trio.from_thread.run_sync(began.set)
        go_on.wait()
        return ALLOW

    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.run, verify)
        await began.wait()
        nursery.cancel_scope.cancel()
        go_on.set()
