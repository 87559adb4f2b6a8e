"""Who may connect and publish, as the client sees it: passwords, SCRAM by AUTH packets (4.12), access rules."""

import hashlib
import hmac
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import pytest
from argon2 import PasswordHasher

from tests.conformance import raw
from tests.conformance.lab import Client, Lab, laboratory, refused
from tests.conformance.statements import shows

METHOD = "SCRAM-SHA-256"
SALT = b"sixteen salty by"
ITERATIONS = 4096
PASSWORD = "correct horse"


def _hmac(key: bytes, text: str | bytes) -> bytes:
    return hmac.digest(key, text.encode() if isinstance(text, str) else text, "sha256")


def _keys(password: str) -> tuple[bytes, bytes]:
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), SALT, ITERATIONS)
    return _hmac(salted, "Client Key"), _hmac(salted, "Server Key")


@pytest.fixture
def scram_file(tmp_path: Path) -> str:
    client_key, server_key = _keys(PASSWORD)
    parts = (SALT, hashlib.sha256(client_key).digest(), server_key)
    path = tmp_path / "scram"
    path.write_text(f"ada:{ITERATIONS}:" + ":".join(b64encode(part).decode() for part in parts) + "\n")
    return str(path)


class Scram:
    """The client's side of RFC 5802, by hand."""

    def __init__(self, name: str = "ada", password: str = PASSWORD, nonce: str = "clientnonce") -> None:
        self.password = password
        self.bare = f"n={name},r={nonce}"

    @property
    def first(self) -> bytes:
        return b"n,," + self.bare.encode()

    def final(self, challenge: bytes) -> bytes:
        text = challenge.decode()
        fields = dict(part.split("=", 1) for part in text.split(","))
        assert b64decode(fields["s"])
        without_proof = f"c=biws,r={fields['r']}"
        self.signed = f"{self.bare},{text},{without_proof}"
        client_key, self.server_key = _keys(self.password)
        signature = _hmac(hashlib.sha256(client_key).digest(), self.signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    @property
    def signature(self) -> bytes:
        return b"v=" + b64encode(_hmac(self.server_key, self.signed))


def _properties(data: bytes) -> bytes:
    return raw.authentication_method(METHOD) + raw.authentication_data(data)


async def _begin(lab: Lab, scram: Scram, *, properties: bytes = b"") -> tuple[Client, bytes]:
    """CONNECT, and the challenge that answers it."""
    client = await lab.wire()
    await client.send(raw.connect(lab.id("a"), properties=_properties(scram.first) + properties))
    challenge = await client.expect_type(raw.AUTH)
    assert challenge.reason == 0x18
    assert challenge.get(raw.AUTHENTICATION_METHOD) == METHOD
    data = challenge.get(raw.AUTHENTICATION_DATA)
    assert isinstance(data, bytes)
    return client, data


async def _logged_in(lab: Lab, *, properties: bytes = b"") -> Client:
    scram = Scram()
    client, challenge = await _begin(lab, scram, properties=properties)
    await client.send(raw.auth(0x18, _properties(scram.final(challenge))))
    client.connack = await client.expect_type(raw.CONNACK)
    assert client.connack.reason == 0
    assert client.connack.get(raw.AUTHENTICATION_DATA) == scram.signature
    return client


@shows("MQTT-4.12.0-2", "MQTT-4.12.0-5", "MQTT-3.15.2-1", "MQTT-3.2.0-1", "MQTT-3.15.1-1")
async def test_an_exchange_of_auth_packets(scram_file: str) -> None:
    async with laboratory(auth={"scram_file": scram_file}) as lab:
        client = await _logged_in(lab)
        assert client.connack.get(raw.AUTHENTICATION_METHOD) == METHOD
        await client.ping()


@shows("MQTT-3.15.2-2", "MQTT-3.15.2-3", "MQTT-3.1.2-24")
async def test_auth_brings_nothing_but_its_method_and_data(scram_file: str) -> None:
    async with laboratory(auth={"scram_file": scram_file}) as lab:
        client = await _logged_in(lab, properties=raw.maximum_packet_size(200))
        again = Scram(nonce="other")
        await client.send(raw.auth(0x19, _properties(again.first)))
        challenge = await client.expect_type(raw.AUTH)
        assert sorted(number for number, _ in challenge.properties) == [0x15, 0x16]


@shows("MQTT-4.12.0-4", "MQTT-4.13.2-1", "MQTT-3.1.4-2")
@pytest.mark.parametrize("scram", [Scram(password="wrong"), Scram("nobody")], ids=["wrong-password", "unknown-name"])
async def test_an_exchange_that_fails(scram_file: str, scram: Scram) -> None:
    async with laboratory(auth={"scram_file": scram_file}) as lab:
        client, challenge = await _begin(lab, scram)
        await client.send(raw.auth(0x18, _properties(scram.final(challenge))))
        await refused(client, 0x86, 0x87)


@shows("MQTT-4.12.0-4", "MQTT-3.1.4-6", "MQTT-3.14.0-1")
@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(raw.auth(0x18, raw.authentication_method("OTHER") + raw.authentication_data(b"x")), id="method"),
        pytest.param(raw.auth(0x19, _properties(b"x")), id="reauthenticate"),
        pytest.param(raw.publish("t", b"x"), id="publish"),
        pytest.param(raw.PINGREQ, id="pingreq"),
        pytest.param(raw.connect("x"), id="connect"),
    ],
)
async def test_something_else_in_the_middle_of_the_exchange(scram_file: str, packet: bytes) -> None:
    async with laboratory(auth={"scram_file": scram_file}) as lab:
        client, _ = await _begin(lab, Scram())
        await client.send(packet)
        await refused(client, 0x82, 0x87, 0x8C)


