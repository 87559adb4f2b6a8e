"""Files of passwords and rules, read at the start and again when somebody says so."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.broker.room import Room, room
from tests.conformance import raw
from tests.wire import Wire
from trunkline import testing
from trunkline.broker.security import Security, read_files
from trunkline.config.errors import SecurityError
from trunkline.config.reader import from_mapping
from trunkline.hooks import Deny, Hooks
from trunkline.hooks.passwords import set_password
from trunkline.hooks.scram import set_scram


@cache
def ann() -> str:
    """A file of passwords. Hashing one takes long on purpose."""
    return set_password("", "ann", "secret")


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "users").write_text(ann())
    (tmp_path / "rules").write_text('[[rule]]\npermit = "deny"\naction = "publish"\ntopics = ["closed/#"]\n')
    return {"auth": {"password_file": str(tmp_path / "users")}, "acl": {"file": str(tmp_path / "rules")}}


def mark(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())


async def login(here: Room, username: str, password: str) -> int:
    wire = here.wire()
    await wire.send(raw.connect(username, username=username, password=password))
    return (await wire.expect_type(raw.CONNACK)).reason


async def test_users_log_in(files: dict[str, Any]) -> None:
    async with room(**files) as here:
        assert await login(here, "ann", "secret") == 0
        assert await login(here, "ann", "wrong") == 0x86
        assert await login(here, "bob", "secret") == 0x86
        anonymous = here.wire()
        await anonymous.send(raw.connect("nobody"))
        assert (await anonymous.expect_type(raw.CONNACK)).reason == 0x87


async def test_files_may_begin_with_a_byte_order_mark(files: dict[str, Any], tmp_path: Path) -> None:
    for name in ("users", "rules"):
        mark(tmp_path / name)
    async with room(**files) as here:
        assert await login(here, "ann", "secret") == 0


@pytest.mark.parametrize("anonymous", [True, False])
async def test_an_empty_user_name_is_no_login(files: dict[str, Any], anonymous: bool) -> None:
    auth = {**files["auth"], "allow_anonymous": anonymous}
    async with room(auth=auth) as here:
        names: list[str | None] = []
        here.node.hooks.add("client.connected", lambda client: names.append(client.username))
        for version, password in product([3, 4, 5], [None, "", "secret"]):
            wire = here.wire(version)
            await wire.send(raw.connect("a", version=version, username="", password=password))
            answer = await wire.expect_type(raw.CONNACK)
            assert answer.reason == (0 if anonymous else 0x87 if version == 5 else 5), (version, password)
        assert names == ([None] * 9 if anonymous else [])
        assert await login(here, "ann", "wrong") == 0x86
        assert await login(here, "ann", "secret") == 0


async def test_the_files_of_one_broker_are_not_those_of_the_next_with_its_hooks(files: dict[str, Any]) -> None:
    hooks = Hooks()
    async with room(hooks=hooks, **files):
        assert hooks.listing("client.authenticate")
    assert not hooks.listing()


async def test_a_password_is_checked_while_others_go_on(files: dict[str, Any]) -> None:
    async with room(**files, limits={"max_sessions": 10}) as here:
        assert await login(here, "ann", "secret") == 0
        (busy,) = here._wires  # pyright: ignore[reportPrivateUsage]
        asking = here.wire()
        await asking.send(raw.connect("other", username="ann", password="secret"))
        await busy.ping()
        assert asking._buffer == b""  # pyright: ignore[reportPrivateUsage]
        assert (await asking.expect_type(raw.CONNACK)).reason == 0


async def test_what_is_read_again_holds_for_the_next_packet(files: dict[str, Any], tmp_path: Path) -> None:
    async with room(**files) as here:
        assert await login(here, "ann", "secret") == 0
        (ann,) = here._wires  # pyright: ignore[reportPrivateUsage]
        await ann.subscribe(("#", 0))
        assert (await ann.publish("closed/1", b"", qos=1)).reason == 0x87  # type: ignore[union-attr]
        (tmp_path / "rules").write_text("")
        (tmp_path / "users").write_text(set_password("", "bob", "secret"))
        here.admin.reconfiguring.reload()
        await ann.send(raw.publish("closed/1", b"x"))
        await ann.expect_publish("closed/1", b"x")
        assert await login(here, "bob", "secret") == 0
        assert await login(here, "ann", "secret") == 0x86


async def test_what_cannot_be_read_again_changes_nothing(files: dict[str, Any], tmp_path: Path) -> None:
    async with room(**files) as here:
        (tmp_path / "users").write_text("ann\n")
        (tmp_path / "rules").write_text("[[rule]]\npermit = 1\n")
        with pytest.raises(SecurityError) as error:
            here.admin.reconfiguring.reload()
        assert len(error.value.problems) >= 2
        assert any("users" in problem for problem in error.value.problems)
        assert any("rules" in problem for problem in error.value.problems)
        assert await login(here, "ann", "secret") == 0


async def test_all_that_is_wrong_with_the_files_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "users").write_bytes(b"\xff\xfe")
    (tmp_path / "scram").write_text("nothing that is a key\n")
    (tmp_path / "ids").write_text("device 1: no hash\n")
    with pytest.raises(SecurityError) as error:
        async with testing.broker(
            auth={
                "password_file": str(tmp_path / "users"),
                "client_id_file": str(tmp_path / "ids"),
                "scram_file": str(tmp_path / "scram"),
            }
        ):
            raise AssertionError("it started")
    problems = "\n".join(error.value.problems)
    assert "not UTF-8" in problems
    assert "ids" in problems
    assert "scram" in problems


async def test_scram_users_are_challenged(tmp_path: Path) -> None:
    (tmp_path / "scram").write_text(set_scram("", "ann", "secret"))
    async with room(auth={"scram_file": str(tmp_path / "scram")}) as here:
        wire = here.wire()
        first = raw.authentication_method("SCRAM-SHA-256") + raw.authentication_data(b"n,,n=ann,r=abc")
        await wire.send(raw.connect("ann", properties=first))
        challenge = await wire.expect_type(raw.AUTH)
        assert b"r=abc" in challenge.data
        await wire.send(raw.auth(0x18, raw.authentication_method("SCRAM-SHA-256") + raw.authentication_data(b"x")))
        assert (await wire.expect_type(raw.CONNACK)).reason == 0x87


async def login_at(here: Room, listener: str, username: str | None, password: str | None) -> int:
    (address,) = [each.address for each in here.node.listeners if each.settings.label == listener]
    async with await Wire.open(*address) as wire:
        await wire.send(raw.connect("c", username=username, password=password))
        return (await wire.expect_type(raw.CONNACK)).reason


async def test_a_listener_has_files_of_its_own(tmp_path: Path) -> None:
    for name in ("ann", "bob"):
        (tmp_path / name).write_text(set_password("", name, "secret"))
    (tmp_path / "bobscram").write_text(set_scram("", "bob", "secret"))
    listeners = [
        {"url": "tcp://127.0.0.1:0", "name": "general"},
        {
            "url": "tcp://127.0.0.1:0",
            "name": "own",
            "password_file": str(tmp_path / "bob"),
            "scram_file": str(tmp_path / "bobscram"),
        },
    ]
    async with room(listeners=listeners, auth={"password_file": str(tmp_path / "ann")}) as here:
        for listener, username, reason in (
            ("general", "ann", 0),
            ("general", "bob", 0x86),
            ("own", "bob", 0),
            ("own", "ann", 0x86),
        ):
            assert await login_at(here, listener, username, "secret") == reason
        assert await login(here, "ann", "secret") == 0  # without a socket: the general file
        (tmp_path / "bob").write_text(set_password("", "eve", "secret"))
        here.admin.reconfiguring.reload()
        assert await login_at(here, "own", "bob", "secret") == 0x86
        assert await login_at(here, "own", "eve", "secret") == 0
        (tmp_path / "bob").write_text("\nbob\n")
        with pytest.raises(SecurityError) as error:
            here.admin.reconfiguring.reload()
        assert error.value.problems == [f"{tmp_path / 'bob'}:2: no ':' in the line; accepted: name:…"]


async def test_a_listener_with_files_of_its_own_takes_no_anonymous_clients(tmp_path: Path) -> None:
    (tmp_path / "users").write_text(ann())
    listeners = [
        {"url": "tcp://127.0.0.1:0", "name": "own", "password_file": str(tmp_path / "users")},
        {"url": "tcp://127.0.0.1:0", "name": "open"},
    ]
    async with room(listeners=listeners) as here:
        assert await login_at(here, "own", None, None) == 0x87
        assert await login_at(here, "open", None, None) == 0
        await here.client("inside")


async def test_rules_that_name_a_listener_that_is_not_there_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rules").write_text('[[rule]]\npermit = "deny"\nlistener = ["in-process", "publik"]\n')
    with pytest.raises(SecurityError) as error:
        async with testing.broker(acl={"file": str(tmp_path / "rules")}):
            raise AssertionError("it started")
    assert error.value.problems == [f'{tmp_path / "rules"}:3: listener: no listener is called "publik"']


async def test_passwords_are_guessed_in_vain(files: dict[str, Any]) -> None:
    async with room(passwords={"max_failures": 2}, **files) as here:
        answers = [await login(here, "ann", password) for password in ("1", "1", "2", "3", "secret")]
        assert answers == [0x86, 0x86, 0x86, 0x9F, 0x9F]
        assert [alarm.name for alarm in here.node.alarms.active] == ["passwords_guessed"]
        here.admin.reconfiguring.reload()
        assert await login(here, "ann", "secret") == 0


# Which rule denies


@asynccontextmanager
async def from_elsewhere(**settings: Any) -> AsyncIterator[tuple[testing.Broker, Wire]]:
    """A client of another machine, as a load balancer says."""
    listener = {"url": "tcp://127.0.0.1:0", "proxy_protocol": {"trusted": ["127.0.0.1"]}}
    async with testing.broker(listeners=[listener], **settings) as b, await Wire.open(b.host, b.port) as wire:
        await wire.send(b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 1883\r\n")
        await wire.connect("a")
        yield b, wire


async def told(wire: Wire, filter: str) -> tuple[int, object]:
    await wire.send(raw.subscribe(1, (filter, 0)))
    suback = await wire.expect_type(raw.SUBACK)
    return suback.reasons[0], suback.get(0x1F)


@pytest.mark.parametrize("filter", ["#", "+/#", "$SYS/#", "$SYS/broker/uptime", "$share/g/#"])
async def test_a_default_rule_that_denies_is_named(filter: str, caplog: pytest.LogCaptureFixture) -> None:
    async with from_elsewhere() as (_, wire):
        assert await told(wire, filter) == (0x87, "denied by rule 2 of the default access rules")
        assert await told(wire, "+/+/#") == (0, None)
        await wire.disconnect()
    assert f"client a, filter {filter}: denied by rule 2 of the default access rules" in caplog.text


async def test_a_rule_of_a_file_is_named(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("")
    async with from_elsewhere(acl={"file": str(rules)}) as (b, wire):
        assert [await told(wire, filter) for filter in ("#", "$SYS/#")] == [(0, None)] * 2
        rules.write_text('[[rule]]\npermit = "deny"\ntopics = ["a"]\n[[rule]]\npermit = "deny"\ntopics = ["b/#"]\n')
        b.node.reconfiguring.reload()
        for filter, rule in (("a", 1), ("b/c", 2)):
            assert await told(wire, filter) == (0x87, f"denied by rule {rule} of the access rules")


async def test_that_no_rule_allows_is_told(tmp_path: Path) -> None:
    (tmp_path / "rules").write_text("")
    async with from_elsewhere(acl={"file": str(tmp_path / "rules"), "no_match": "deny"}) as (_, wire):
        assert await told(wire, "t") == (0x87, "no rule of the access rules allows it")


async def test_what_a_hook_says_is_told() -> None:
    async def ask(*_: object) -> Deny:
        return Deny(text="not before noon")

    for callback in (lambda *_: Deny(text="not before noon"), ask):
        hooks = Hooks()
        hooks.add("client.check_acl", callback)
        async with room(hooks=hooks) as here:
            assert await told(await here.client("a"), "t") == (0x87, "not before noon")


@pytest.mark.parametrize(
    ("listener", "given", "said"),
    [("tcp://0.0.0.0:0", False, True), ("tcp://127.0.0.1:0", False, False), ("tcp://0.0.0.0:0", True, False)],
)
def test_the_log_says_that_the_default_rules_hold_where_they_matter(
    listener: str, given: bool, said: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "rules").write_text("")
    acl = {"file": str(tmp_path / "rules")} if given else {}
    config = from_mapping({"listeners": [{"url": listener, "allow_anonymous": True}], "acl": acl})
    with caplog.at_level(logging.INFO, "trunkline.access"):
        Security(config, Hooks()).apply(config, read_files(config))
    assert ("the default access rules hold" in caplog.text) is said
