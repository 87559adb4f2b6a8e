"""Banned clients: refused at the door, and put out when they are in."""

from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.disk import Disk
from tests.broker.room import Room, room
from tests.conformance import raw
from tests.wire import Wire
from trunkline.config.errors import ConfigError
from trunkline.config.reader import from_mapping
from trunkline.hooks.client import ClientInfo
from trunkline.hooks.exchange import Exchange, Success
from trunkline.plugins import Context
from trunkline.plugins.finding import settings_model

BANNED = 0x8A
BY_US = 0x98


def call(here: Room, command: str, **arguments: str) -> Any:
    return here.admin.plugins.call("bans", command, arguments)


def figure(here: Room, name: str) -> int:
    return dict(here.admin.plugins.figures())[f"plugins.bans.{name}"]


async def refused(here: Room, client_id: str, version: int = 5, **settings: Any) -> int | None:
    wire = here.wire(version)
    await wire.send(raw.connect(client_id, version=version, **settings))
    return (await wire.expect_type(raw.CONNACK)).reason


async def test_what_is_configured_holds_from_the_start() -> None:
    bans = [
        {"kind": "client_id", "who": "bad", "reason": "noisy"},
        {"kind": "username", "who": "mallory"},
        {"kind": "address", "who": "10.1.2.3/8"},
    ]
    async with room(plugins={"bans": {"bans": bans}}) as here:
        assert await refused(here, "bad") == BANNED
        assert await refused(here, "bad", version=4) == 5
        assert await refused(here, "x", username="mallory", password="p") == BANNED
        assert await refused(here, "good") == 0
        assert figure(here, "refused") == 3
        assert figure(here, "count") == 3
        assert [(row["kind"], row["who"], row["by"], row["until"]) for row in call(here, "list")] == [
            ("address", "10.0.0.0/8", "config", ""),
            ("client_id", "bad", "config", ""),
            ("username", "mallory", "config", ""),
        ]


async def test_nobody_learns_why() -> None:
    async with room(plugins={"bans": {"bans": [{"kind": "client_id", "who": "a", "reason": "private"}]}}) as here:
        wire = here.wire()
        await wire.send(raw.connect("a"))
        assert b"private" not in await wire.rest()


async def test_a_ban_comes_before_any_password() -> None:
    asked: list[str] = []

    async with room(plugins={"bans": {}}) as here:
        here.broker.hooks.add("client.authenticate", lambda client, password: asked.append(client.client_id))
        call(here, "add", kind="client_id", who="a")
        assert await refused(here, "a") == BANNED
        assert await refused(here, "b") == 0
        assert asked == ["b"]


async def test_enhanced_authentication_is_no_way_around() -> None:
    async with room(plugins={"bans": {}}) as here:
        here.broker.hooks.add("client.enhanced_authenticate", lambda client, exchange: Success())
        call(here, "add", kind="client_id", who="a")
        method = raw.authentication_method("M")
        assert await refused(here, "a", properties=method) == BANNED
        assert await refused(here, "b", properties=method) == 0


async def test_a_name_that_only_the_authenticator_knows() -> None:
    def authenticate(client: ClientInfo, exchange: Exchange) -> Success:
        return Success(username="mallory")

    async with room(plugins={"bans": {}}) as here:
        here.broker.hooks.add("client.enhanced_authenticate", authenticate)
        call(here, "add", kind="username", who="mallory")
        wire = here.wire()
        await wire.send(raw.connect("a", properties=raw.authentication_method("M")))
        await wire.expect_type(raw.CONNACK)
        await wire.expect_disconnect(BY_US)


@pytest.mark.parametrize(("kind", "who"), [("client_id", "a"), ("username", "ann")])
async def test_a_client_that_is_in_is_put_out(kind: str, who: str) -> None:
    async with room(plugins={"bans": {}}, auth={"allow_anonymous": True}) as here:
        here.broker.hooks.add(
            "client.connected", lambda client: setattr(client, "username", client.attributes.get("n"))
        )
        here.broker.hooks.add("client.authenticate", lambda client, _: client.attributes.update(n=client.username))
        wire = await here.client("a", username="ann", password="p")
        other = await here.client("b", username="bob", password="p")
        call(here, "add", kind=kind, who=who)
        await wire.expect_disconnect(BY_US)
        await other.ping()
        assert figure(here, "kicked") == 1
        call(here, "add", kind="client_id", who="nobody")
        assert figure(here, "kicked") == 1