@shows("MQTT-4.12.0-4", "MQTT-3.14.4-2")
async def test_disconnect_in_the_middle_of_the_exchange(scram_file: str) -> None:
    async with laboratory(auth={"scram_file": scram_file}) as lab:
        client, _ = await _begin(lab, Scram())
        await client.send(raw.disconnect())
        await client.expect_close()


@shows("MQTT-4.12.1-1", "MQTT-4.12.0-5", "MQTT-3.15.2-1")
async def test_authenticating_again(scram_file: str) -> None:
    async with laboratory(auth={"scram_file": scram_file}) as lab:
        client = await _logged_in(lab)
        topic = lab.topic("t")
        await client.subscribe((topic, 0))
        for nonce in ("second", "third"):
            scram = Scram(nonce=nonce)
            await client.send(raw.auth(0x19, _properties(scram.first)))
            challenge = await client.expect_type(raw.AUTH)
            assert challenge.reason == 0x18
            # The connection goes on meanwhile.
            await client.publish(topic, b"x")
            await client.expect_publish(topic, b"x")
            data = challenge.get(raw.AUTHENTICATION_DATA)
            assert isinstance(data, bytes)
            await client.send(raw.auth(0x18, _properties(scram.final(data))))
            done = await client.expect_type(raw.AUTH)
            assert done.reason == 0
            assert done.get(raw.AUTHENTICATION_METHOD) == METHOD
            assert done.get(raw.AUTHENTICATION_DATA) == scram.signature
        await client.ping()


@shows("MQTT-4.12.1-2", "MQTT-4.13.2-1")
async def test_authenticating_again_and_failing(scram_file: str) -> None:
    async with laboratory(auth={"scram_file": scram_file}) as lab:
        client = await _logged_in(lab)
        scram = Scram(password="wrong", nonce="second")
        await client.send(raw.auth(0x19, _properties(scram.first)))
        data = (await client.expect_type(raw.AUTH)).get(raw.AUTHENTICATION_DATA)
        assert isinstance(data, bytes)
        await client.send(raw.auth(0x18, _properties(scram.final(data))))
        await client.expect_disconnect(0x87, 0x86)


