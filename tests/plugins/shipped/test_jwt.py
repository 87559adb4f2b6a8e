"""Clients that log in with tokens: real tokens, real keys, and everything that somebody may try instead."""

import base64
import hashlib
import hmac
import json
import logging
from pathlib import Path
from typing import Any

import jwt
import paho.mqtt.client as paho
import pytest
import trio
from trio.testing import MockClock

from tests.broker.room import Room, room
from tests.conformance import raw
from tests.plugins.shipped.server import Reply, serving
from tests.plugins.shipped.tokens import KINDS, SECRET, jwk, jwks, pem, private_key, signed
from trunkline.config.reader import from_mapping
from trunkline.hooks.client import ClientInfo
from trunkline.plugins.finding import settings_model

REFUSED, FORBIDDEN, DOWN = 0x86, 0x87, 0x88


def plugin(**settings: Any) -> dict[str, Any]:
    if not settings.keys() & {"public_key_file", "jwks_file", "jwks_url"}:
        settings.setdefault("secret", SECRET)
    return {"jwt": {"required_claims": [], **settings}}


async def connect(
    here: Room, token: str | bytes | None, client_id: str = "c", username: str | None = "u"
) -> int | None:
    wire = here.wire()
    await wire.send(raw.connect(client_id, username=username, password=token))
    return (await wire.expect_type(raw.CONNACK)).reason


def watch(here: Room) -> list[ClientInfo]:
    clients = list[ClientInfo]()
    here.broker.hooks.add("client.connected", clients.append)
    return clients


def figure(here: Room, name: str) -> int:
    return dict(here.admin.plugins.figures())[f"plugins.jwt.{name}"]


# Signatures


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
async def test_a_secret(algorithm: str) -> None:
    async with room(plugins=plugin()) as here:
        assert await connect(here, signed({}, SECRET, algorithm)) == 0
        assert await connect(here, signed({}, SECRET[::-1], algorithm)) == REFUSED
        assert (figure(here, "accepted"), figure(here, "refused")) == (1, 1)


@pytest.mark.parametrize(("kind", "algorithm"), [(kind, name) for kind, names in KINDS.items() for name in names])
async def test_a_public_key(tmp_path: Path, kind: str, algorithm: str) -> None:
    file = tmp_path / "key.pem"
    file.write_bytes(pem(private_key(kind)))
    async with room(plugins=plugin(public_key_file=str(file))) as here:
        assert await connect(here, signed({}, private_key(kind), algorithm)) == 0
        assert await connect(here, signed({}, private_key(kind, 1), algorithm)) == REFUSED


