"""Listeners that name their authenticators."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.broker.inside import inside
from tests.conformance import raw
from tests.wire import Wire
from trunkline import testing
from trunkline.config.errors import ConfigError
from trunkline.config.reader import from_mapping
from trunkline.hooks import ALLOW, Allow, ClientInfo, Deny, Hooks
from trunkline.hooks.decisions import Stop
from trunkline.hooks.passwords import set_password
from trunkline.hooks.points import CLIENT_AUTHENTICATE
from trunkline.mqtt.reasons import Reason


@cache
def ann() -> str:
    """A file of passwords. Hashing one takes long on purpose."""
    return set_password("", "ann", "secret")


@pytest.fixture
def users(tmp_path: Path) -> str:
    (tmp_path / "users").write_text(ann())
    return str(tmp_path / "users")


def listeners(*lists: list[str] | None, **settings: object) -> list[dict[str, object]]:
    tables = [{"url": "tcp://127.0.0.1:0", "name": str(number), **settings} for number in range(len(lists))]
    return [
        table if names is None else {**table, "authenticators": names}
        for table, names in zip(tables, lists, strict=True)
    ]


async def login(b: testing.Broker, listener: int, username: str | None = None, password: str | None = None) -> int:
    async with await Wire.open(*inside(b.node).listeners[listener].address) as wire:
        await wire.send(raw.connect("c", username=username, password=password))
        return (await wire.expect_type(raw.CONNACK)).reason


async def chosen(hooks: Hooks, *names: str) -> object:
    return await hooks.decide_login(CLIENT_AUTHENTICATE, ClientInfo("c", authenticators=names), b"")


async def test_those_that_are_named_are_asked_in_that_order() -> None:
    hooks, asked = Hooks(), list[str]()

    def passes(name: str) -> Any:
        def authenticate(client: ClientInfo, password: bytes | None) -> None:
            asked.append(name)

        return authenticate

    for name, priority in (("first", 9), ("second", 5), ("third", 1), ("", -5)):
        hooks.add("client.authenticate", passes(name), priority=priority, authenticator=name)
    assert await chosen(hooks, "third", "first") is None
    assert asked == ["", "third", "first"]
    asked.clear()
    assert await hooks.decide_login(CLIENT_AUTHENTICATE, ClientInfo("c"), b"") is None
    assert asked == ["first", "second", "third", ""]


@pytest.mark.parametrize("answer", [ALLOW, Stop(ALLOW)])
async def test_what_is_no_authenticator_can_deny_and_lets_nobody_in(answer: Allow | Stop[Allow]) -> None:
    hooks = Hooks()
    hooks.add("client.authenticate", lambda client, password: answer)
    assert await hooks.decide_login(CLIENT_AUTHENTICATE, ClientInfo("c"), b"") is ALLOW
    assert await chosen(hooks) is None
    assert await chosen(hooks, "passwords") is None
    hooks.add("client.authenticate", lambda client, password: Deny(Reason.BANNED), priority=-9)
    hooks.add("client.authenticate", lambda client, password: ALLOW, priority=9, authenticator="passwords")
    denial = await chosen(hooks, "passwords")
    assert isinstance(denial, Deny)
    assert denial.reason is Reason.BANNED


async def test_a_crash_of_one_that_is_not_asked_denies_nothing() -> None:
    hooks = Hooks()

    async def broken(client: ClientInfo, password: bytes | None) -> None:
        raise RuntimeError

    hooks.add("client.authenticate", broken, authenticator="broken")
    hooks.add("client.authenticate", lambda client, password: ALLOW, authenticator="sound")
    assert await chosen(hooks, "sound") is ALLOW
    assert isinstance(await chosen(hooks, "broken", "sound"), Deny)


async def test_a_listener_without_authenticators_beside_one_with_passwords(users: str) -> None:
    async with testing.broker(listeners=listeners(None, [], ["passwords"]), auth={"password_file": users}) as b:
        for asks in (0, 2):
            assert await login(b, asks) == 0x87
            assert await login(b, asks, "ann", "secret") == 0
            assert await login(b, asks, "ann", "wrong") == 0x86
        names: list[str | None] = []
        b.hooks.add("client.connected", lambda client: names.append(client.username))
        assert await login(b, 1) == 0
        assert await login(b, 1, "ann", "wrong") == 0
        assert names == [None, None]  # nobody has verified the name


async def test_a_plugin_that_is_not_named_is_not_asked_and_not_missed(users: str) -> None:
    settings: dict[str, Any] = {
        "auth": {"password_file": users},
        "plugins": {"jwt": {"secret": "s" * 32}},
        "listeners": listeners(["passwords"], ["jwt"], ["jwt", "passwords"]),
    }
    async with testing.broker(**settings) as b:
        assert [await login(b, n, "ann", "secret") for n in range(3)] == [0, 0x87, 0]
        # a token that is none of ours
        token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJl"
        assert [await login(b, n, "ann", token) for n in range(3)] == [0x86, 0x86, 0x86]
        seen: list[Any] = []
        b.hooks.add("client.connect", lambda client, connect: seen.append(client.authenticators))
        assert await login(b, 0, "ann", "secret") == 0
        assert seen == [("passwords",)]


def problems(table: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        from_mapping(table)
    return [f"{problem.key}: {problem.text}" for problem in caught.value.problems]


def test_names_that_mean_nothing_are_errors(users: str) -> None:
    table = {"listeners": listeners(["passwords", "scram", "jwt"])}
    assert problems(table) == [
        'listeners[0].authenticators: "passwords" needs a password_file or client_id_file, here or in [auth]',
        'listeners[0].authenticators: "scram" needs a scram_file, here or in [auth]',
        "listeners[0].authenticators: no authenticator is called 'jwt'; configured are none",
    ]
    assert problems({"listeners": listeners(["paswords"], password_file=users)}) == [
        "listeners[0].authenticators: no authenticator is called 'paswords'; did you mean passwords?"
    ]


def test_an_empty_list_is_no_way_to_log_in() -> None:
    auth = {"auth": {"allow_anonymous": False}}
    assert problems({"listeners": listeners([]), **auth}) == [
        "listeners[0].authenticators: is empty, and allow_anonymous is not true: nobody could connect"
    ]
    (problem,) = problems({"listeners": [{"url": "tcp://0.0.0.0:0", "authenticators": []}]})
    assert "other machines can reach" in problem
    config = from_mapping({"listeners": ["tcp://127.0.0.1:0?authenticators=[]"]})
    assert config.listeners[0].authenticators == ()
    assert config.allows_anonymous(config.listeners[0])