@shows("MQTT-4.12.1-1", "MQTT-4.12.1-2")
async def test_authenticating_again_by_another_method(scram_file: str) -> None:
    async with laboratory(auth={"scram_file": scram_file}) as lab:
        client = await _logged_in(lab)
        await client.send(raw.auth(0x19, raw.authentication_method("OTHER") + raw.authentication_data(b"x")))
        await client.expect_disconnect(0x82, 0x8C)


@shows("MQTT-4.12.1-1", "MQTT-3.15.2-1")
@pytest.mark.parametrize("reason", [0x18, 0x00])
async def test_auth_that_continues_nothing(scram_file: str, reason: int) -> None:
    async with laboratory(auth={"scram_file": scram_file}) as lab:
        client = await _logged_in(lab)
        await client.send(raw.auth(reason, _properties(b"x")))
        await client.expect_disconnect(0x82)


# Passwords


@pytest.fixture
def password_file(tmp_path: Path) -> str:
    path = tmp_path / "passwords"
    path.write_text(f"ada:{PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD)}\n")
    return str(path)


@shows("MQTT-3.1.4-2", "MQTT-3.2.2-6", "MQTT-3.2.2-7", "MQTT-4.13.2-1", "MQTT3-3.2.2-4", "MQTT3-3.2.2-5")
@pytest.mark.parametrize(
    ("credentials", "v3", "v5"),
    [
        pytest.param({}, {4, 5}, {0x86, 0x87}, id="none"),
        pytest.param({"username": "ada"}, {4, 5}, {0x86, 0x87}, id="no-password"),
        pytest.param({"username": "ada", "password": "wrong"}, {4, 5}, {0x86, 0x87}, id="wrong-password"),
        pytest.param({"username": "bob", "password": PASSWORD}, {4, 5}, {0x86, 0x87}, id="unknown-name"),
    ],
)
async def test_credentials_that_are_wrong(
    password_file: str, credentials: dict[str, Any], v3: set[int], v5: set[int]
) -> None:
    async with laboratory(auth={"password_file": password_file}) as lab:
        for version, codes in ((3, v3), (4, v3), (5, v5)):
            client = await lab.wire(version=version)
            await client.send(raw.connect(lab.id("a"), version=version, **credentials))
            # Here the broker must say why: clients ask their user.
            connack = await client.expect_type(raw.CONNACK)
            assert connack.reason in codes
            assert not connack.session_present
            await client.expect_close()


@shows("MQTT-3.1.2-17", "MQTT-3.1.2-19", "MQTT3-3.1.2-19", "MQTT3-3.1.2-21")
@pytest.mark.parametrize("version", [3, 4, 5])
async def test_credentials_that_are_right(password_file: str, version: int) -> None:
    async with laboratory(auth={"password_file": password_file}) as lab:
        client = await lab.client("a", version=version, username="ada", password=PASSWORD)
        await client.ping()


@shows("MQTT-3.1.4-2", "MQTT-3.1.4-6", "MQTT-3.1.4-3", "MQTT3-3.1.4-5")
@pytest.mark.parametrize("version", [4, 5])
async def test_a_wrong_password_leaves_the_session_with_its_client_id_alone(password_file: str, version: int) -> None:
    async with laboratory(auth={"password_file": password_file}) as lab:
        right: dict[str, Any] = {"username": "ada", "password": PASSWORD}
        watcher = await lab.client("w", **right)
        await watcher.subscribe(lab.topic("#"))
        live = await lab.client("a", version=version, will=raw.Will(lab.topic("will")), **right)
        await live.subscribe((lab.topic("t"), 0))
        other = await lab.wire(version=version)
        other_connect = raw.connect(lab.id("a"), version=version, username="ada", password="wrong")
        await other.send(other_connect, raw.publish(lab.topic("t"), b"forged", version=version))
        await other.expect_type(raw.CONNACK)
        await other.expect_close()
        await live.publish(lab.topic("t"), b"x")
        await live.expect_publish(lab.topic("t"), b"x")
        await watcher.expect_publish(lab.topic("t"), b"x", qos=0)
        await watcher.expect_nothing()