async def test_a_network_is_put_out() -> None:
    async with room(plugins={"bans": {}}) as here:
        inside = await here.client("inside")
        async with await _by_tcp(here, "a") as a, await _by_tcp(here, "b") as b:
            call(here, "add", kind="address", who="127.0.0.0/8")
            await a.expect_disconnect(BY_US)
            await b.expect_disconnect(BY_US)
        await inside.ping()
        async with await Wire.open(here.broker.host, here.broker.port) as wire:
            await wire.send(raw.connect("a"))
            assert (await wire.expect_type(raw.CONNACK)).reason == BANNED


async def _by_tcp(here: Room, client_id: str) -> Wire:
    wire = await Wire.open(here.broker.host, here.broker.port)
    await wire.connect(client_id)
    return wire


async def test_a_ban_ends_by_itself(autojump_clock: MockClock) -> None:
    async with room(plugins={"bans": {}}) as here:
        call(here, "add", kind="client_id", who="a", seconds="60", reason="cool down")
        (row,) = call(here, "list")
        assert row["until"] > row["at"]
        assert row["reason"] == "cool down"
        await trio.sleep(59)
        assert await refused(here, "a") == BANNED
        await trio.sleep(1.5)
        assert call(here, "list") == []
        assert await refused(here, "a") == 0


async def test_a_ban_that_is_made_anew_has_its_new_end(autojump_clock: MockClock) -> None:
    async with room(plugins={"bans": {}}) as here:
        call(here, "add", kind="client_id", who="a", seconds="60")
        call(here, "add", kind="client_id", who="a", seconds="600")
        await trio.sleep(61)
        assert await refused(here, "a") == BANNED
        call(here, "add", kind="client_id", who="a")
        await trio.sleep(10_000)
        assert await refused(here, "a") == BANNED
        assert call(here, "remove", kind="client_id", who="a") == "no longer banned: client_id a"
        assert await refused(here, "a") == 0


async def test_the_commands_say_what_is_wrong() -> None:
    async with room(plugins={"bans": {"max_bans": 1}}) as here:
        for arguments, words in (
            ({"kind": "x", "who": "y"}, "kind is client_id, username, address"),
            ({"kind": "address", "who": "y"}, "neither an address"),
            ({"kind": "client_id", "who": "y", "seconds": "soon"}, "seconds is 'soon'"),
            ({"kind": "client_id", "who": "y", "seconds": "-1"}, "above 0"),
            ({"kind": "client_id", "who": "y", "seconds": "nan"}, "above 0"),
            ({"kind": "client_id"}, "missing a required argument: 'who'"),
        ):
            with pytest.raises(ValueError, match=words):
                call(here, "add", **arguments)
        with pytest.raises(LookupError, match="client_id y is not banned"):
            call(here, "remove", kind="client_id", who="y")
        with pytest.raises(ValueError, match="limit"):
            call(here, "list", limit="all")
        call(here, "add", kind="client_id", who="a")
        with pytest.raises(ValueError, match="limit of 1 bans"):
            call(here, "add", kind="client_id", who="b")


async def test_the_list_comes_in_pages() -> None:
    async with room(plugins={"bans": {}}) as here:
        for number in range(25):
            call(here, "add", kind="client_id", who=f"c{number:02}")
        seen: list[str] = []
        page = call(here, "list", limit="10")
        while page:
            seen += [row["who"] for row in page]
            page = call(here, "list", after=f"{page[-1]['kind']}:{page[-1]['who']}", limit="10")
        assert seen == [f"c{number:02}" for number in range(25)]
        (row,) = call(here, "show", kind="client_id", who="c07")
        assert row["by"] == "command"


async def test_bans_outlive_the_plugin(mock_clock: MockClock) -> None:
    settings = {"bans": [{"kind": "client_id", "who": "configured"}], "max_bans": 4}
    async with room(plugins={"bans": settings}) as here:
        call(here, "add", kind="client_id", who="short", seconds="10")
        call(here, "add", kind="client_id", who="long", seconds="100", reason="why")
        call(here, "add", kind="address", who="10.0.0.0/8")
        call(here, "remove", kind="client_id", who="configured")
        before = {row["who"]: row for row in call(here, "list")}
        await here.admin.plugins.disable("bans")
        mock_clock.jump(20)
        await here.admin.plugins.reload("bans")
        after = {row["who"]: row for row in call(here, "list")}
        assert set(after) == {"long", "10.0.0.0/8", "configured"}
        assert after["long"] == before["long"]
        mock_clock.jump(81)
        await trio.testing.wait_all_tasks_blocked()
        assert {row["who"] for row in call(here, "list")} == {"10.0.0.0/8", "configured"}
        call(here, "remove", kind="address", who="10.0.0.0/8")
        await here.admin.plugins.reload("bans")
        assert [row["who"] for row in call(here, "list")] == ["configured"]


