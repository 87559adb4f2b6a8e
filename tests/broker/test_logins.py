"""How what a client proves adds up: the tables of docs/security.md, with every authenticator that there is."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import permutations, product
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.broker.net.tls_pair import client_context, mutual, write_files
from tests.conformance import raw
from tests.hooks.scram_client import ScramClient
from tests.plugins.shipped.server import Reply, Request, as_json, serving
from tests.plugins.shipped.tokens import SECRET, signed
from tests.wire import Wire
from trunkline import testing
from trunkline.config.security_settings import PASSWORDS, SCRAM
from trunkline.hooks import ALLOW, Hooks
from trunkline.hooks.passwords import set_password
from trunkline.hooks.scram import set_scram
from trunkline.plugins.finding import settings_model, shipped

REFUSED, NOBODY = 0x86, 0x87
OTHERS, OURS = "0" * 64, SECRET


@cache
def users() -> str:
    return set_password("", "ann", "secret")


@cache
def client_ids() -> str:
    return set_password("", "device1", "its own")


# A client id that has a password demands it

Login = Callable[[testing.Broker, str, str | None], Awaitable[int]]


@dataclass(frozen=True)
class Way:
    """To be let in, whatever the client id: a broker, and how a client logs in there with a password beside it."""

    login: Login
    settings: dict[str, Any] = field(default_factory=dict)
    listener: dict[str, Any] = field(default_factory=dict)
    #: As a listener's `authenticators` have it.
    name: str | None = None


async def open_wire(b: testing.Broker) -> Wire:
    return await Wire.open(b.host, b.port)


async def answer(wire: Wire, **connect: Any) -> int:
    async with wire:
        await wire.send(raw.connect(**connect))
        return (await wire.expect_type(raw.CONNACK)).reason


async def by_name(b: testing.Broker, client_id: str, password: str | None) -> int:
    return await answer(await open_wire(b), client_id=client_id, username="somebody", password=password)


async def by_token(b: testing.Broker, client_id: str, password: str | None) -> int:
    return await answer(await open_wire(b), client_id=client_id, username=signed({}), password=password)


async def by_users_password(b: testing.Broker, client_id: str, password: str | None) -> int:
    given = password if client_id == "device1" else "secret"
    return await answer(await open_wire(b), client_id=client_id, username="ann", password=given)


async def by_enhanced_token(b: testing.Broker, client_id: str, password: str | None) -> int:
    method = raw.authentication_method("JWT") + raw.authentication_data(signed({}).encode())
    return await answer(await open_wire(b), client_id=client_id, password=password, properties=method)


async def by_scram(b: testing.Broker, client_id: str, password: str | None) -> int:
    client = ScramClient("sam", "hidden")
    method = raw.authentication_method("SCRAM-SHA-256")
    async with await open_wire(b) as wire:
        first = method + raw.authentication_data(client.first())
        await wire.send(raw.connect(client_id, password=password, properties=first))
        packet = await wire.receive()
        if packet.type == raw.AUTH:
            challenge = packet.get(0x16)
            assert isinstance(challenge, bytes)
            await wire.send(raw.auth(0x18, method + raw.authentication_data(client.final(challenge))))
            packet = await wire.receive()
        assert packet.type == raw.CONNACK
        return packet.reason


async def by_certificate(b: testing.Broker, client_id: str, password: str | None) -> int:
    stream = trio.SSLStream(
        await trio.open_tcp_stream(b.host, b.port), client_context(certificate=True), server_hostname="localhost"
    )
    return await answer(Wire(stream), client_id=client_id, password=password)


@contextmanager
def ways(folder: Path) -> Iterator[dict[str, Way]]:
    (folder / "users").write_text(users())
    (folder / "scram").write_text(set_scram("", "sam", "hidden"))
    tls = mutual(write_files(folder), username_from="cn").model_dump(mode="json", exclude_defaults=True)
    jwt = {"jwt": {"secret": OURS, "required_claims": [], "token_in": "username"}}
    with serving(as_json({"result": "allow"})) as server:
        service = {"http-auth": {"authenticate": {"url": server.url()}}}
        yield {
            "passwords": Way(by_users_password, {"auth": {"password_file": str(folder / "users")}}, name=PASSWORDS),
            "scram": Way(by_scram, {"auth": {"scram_file": str(folder / "scram")}}, name=SCRAM),
            "jwt": Way(by_token, {"plugins": jwt}, name="jwt"),
            "jwt as a method": Way(by_enhanced_token, {"plugins": jwt}, name="jwt"),
            "http-auth": Way(by_name, {"plugins": service}, name="http-auth"),
            "certificate": Way(by_certificate, listener={"url": "tls://127.0.0.1:0", "tls": tls}),
            "hook": Way(by_name, {"hooks": allowing()}),
            "nothing": Way(by_name, listener={"allow_anonymous": True}),
        }


def allowing() -> Hooks:
    hooks = Hooks()
    hooks.add("client.authenticate", lambda client, password: ALLOW, priority=100_000)
    return hooks


WAYS = ["passwords", "scram", "jwt", "jwt as a method", "http-auth", "certificate", "hook", "nothing"]
#: Those that no list of authenticators has; an empty one has nothing.
UNNAMED = ["certificate", "hook"]


@pytest.mark.parametrize(
    ("how", "named"), [*product(WAYS, [False]), *product([how for how in WAYS if how not in UNNAMED], [True])]
)
async def test_a_client_id_with_a_password_demands_it_however_else_a_client_is_let_in(
    how: str, named: bool, tmp_path: Path
) -> None:
    (tmp_path / "ids").write_text(client_ids())
    with ways(tmp_path) as known:
        assert list(known) == WAYS
        way = known[how]
        settings: dict[str, Any] = {
            **way.settings,
            "auth": {**way.settings.get("auth", {}), "client_id_file": str(tmp_path / "ids")},
        }
        listener: dict[str, Any] = {"url": "tcp://127.0.0.1:0", **way.listener}
        if named:
            listener["authenticators"] = [] if way.name is None else [way.name]
        async with testing.broker(listeners=[listener], **settings) as b:
            asked = [await way.login(b, "device1", password) for password in (None, "wrong", "its own")]
            # the password file asks for its user's password as well, which is another one here
            assert asked == [REFUSED, REFUSED, REFUSED if how == "passwords" else 0]
            assert await way.login(b, "device2", "wrong" if how != "nothing" else None) == 0


def test_every_authenticator_is_tried(tmp_path: Path) -> None:
    plugins = {name for name in shipped() if any("authenticate" in point for point in settings_model(name).guards)}
    with ways(tmp_path) as known:
        named = {way.name for way in known.values() if way.name is not None}
    assert named == {PASSWORDS, SCRAM} | plugins - {"bans"}  # which can only deny


async def test_a_client_id_is_proved_once_for_a_connection(tmp_path: Path) -> None:
    """Who authenticates again, as SCRAM can, has no password to send."""
    (tmp_path / "ids").write_text(client_ids())
    (tmp_path / "scram").write_text(set_scram("", "sam", "hidden"))
    auth = {"client_id_file": str(tmp_path / "ids"), "scram_file": str(tmp_path / "scram")}
    method = raw.authentication_method("SCRAM-SHA-256")
    async with testing.broker(auth=auth) as b, await open_wire(b) as wire:

        async def prove(first: Callable[[bytes], bytes]) -> raw.Received:
            client = ScramClient("sam", "hidden")
            await wire.send(first(method + raw.authentication_data(client.first())))
            challenge = (await wire.expect_type(raw.AUTH)).get(0x16)
            assert isinstance(challenge, bytes)
            await wire.send(raw.auth(0x18, method + raw.authentication_data(client.final(challenge))))
            return await wire.receive()

        assert (await prove(lambda data: raw.connect("device1", password="its own", properties=data))).reason == 0
        again = await prove(lambda data: raw.auth(0x19, data))
        assert (again.type, again.reason) == (raw.AUTH, 0)


# Otherwise one yes is enough, and the first answer decides

YES, NO, PASS = "yes", "no", "pass"
#: What each says to these credentials: a user name and a password.
CREDENTIALS: dict[tuple[str, str], dict[str, str]] = {
    ("ann", "secret"): {PASSWORDS: YES, "jwt": PASS},
    ("ann", "wrong"): {PASSWORDS: NO, "jwt": PASS},
    ("ann", signed({}, OURS)): {PASSWORDS: NO, "jwt": YES},
    ("ann", signed({}, OTHERS)): {PASSWORDS: NO, "jwt": NO},
}
SERVICE = {YES: "allow", NO: "deny", PASS: "ignore"}


async def test_of_several_authenticators_the_first_that_does_not_pass_decides(tmp_path: Path) -> None:
    (tmp_path / "users").write_text(users())
    said = ""

    def reply(request: Request) -> Reply:
        return as_json({"result": said})

    lists = [list(names) for count in (1, 2, 3) for names in permutations((PASSWORDS, "jwt", "http-auth"), count)]
    listeners = [{"url": "tcp://127.0.0.1:0", "name": str(n), "authenticators": each} for n, each in enumerate(lists)]
    with serving(reply) as server:
        plugins: dict[str, Any] = {
            "jwt": {"secret": OURS, "required_claims": []},
            "http-auth": {"authenticate": {"url": server.url()}},
        }
        async with testing.broker(
            listeners=[*listeners, {"url": "tcp://127.0.0.1:0", "name": "all"}],
            auth={"password_file": str(tmp_path / "users")},
            plugins=plugins,
            passwords={"max_failures": 0},
        ) as b:
            for (who, answers), by_service in product(CREDENTIALS.items(), SERVICE):
                said = SERVICE[by_service]
                says = {**answers, "http-auth": by_service}
                # all are asked in the order of their priority, and the files come last
                for names, listening in zip([*lists, ["jwt", "http-auth", PASSWORDS]], b.node.listeners, strict=True):
                    first = next((says[name] for name in names if says[name] != PASS), PASS)
                    wire = await Wire.open(*listening.address)
                    code = await answer(wire, client_id="c", username=who[0], password=who[1])
                    assert code == {YES: 0, NO: REFUSED, PASS: NOBODY}[first], (names, says)