# Access rules


@pytest.fixture
def rules(tmp_path: Path) -> str:
    path = tmp_path / "rules.toml"
    path.write_text('[[rule]]\npermit = "deny"\ntopics = ["secret/#"]\n\n[[rule]]\npermit = "allow"\n')
    return str(path)


@shows("MQTT-4.3.3-9", "MQTT-3.4.2-1", "MQTT-3.5.2-1")
async def test_a_publish_that_is_not_allowed(rules: str) -> None:
    async with laboratory(acl={"file": rules}) as lab:
        client = await lab.client("a")
        await client.send(raw.publish("secret/t", b"x", qos=1, packet_id=5))
        assert (await client.expect_type(raw.PUBACK)).reason == 0x87
        await client.send(raw.publish("secret/t", b"x", qos=2, packet_id=5))
        assert (await client.expect_type(raw.PUBREC)).reason == 0x87
        # The identifier is free at once: what comes with it now is a new message.
        topic = lab.topic("t")
        await client.subscribe((topic, 0))
        await client.send(raw.publish(topic, b"y", qos=2, packet_id=5))
        await client.expect("50 02 00 05")
        await client.send(raw.ack(raw.PUBREL, 5))
        await client.expect_publish(topic, b"y")
        await client.expect("70 02 00 05")


@shows("MQTT3-3.3.5-2", "MQTT3-3.3.4-1")
async def test_a_3_1_1_publish_that_is_not_allowed_is_acknowledged(rules: str) -> None:
    async with laboratory(acl={"file": rules}) as lab:
        client = await lab.client("a", version=4)
        await client.send(raw.publish("secret/t", b"x", qos=1, packet_id=5, version=4))
        await client.expect("40 02 00 05")
        await client.send(raw.publish("secret/t", b"x", qos=2, packet_id=6, version=4))
        await client.expect("50 02 00 06")
        await client.send(raw.ack(raw.PUBREL, 6))
        await client.expect("70 02 00 06")


@shows("MQTT3-3.3.5-2")
@pytest.mark.parametrize("version", [4, 5])
async def test_a_publish_that_is_not_allowed_can_end_the_connection(rules: str, version: int) -> None:
    async with laboratory(acl={"file": rules, "deny_action": "disconnect"}) as lab:
        client = await lab.client("a", version=version)
        await client.send(raw.publish("secret/t", b"x", version=version))
        await client.expect_disconnect(0x87)


@shows("MQTT-3.8.4-7", "MQTT-3.9.3-1", "MQTT3-3.8.4-5", "MQTT3-3.9.3-1", "MQTT3-3.9.3-2")
@pytest.mark.parametrize(("version", "reason"), [(4, 0x80), (5, 0x87)])
async def test_a_subscription_that_is_not_allowed(rules: str, version: int, reason: int) -> None:
    async with laboratory(acl={"file": rules}) as lab:
        client = await lab.client("a", version=version)
        assert await client.subscribe((lab.topic("1"), 1), ("secret/t", 1), (lab.topic("2"), 0)) == [1, reason, 0]


@pytest.mark.parametrize("version", [4, 5])
async def test_a_subscription_that_is_not_allowed_can_be_granted_and_read_nothing(rules: str, version: int) -> None:
    async with laboratory(acl={"file": rules}, mqtt={"subscribe_denied": "grant"}) as lab:
        client = await lab.client("a", version=version)
        assert await client.subscribe(("secret/t", 1)) == [1]
        await client.publish("secret/t", b"x")
        await client.expect_nothing()