async def test_bans_outlive_the_broker(mock_clock: MockClock) -> None:
    settings = {"bans": [{"kind": "client_id", "who": "configured"}]}
    async with room(plugins={"bans": settings}) as here:
        call(here, "add", kind="client_id", who="short", seconds="10")
        call(here, "add", kind="client_id_pattern", who="a:*", reason="why")
        call(here, "add", kind="address", who="2001:db8::/32")
        call(here, "add", kind="username", who="gone")
        call(here, "remove", kind="username", who="gone")
        before = {row["who"]: row for row in call(here, "list")}
        await here.broker.restart()
        mock_clock.jump(5)
        assert {row["who"]: row for row in call(here, "list")} == before
        mock_clock.jump(6)
        await trio.testing.wait_all_tasks_blocked()
        assert {row["who"] for row in call(here, "list")} == {"a:*", "2001:db8::/32", "configured"}
        assert [key for key, _ in here.node.plugin_stores.of("bans").items()] == [
            "address:2001:db8::/32",
            "client_id_pattern:a:*",
        ]


async def test_what_the_store_has_no_room_for_is_not_banned() -> None:
    async with room(store={"max_plugin_bytes": 100}, plugins={"bans": {}}) as here:
        call(here, "add", kind="client_id", who="a")
        with pytest.raises(ValueError, match="max_plugin_bytes"):
            call(here, "add", kind="client_id", who="b", reason="long" * 50)
        assert [row["who"] for row in call(here, "list")] == ["a"]


async def test_bans_for_which_there_is_no_room_any_more() -> None:
    async with room(plugins={"bans": {}}) as here:
        for who in ("a", "b", "c"):
            call(here, "add", kind="client_id", who=who)
        smaller = from_mapping({"plugins": {"bans": {"max_bans": 2}}}, settings_model).plugins["bans"]
        await here.admin.plugins.reload("bans", smaller)
        assert [row["who"] for row in call(here, "list")] == ["a", "b"]
        await here.admin.plugins.reload("bans", from_mapping({"plugins": {"bans": {}}}, settings_model).plugins["bans"])
        assert [row["who"] for row in call(here, "list")] == ["a", "b", "c"]


async def test_a_ban_of_a_command_is_there_when_the_configurations_is_not_any_more() -> None:
    configured = {"bans": [{"kind": "client_id", "who": "a"}]}
    async with room(plugins={"bans": {}}) as here:
        call(here, "add", kind="client_id", who="a", reason="command")
        for settings, reason in ((configured, ""), ({}, "command")):
            changed = from_mapping({"plugins": {"bans": settings}}, settings_model).plugins["bans"]
            await here.admin.plugins.reload("bans", changed)
            assert [(row["who"], row["reason"]) for row in call(here, "list")] == [("a", reason)]


FLAPPING = {"enable": True, "max_count": 2, "window_time": 60, "ban_time": 300}


async def come_and_go(here: Room, client_id: str) -> None:
    wire = await here.client(client_id)
    await wire.disconnect()


async def test_a_client_that_comes_and_goes_too_often(autojump_clock: MockClock) -> None:
    async with room(plugins={"bans": {"flapping_detect": FLAPPING}}) as here:
        for _ in range(3):
            await come_and_go(here, "a")
            await trio.sleep(10)
        await come_and_go(here, "b")
        assert await refused(here, "a") == BANNED
        (row,) = call(here, "list")
        assert (row["who"], row["by"], row["reason"]) == ("a", "flapping", "disconnected 3 times within 20 s")
        assert figure(here, "flapped") == 1
        await trio.sleep(300)
        await come_and_go(here, "a")  # the count began anew
        await come_and_go(here, "a")
        assert call(here, "list") == []


async def test_slowly_is_not_too_often(autojump_clock: MockClock) -> None:
    async with room(plugins={"bans": {"flapping_detect": FLAPPING}}) as here:
        for _ in range(10):
            await come_and_go(here, "a")
            await trio.sleep(31)
        assert call(here, "list") == []


