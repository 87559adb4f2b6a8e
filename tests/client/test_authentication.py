# ruff: noqa: PT012 - how a block ends is the matter here
"""Enhanced authentication of both clients with the broker's SCRAM users, over real sockets."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from trunkline import testing
from trunkline.client.client import Client
from trunkline.client.errors import (
    AuthenticationFailed,
    ConnectRefused,
    Disconnected,
    DisconnectedByServer,
    ReauthenticationFailed,
)
from trunkline.client.retry import ExponentialBackoff
from trunkline.client.scram import ScramClient
from trunkline.client.session_client import SessionClient
from trunkline.client.settings import ConnectionSettings
from trunkline.hooks import ClientInfo, Exchange
from trunkline.hooks.points import CLIENT_ENHANCED_AUTHENTICATE
from trunkline.hooks.scram import ScramKeys, derive_keys, set_scram
from trunkline.mqtt.versions import Version
from trunkline.testing import Broker

KEYS = derive_keys("secret", salt=b"0123456789abcdef", iterations=4096)


@pytest.fixture
def scram_file(tmp_path: Path) -> Path:
    path = tmp_path / "scram"
    path.write_text(set_scram("", "ada", "secret"))
    return path


class Observer:
    """Sees each exchange of the broker."""

    def __init__(self) -> None:
        self.begun: list[bool] = []

    def __call__(self, client: ClientInfo, exchange: Exchange) -> None:
        if exchange.first:
            self.begun.append(exchange.again)


@asynccontextmanager
async def scram_broker(scram_file: Path) -> AsyncGenerator[tuple[Broker, Observer]]:
    async with testing.broker(listeners=[{"url": "tcp://127.0.0.1:0"}], auth={"scram_file": str(scram_file)}) as broker:
        observer = Observer()
        broker.hooks.add(CLIENT_ENHANCED_AUTHENTICATE, observer, priority=1000)
        yield broker, observer


def settings_of(broker: Broker) -> ConnectionSettings:
    return ConnectionSettings.from_url(broker.url, client_id="c", connect_timeout=5)


def session_of(broker: Broker, authenticator: ScramClient) -> SessionClient:
    retry = ExponentialBackoff(first=0.01, largest=0.01)
    return SessionClient(settings_of(broker), retry=retry, authenticator=authenticator)


async def test_connect_reauth_and_exit_enhanced_auth(scram_file: Path) -> None:
    """Messages flow on while the client authenticates anew."""
    async with (
        scram_broker(scram_file) as (broker, observer),
        session_of(broker, ScramClient("ada", "secret")) as client,
        await client.subscribe("t", qos=1) as messages,
    ):
        assert [each.username for each in broker.clients] == ["ada"]
        sent = [b"%d" % number for number in range(500)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: client.publish_many("t", sent, qos=1))
            for _ in range(3):
                await client.reauthenticate()
            seen = [(await messages.receive()).payload for _ in sent]
        assert seen == sent
        assert observer.begun == [False, True, True, True]
        assert len(broker.connections) == 1


async def test_reauth_on_successive_connections(scram_file: Path) -> None:
    async with (
        scram_broker(scram_file) as (broker, observer),
        session_of(broker, ScramClient("ada", "secret")) as client,
    ):
        for number in range(3):
            await client.reauthenticate()
            assert observer.begun == [False, True] * (number + 1)
            broker.faults.cut(client="c")
            await client.disconnected()
            await client.connected()
            assert await client.publish("t", b"", qos=1) in (0, 0x10)


async def test_without_a_connection_the_next_one_authenticates(scram_file: Path) -> None:
    async with (
        scram_broker(scram_file) as (broker, observer),
        session_of(broker, ScramClient("ada", "secret")) as client,
    ):
        broker.faults.cut(client="c")
        await client.disconnected()
        await client.reauthenticate()
        assert client.is_connected
        assert observer.begun == [False, False]


@pytest.mark.parametrize("session", [False, True])
async def test_force_exit_during_reauth(scram_file: Path, session: bool) -> None:
    """The server does not answer AUTH, and the block is left nevertheless."""
    async with scram_broker(scram_file) as (broker, _):
        authenticator = ScramClient("ada", "secret")
        client: AbstractAsyncContextManager[Client | SessionClient] = (
            session_of(broker, authenticator) if session else Client(settings_of(broker), authenticator=authenticator)
        )
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery, client as opened:
                broker.faults.drop("AUTH")

                async def reauthenticate() -> None:
                    with pytest.raises(Disconnected, match="closed"):
                        await opened.reauthenticate()

                nursery.start_soon(reauthenticate)
                await wait_all_tasks_blocked(0.05)
                await opened.disconnect()


async def test_a_failed_reauth_leads_to_a_new_connection(scram_file: Path) -> None:
    """The password was changed, and the new one is known when the connection is made anew."""
    passwords = iter(["secret", "wrong", "secret"])
    lost: list[Exception] = []
    async with scram_broker(scram_file) as (broker, _):
        client = SessionClient(
            settings_of(broker),
            retry=ExponentialBackoff(first=0.01),
            authenticator=ScramClient("ada", lambda: next(passwords)),
            on_disconnected=lost.append,
        )
        async with client:
            with pytest.raises(ReauthenticationFailed) as failed:
                await client.reauthenticate()
            assert isinstance(failed.value.__cause__, DisconnectedByServer)
            await client.disconnected()
            await client.connected()
            assert await client.publish("t", b"", qos=1) in (0, 0x10)
        assert lost == [failed.value]


async def test_a_failed_reauth_of_a_client_ends_its_block(scram_file: Path) -> None:
    passwords = iter(["secret", "wrong"])
    async with scram_broker(scram_file) as (broker, _):
        with pytest.raises(ReauthenticationFailed):
            async with Client(settings_of(broker), authenticator=ScramClient("ada", lambda: next(passwords))) as client:
                with pytest.raises(ReauthenticationFailed):
                    await client.reauthenticate()
                await trio.sleep_forever()


@pytest.mark.parametrize(("name", "password"), [("ada", "wrong"), ("eve", "secret")])
async def test_who_cannot_prove_it_is_refused(scram_file: Path, name: str, password: str) -> None:
    async with scram_broker(scram_file) as (broker, _):
        with pytest.raises(ConnectRefused) as refused:
            async with session_of(broker, ScramClient(name, password)):
                raise AssertionError("it was let in")
        assert refused.value.reason == 0x87


async def test_a_server_that_does_not_know_the_user_is_left(scram_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts any proof, and cannot sign the exchange."""
    false = ScramKeys(KEYS.salt, KEYS.iterations, KEYS.stored_key, bytes(32))

    def find(authenticator: object, name: str) -> tuple[ScramKeys, bool]:
        return false, True

    monkeypatch.setattr("trunkline.hooks.scram.ScramAuthenticator._find", find)
    async with scram_broker(scram_file) as (broker, _):
        with pytest.raises(AuthenticationFailed, match="prove"):
            async with session_of(broker, ScramClient("ada", "secret")):
                raise AssertionError("it was let in")


async def test_a_server_without_the_method_refuses(tmp_path: Path) -> None:
    async with testing.broker(listeners=[{"url": "tcp://127.0.0.1:0"}]) as broker:
        with pytest.raises(ConnectRefused) as refused:
            async with session_of(broker, ScramClient("ada", "secret")):
                raise AssertionError("it was let in")
        assert refused.value.reason == 0x8C


def test_3_has_no_enhanced_authentication() -> None:
    with pytest.raises(ValueError, match="enhanced"):
        Client(ConnectionSettings(version=Version.V311), authenticator=ScramClient("ada", "secret"))