async def test_a_set_of_keys(tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    file.write_bytes(jwks(jwk("RSA", kid="r"), jwk("P-256", kid="e"), jwk("P-256", 1)))
    async with room(plugins=plugin(jwks_file=str(file))) as here:
        assert await connect(here, signed({}, private_key("RSA"), "RS256", kid="r")) == 0
        assert await connect(here, signed({}, private_key("RSA"), "PS512")) == 0
        assert await connect(here, signed({}, private_key("P-256"), "ES256", kid="e")) == 0
        assert await connect(here, signed({}, private_key("P-256", 1), "ES256", kid="who")) == 0
        assert await connect(here, signed({}, private_key("P-256"), "ES256", kid="r")) == REFUSED


def unsigned(header: dict[str, Any], claims: dict[str, Any], key: bytes | None = None) -> str:
    """What no library makes."""
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, claims)]
    text = b".".join(parts)
    signature = b"" if key is None else hmac.digest(key, text, hashlib.sha256)
    return (text + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


async def test_a_token_cannot_choose_how_it_is_verified(tmp_path: Path) -> None:
    public = pem(private_key("RSA"))
    file = tmp_path / "key.pem"
    file.write_bytes(public)
    modulus = jwk("RSA")["n"].encode()
    attacks = [
        unsigned({"alg": "none"}, {}),
        unsigned({"alg": "None", "typ": "JWT"}, {}),
        unsigned({"alg": ""}, {}),
        *(unsigned({"alg": "HS256"}, {}, key) for key in (public, public.strip(), modulus, b"", SECRET.encode())),
        unsigned({"alg": "RS256", "jwk": jwk("RSA", 1)}, {}, public),
        jwt.encode({}, private_key("RSA", 1), "RS256", headers={"jwk": jwk("RSA", 1)}),
        jwt.encode(
            {}, private_key("RSA", 1), "RS256", headers={"jku": "http://127.0.0.1:1/", "x5u": "http://127.0.0.1:1/"}
        ),
        jwt.encode({}, private_key("P-256"), "ES256"),
        jwt.encode({}, private_key("RSA"), "RS256", headers={"crit": ["x"], "x": 1}),
        unsigned({"alg": "RS256", "b64": False, "crit": ["b64"]}, {}),
    ]
    async with room(plugins=plugin(public_key_file=str(file))) as here:
        for token in attacks:
            assert await connect(here, token) == REFUSED, token
        assert await connect(here, signed({}, private_key("RSA"), "RS256")) == 0


async def test_algorithms_can_be_limited() -> None:
    async with room(plugins=plugin(algorithms=["HS512"])) as here:
        assert await connect(here, signed({}, SECRET, "HS512")) == 0
        assert await connect(here, signed({}, SECRET, "HS256")) == REFUSED


@pytest.mark.parametrize(
    "token",
    [
        signed({})[:-2] + "AA",
        signed({}) + "x",
        "..".join(signed({}).rsplit(".", 1)),
        unsigned({"alg": "HS256", "kid": 7}, {}, SECRET.encode()),
        unsigned({"alg": ["HS256"]}, {}, SECRET.encode()),
        jwt.PyJWS().encode(b"no json", SECRET, "HS256"),
        jwt.PyJWS().encode(b"[]", SECRET, "HS256"),
        jwt.PyJWS().encode(b"[" * 5000, SECRET, "HS256"),
        jwt.PyJWS().encode(b'{"exp": NaN}', SECRET, "HS256"),
        signed({"x": "y" * 20_000}),
    ],
    ids=range(10),
)
async def test_what_is_hardly_a_token(token: str) -> None:
    async with room(plugins=plugin(), auth={"allow_anonymous": False}) as here:
        assert await connect(here, token) in (REFUSED, FORBIDDEN)


@pytest.mark.parametrize("password", ["secret", "a.b.c", "", None, "[" * 5000 + "..", b"\xff.\xfe.\xfd"])
async def test_a_password_is_for_others(password: str | bytes | None) -> None:
    seen: list[object] = []
    async with room(plugins=plugin(), auth={"allow_anonymous": True}) as here:
        here.broker.hooks.add("client.authenticate", lambda client, password: seen.append(password), priority=-1)
        assert await connect(here, password) == 0
        assert len(seen) == 1
        assert await connect(here, signed({}, SECRET[::-1])) == REFUSED
        assert len(seen) == 1


async def test_the_token_in_the_user_name() -> None:
    async with room(plugins=plugin(token_in="username")) as here:
        clients = watch(here)
        assert await connect(here, None, username=signed({"sub": "ann"})) == 0
        assert await connect(here, "x", "d", username=signed({})) == 0
        assert await connect(here, signed({}), "e", username="ann") == FORBIDDEN
        assert await connect(here, None, "e", None) == FORBIDDEN
        assert [client.username for client in clients] == ["ann", None]


@pytest.mark.parametrize("token_in", ["username", "password"])
async def test_no_token_is_logged(token_in: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "trunkline")
    good, wrong = signed({"sub": "ann"}), signed({"sub": "ann"}, SECRET[::-1])
    async with room(plugins=plugin(token_in=token_in)) as here:
        for token, reason in ((good, 0), (wrong, REFUSED)):
            if token_in == "username":
                assert await connect(here, None, username=token) == reason
            else:
                assert await connect(here, token) == reason
    signatures = [token.rpartition(".")[2] for token in (good, wrong)]
    assert "CONNECT" in caplog.text
    for record in caplog.records:
        assert not any(signature in f"{record.getMessage()} {vars(record)}" for signature in signatures)


# Claims


async def test_the_token_says_who_the_client_is() -> None:
    async with room(plugins=plugin()) as here:
        clients = watch(here)
        assert await connect(here, signed({"sub": "ann"}), username="mallory") == 0
        assert await connect(here, signed({}), "d", username="mallory") == 0
        assert await connect(here, signed({"sub": 7}), "e", username="mallory") == 0
        assert [client.username for client in clients] == ["ann", None, None]
    async with room(plugins=plugin(username_claim="name", verify_claims={"who": "%u", "device": "%c"})) as here:
        clients = watch(here)
        assert await connect(here, signed({"who": "u", "device": "c"})) == 0
        assert await connect(here, signed({"who": "u", "device": "c", "name": "ann"})) == 0
        assert await connect(here, signed({"who": "u", "device": "c"}), "d") == REFUSED
        assert await connect(here, signed({"who": "x", "device": "c"})) == REFUSED
        assert [client.username for client in clients] == ["u", "ann"]


async def test_a_refusal_says_why() -> None:
    async with room(plugins=plugin(issuer="me", required_claims=["exp"])) as here:
        wire = here.wire()
        await wire.send(raw.connect("c", password=signed({}), username="u"))
        assert b"the token has no exp" in (await wire.expect_type(raw.CONNACK)).data
        wall = here.admin.wall()
        assert await connect(here, signed({"iss": "me", "exp": wall + 60})) == 0
        assert await connect(here, signed({"iss": "you", "exp": wall + 60})) == REFUSED
        assert await connect(here, signed({"iss": "me", "exp": wall - 1})) == REFUSED
        assert await connect(here, signed({"iss": "me", "exp": wall + 60, "nbf": wall + 30})) == REFUSED


async def test_a_claim_that_comes_twice() -> None:
    """Whoever made the token may have looked at the other one."""
    payload = b'{"sub": "ann", "sub": "root"}'
    async with room(plugins=plugin()) as here:
        token = jwt.api_jws.encode(payload, SECRET, "HS256")
        assert await connect(here, token) == REFUSED
        assert await connect(here, jwt.api_jws.encode(payload.replace(b'"sub": "root"', b'"x": 1'), SECRET)) == 0


async def test_a_name_that_is_no_text() -> None:
    """JSON can hold half a character."""
    async with room(plugins=plugin(username_claim="sub")) as here:
        payload = b'{"sub": "\\ud83d"}'
        assert await connect(here, jwt.api_jws.encode(payload, SECRET, "HS256")) == REFUSED


async def test_a_superuser() -> None:
    async with room(plugins=plugin(), acl={"no_match": "deny"}) as here:
        clients = watch(here)
        for number, value in enumerate((True, "true", 1)):
            assert await connect(here, signed({"is_superuser": value}), f"c{number}") == 0
        assert [client.superuser for client in clients] == [True, False, False]
    async with room(plugins=plugin(superuser_claim="")) as here:
        clients = watch(here)
        assert await connect(here, signed({"is_superuser": True, "": True})) == 0
        assert [client.superuser for client in clients] == [False]


async def test_attributes() -> None:
    async with room(plugins=plugin()) as here:
        clients = watch(here)
        assert await connect(here, signed({"client_attrs": {"role": "admin", "n": 1, "jwt.login": "x"}})) == 0
        assert clients[0].attributes["role"] == "admin"
        assert "n" not in clients[0].attributes
        assert clients[0].attributes["jwt.login"] != "x"


async def test_access_rules_of_a_token() -> None:
    rules = [
        {"permission": "allow", "action": "publish", "topic": "t/${clientid}"},
        {"permission": "deny", "action": "all", "topic": "t/#"},
    ]
    async with room(plugins=plugin()) as here:
        wire = await here.client("c", username="u", password=signed({"sub": "ann", "acl": rules}))
        assert await wire.subscribe("t/c", "x/#") == [FORBIDDEN, 2]
        for topic, reason in (("t/c", 0x10), ("t/d", FORBIDDEN), ("y", 0x10)):
            answer = await wire.publish(topic, qos=1)
            assert answer is not None
            assert answer.reason == reason
        old = {"pub": ["p/%u"], "sub": ["s"]}
        wire = await here.client("d", username="u", password=signed({"sub": "ann", "acl": old}))
        assert await wire.subscribe("s", "x/#") == [2, FORBIDDEN]
        answer = await wire.publish("p/ann", qos=1)
        assert answer is not None
        assert answer.reason == 0x10
        assert await connect(here, signed({"acl": [{"permission": "perhaps"}]})) == REFUSED


# The end


async def test_the_end_of_a_token(autojump_clock: MockClock) -> None:
    async with room(plugins=plugin(leeway=5)) as here:
        wire = await here.client("c", username="u", password=signed({"exp": here.admin.wall() + 30}))
        began = trio.current_time()
        await wire.expect_disconnect(FORBIDDEN)
        assert 34.9 < trio.current_time() - began < 36
        assert figure(here, "expired") == 1


async def test_the_end_can_be_let_pass(autojump_clock: MockClock) -> None:
    async with room(plugins=plugin(disconnect_after_expire=False)) as here:
        token = signed({"exp": here.admin.wall() + 30})
        wire = await here.client("c", username="u", password=token)
        await trio.sleep(1000)
        await wire.ping()
        assert await connect(here, token, "d") == REFUSED


def by_method(token: str) -> bytes:
    return raw.authentication_method("JWT") + raw.authentication_data(token.encode())


async def test_a_newer_token_before_the_end(autojump_clock: MockClock) -> None:
    async with room(plugins=plugin()) as here:
        wall = here.admin.wall()
        wire = here.wire()
        await wire.send(raw.connect("c", properties=by_method(signed({"sub": "ann", "exp": wall + 40}))))
        assert (await wire.expect_type(raw.CONNACK)).reason == 0
        await wire.publish("t", qos=1)
        await trio.sleep(30)
        newer = {"sub": "ann", "exp": wall + 80, "acl": {"pub": ["u"]}}
        await wire.send(raw.auth(0x19, by_method(signed(newer))))
        assert (await wire.expect_type(raw.AUTH)).reason == 0
        await trio.sleep(30)
        for topic, reason in (("t", FORBIDDEN), ("u", 0x10)):
            answer = await wire.publish(topic, qos=1)
            assert answer is not None
            assert answer.reason == reason
        began = trio.current_time()
        await wire.expect_disconnect(FORBIDDEN)
        assert 19 < trio.current_time() - began < 21


@pytest.mark.parametrize("claims", [{"sub": "bob"}, {"sub": "ann", "exp": 1}, {}, None])
async def test_a_newer_token_that_is_none(claims: dict[str, Any] | None) -> None:
    async with room(plugins=plugin()) as here:
        wire = here.wire()
        await wire.send(raw.connect("c", properties=by_method(signed({"sub": "ann"}))))
        assert (await wire.expect_type(raw.CONNACK)).reason == 0
        await wire.send(raw.auth(0x19, by_method("nonsense" if claims is None else signed(claims))))
        await wire.expect_disconnect(REFUSED, FORBIDDEN)


async def test_other_methods_are_for_others() -> None:
    async with room(plugins=plugin()) as here:
        wire = here.wire()
        await wire.send(raw.connect("c", properties=raw.authentication_method("OTHER")))
        assert (await wire.expect_type(raw.CONNACK)).reason == 0x8C
        wire = here.wire()
        await wire.send(raw.connect("c", properties=by_method(signed({}, SECRET[::-1]))))
        assert (await wire.expect_type(raw.CONNACK)).reason == REFUSED


# Published keys


async def test_keys_from_a_url_are_fetched_when_one_is_not_known(mock_clock: MockClock) -> None:
    with serving(Reply(200, jwks(jwk("P-256", kid="a")))) as server:
        async with room(plugins=plugin(jwks_url=server.url("/keys"))) as here:
            assert await connect(here, signed({}, private_key("P-256"), "ES256", kid="a")) == 0
            new = signed({}, private_key("P-256", 1), "ES256", kid="b")
            assert await connect(here, new) == REFUSED
            server.answer = lambda request: Reply(200, jwks(jwk("P-256", 1, kid="b")))
            mock_clock.jump(10)
            assert await connect(here, signed({}, private_key("P-256", 1), "ES256", kid="a")) == REFUSED
            assert len(server.requests) == 1
            assert await connect(here, new) == 0
            assert len(server.requests) == 2
            for number in range(20):
                assert await connect(here, signed({}, private_key("P-256", 1), "ES256", kid=f"x{number}")) == REFUSED
            assert len(server.requests) == 2


async def test_a_slow_fetch_holds_up_the_client_that_needs_it_alone(mock_clock: MockClock) -> None:
    with serving(Reply(200, jwks(jwk("P-256", kid="a")))) as server:
        async with room(plugins=plugin(jwks_url=server.url())) as here:
            good = signed({}, private_key("P-256"), "ES256", kid="a")
            assert await connect(here, good) == 0
            mock_clock.jump(10)
            server.answer = lambda request: Reply(silent=True)
            slow = here.wire()
            await slow.send(
                raw.connect("slow", username="u", password=signed({}, private_key("P-256"), "ES256", kid="b"))
            )
            await server.wait(2)
            assert await connect(here, good) == 0
            mock_clock.jump(5)
            assert (await slow.expect_type(raw.CONNACK)).reason == REFUSED
            assert await connect(here, good) == 0


async def test_without_keys_nobody_comes_in() -> None:
    with serving(Reply(503)) as server:
        async with room(plugins=plugin(jwks_url=server.url()), auth={"allow_anonymous": True}) as here:
            assert await connect(here, signed({}, private_key("P-256"), "ES256")) == DOWN
            assert [alarm.name for alarm in here.admin.alarms.active] == ["jwt.jwks"]
            await here.admin.plugins.disable("jwt")
            assert here.admin.alarms.active == []


async def test_a_real_client() -> None:
    async with room(plugins=plugin()) as here:

        def session(token: str) -> int:
            client = paho.Client(paho.CallbackAPIVersion.VERSION2, "paho", protocol=paho.MQTTv5)
            client.username_pw_set("ann", token)
            codes = list[int]()
            client.on_connect = lambda client, data, flags, code, properties: codes.append(code.value)
            client.connect(here.broker.host, here.broker.port)
            while not codes:
                client.loop()
            client.disconnect()
            return codes[0]

        assert await trio.to_thread.run_sync(session, signed({"sub": "ann"})) == 0
        assert await trio.to_thread.run_sync(session, signed({}, SECRET[::-1])) == REFUSED


# Settings


async def test_nothing_secret_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token = signed({"sub": "ann"})
    async with room(plugins=plugin()) as here:
        assert await connect(here, token) == 0
        assert await connect(here, token[:-4] + "AAAA") == REFUSED
        shown = repr(here.admin.config) + here.admin.config.model_dump_json() + caplog.text
    assert SECRET not in shown
    assert token[:-4] not in shown


async def test_a_file_that_has_changed_since_the_configuration_was_read(tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    file.write_bytes(pem(private_key("P-256")))
    config = from_mapping({"plugins": plugin(public_key_file=str(file))}, settings_model)
    file.write_text("nothing")
    async with room() as here:
        with pytest.raises(Exception, match=r"key.pem is not a public key"):
            await here.admin.plugins.enable("jwt", config.plugins["jwt"])