async def test_only_so_many_are_counted(autojump_clock: MockClock) -> None:
    async with room(plugins={"bans": {"flapping_detect": {**FLAPPING, "max_tracked": 2}}}) as here:
        for client_id in ("a", "b", "c", "a", "b", "c", "a", "b", "c"):
            await come_and_go(here, client_id)
        assert call(here, "list") == []
        await come_and_go(here, "c")
        await come_and_go(here, "c")
        assert [row["who"] for row in call(here, "list")] == ["c"]


async def test_a_full_list_is_an_alarm(autojump_clock: MockClock) -> None:
    settings = {"flapping_detect": FLAPPING, "max_bans": 1}
    async with room(plugins={"bans": settings}) as here:
        call(here, "add", kind="client_id", who="x", seconds="60")
        for _ in range(3):
            await come_and_go(here, "a")
        assert "bans.full" in [alarm.name for alarm in here.admin.alarms.active]
        await trio.sleep(61)
        assert here.admin.alarms.active == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"bans": [{"kind": "name", "who": "x"}]},
            r'bans\[0\].kind: "name": accepted is "client_id" or "username" or "address"',
        ),
        ({"bans": [{"kind": "address", "who": "x"}]}, r"bans\[0\]: 'x' is neither an address"),
        ({"bans": [{"kind": "username"}]}, r"bans\[0\].who: is missing"),
        (
            {"bans": [{"kind": "username", "who": "x"}, {"kind": "username", "who": "y"}], "max_bans": 1},
            "max_bans is 1",
        ),
        ({"flapping_detect": {"max_count": 0}}, "flapping_detect.max_count: 0: accepted is a whole number"),
    ],
)
async def test_what_cannot_be_configured(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        async with room(plugins={"bans": settings}):
            pass


async def test_that_somebody_is_not_banned_proves_nothing() -> None:
    async with room(plugins={"bans": {}}) as here:
        assert not here.admin.config.authenticates()


async def test_a_pattern_keeps_out_who_comes_and_puts_out_who_is_there() -> None:
    configured = [{"kind": "username_pattern", "who": "eve*"}]
    async with room(plugins={"bans": {"bans": configured}}) as here:
        assert await refused(here, "x", username="eve2", password="p") == BANNED
        there, other = await here.client("test-1"), await here.client("prod-1")
        assert call(here, "add", kind="client_id_pattern", who="test-*") == "banned client_id_pattern test-*"
        await there.expect_disconnect(BY_US)
        await other.ping()
        assert await refused(here, "test-2") == BANNED
        call(here, "remove", kind="client_id_pattern", who="test-*")
        assert await refused(here, "test-2") == 0


def test_too_many_patterns_are_found_in_the_configuration() -> None:
    patterns = [{"kind": "username_pattern", "who": f"{number}*"} for number in range(3)]
    with pytest.raises(ConfigError, match="max_patterns is 2"):
        from_mapping({"plugins": {"bans": {"bans": patterns, "max_patterns": 2}}}, settings_model)


async def test_bans_outlive_a_power_failure() -> None:
    disk = Disk()
    async with disk.broker() as life:
        await life.node.plugins.enable("bans")
        life.node.plugins.call("bans", "add", {"kind": "client_id", "who": "a", "reason": "why"})
        wire, _ = await life.stay("b")
        await wire.subscribe("t")  # when it is acknowledged, all that was before is stored
        life.cut()
    async with disk.broker() as life:
        await life.node.plugins.enable("bans")
        (row,) = life.node.plugins.call("bans", "list", {})  # type: ignore[misc]
        assert (row["kind"], row["who"], row["reason"]) == ("client_id", "a", "why")


async def test_many_bans_take_one_walk_over_the_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    walks, clients = list[str](), Context.clients

    def noted(self: Any, after: str = "", *more: Any) -> Any:
        if not after:
            walks.append(after)
        return clients(self, after, *more)

    many = [{"kind": "username", "who": f"user {number}"} for number in range(300)]
    async with room() as here:
        here.broker.hooks.add("client.connected", lambda client: setattr(client, "username", client.client_id))
        ann, bob = await here.client("ann"), await here.client("bob")
        monkeypatch.setattr(Context, "clients", noted)
        await here.admin.plugins.enable("bans", settings_model("bans").model_validate({"bans": many}))
        await wait_all_tasks_blocked()
        assert len(walks) == 1
        call(here, "add", kind="username", who="ann")
        call(here, "add", kind="username", who="bob")
        for client in (ann, bob):
            await client.expect_disconnect(0x98)
        await wait_all_tasks_blocked()
        assert len(walks) <= 3
