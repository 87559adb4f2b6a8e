"""Credentials at real servers with an operator, whose accounts are JWTs."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from tests.nats.client.scripted import Told
from tests.nats.operator_mode import Operator, Signer, user_jwt, write_credentials
from tests.nats.servers import KINDS, NatsServer, running
from trunkline.nats import Client, connect, sync
from trunkline.nats.client.events import Disconnected, Reconnected, ServerSaid
from trunkline.nats.errors import AuthorizationFailed, PermissionDenied

#: Seconds for what should come.
SOON = 60
REFUSED = "Authorization Violation"
#: Seconds for which a JWT is good that is to expire. They have whole ones only.
LIFE = 4


@dataclass
class House:
    """An operator's server, with one account and one of its users."""

    server: NatsServer
    operator: Operator
    account: Signer
    user: Signer
    folder: Path

    @property
    def url(self) -> str:
        return self.server.url

    def credentials(self, name: str = "user.creds", *, expires: int = 0) -> Path:
        """Of the user."""
        jwt = user_jwt(self.account, self.user, expires=expires)
        return write_credentials(self.folder / name, jwt, self.user)

    def restart(self) -> None:
        """With what the operator says now."""
        self.server.kill()
        self.operator.write(self.folder)
        self.server.start()


@pytest.fixture(params=KINDS)
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    operator = Operator()
    account = operator.account()
    with running(request.param, tmp_path, "-c", str(operator.write(tmp_path))) as server:
        yield House(server, operator, account, Signer("user"), tmp_path)


async def refused(url: str, **settings: Path) -> str:
    """What the server says."""
    with pytest.raises(AuthorizationFailed) as caught:
        async with connect(url, **settings):
            pass
    return str(caught.value)


async def hears_itself(client: Client) -> None:
    with trio.fail_after(SOON), client.subscribe("a") as messages:
        await client.publish("a", b"here")
        assert (await messages.receive()).payload == b"here"


async def test_who_is_let_in(house: House) -> None:
    """By its credentials, with or without what else is there; each account hears its own only."""
    file = house.credentials()
    other, stranger = house.operator.account(), Signer("user")
    await trio.to_thread.run_sync(house.restart)
    theirs = write_credentials(house.folder / "theirs.creds", user_jwt(other, stranger), stranger)
    async with connect(house.url, credentials=file) as one, connect(house.url, credentials=str(theirs)) as two:
        with two.subscribe(">") as heard:
            await two.flush()
            await hears_itself(one)
            await two.publish("b", b"mine")
            with trio.fail_after(SOON):
                assert (await heard.receive()).payload == b"mine"


async def test_who_is_not(house: House) -> None:
    """Without credentials, with a seed alone, with a JWT of somebody else, of an account that the operator does not
    know, or that is not an account's at all."""
    assert REFUSED in await refused(house.url)
    (house.folder / "seed").write_text(house.user.seed)
    assert REFUSED in await refused(house.url, nkey_seed=house.folder / "seed")
    mine, other, unknown = house.user, Signer("user"), Signer("account")
    for number, (jwt, user) in enumerate(
        [
            (user_jwt(house.account, mine), other),
            (user_jwt(unknown, mine), mine),
            (user_jwt(mine, mine), mine),
            (user_jwt(house.account, mine)[:-6] + "AAAAAA", mine),
        ]
    ):
        file = write_credentials(house.folder / f"{number}.creds", jwt, user)
        assert REFUSED in await refused(house.url, credentials=file)
    async with connect(house.url, credentials=house.credentials()) as client:
        await hears_itself(client)


async def test_what_a_jwt_allows(house: House) -> None:
    jwt = user_jwt(house.account, house.user, pub={"allow": ["a"]}, sub={"deny": ["secret"]})
    told = Told()
    file = write_credentials(house.folder / "some.creds", jwt, house.user)
    async with connect(house.url, credentials=file, on_event=told) as client:
        await hears_itself(client)
        await client.publish("b")
        with trio.fail_after(SOON):
            (event,) = await told.wait()
            assert isinstance(event, ServerSaid)
            assert isinstance(event.error, PermissionDenied)
            assert (event.error.subject, event.error.is_publishing) == ("b", True)
            with client.subscribe("secret") as secret, pytest.raises(PermissionDenied):
                await secret.receive()


async def test_one_that_has_expired(house: House) -> None:
    assert REFUSED in await refused(house.url, credentials=house.credentials(expires=int(time.time()) - 60))


async def test_one_that_expires_and_is_renewed(house: House) -> None:
    """The server ends the connection, and says why. The file is read once more at each attempt."""
    told = Told()
    file = house.credentials(expires=int(time.time()) + LIFE)
    settings = {"credentials": file, "on_event": told, "reconnect_wait": 0.01, "max_reconnect_wait": 0.01}
    async with connect(house.url, **settings) as client:
        with client.subscribe("a") as messages, trio.fail_after(SOON):
            (lost, *_) = await told.wait()
            assert isinstance(lost, Disconnected)
            assert isinstance(lost.error, AuthorizationFailed)
            assert "User Authentication Expired" in str(lost.error)
            await client.publish("a", b"waits")
            house.credentials()
            assert (await messages.receive()).payload == b"waits"
            assert isinstance(told.events[-1], Reconnected)


async def test_one_that_expires_and_is_not_renewed(house: House) -> None:
    """The client gives up when it may, with what the server says."""
    file = house.credentials(expires=int(time.time()) + LIFE)
    settings = {"credentials": file, "on_event": Told(), "reconnect_wait": 0.01, "max_reconnects": 3}
    with trio.fail_after(SOON), pytest.raises(AuthorizationFailed, match=f"{REFUSED}|Expired"):  # noqa: PT012 - how a block ends is the matter
        async with connect(house.url, **settings) as client:
            with client.subscribe("a") as messages:
                async for _ in messages:
                    pass


async def test_one_that_is_revoked(house: House) -> None:
    """It is let in no more; a new one for the same user is, if it is younger than the revocation."""
    told, file = Told(), house.credentials()
    settings = {"credentials": file, "on_event": told, "reconnect_wait": 0.01, "max_reconnect_wait": 0.01}
    async with connect(house.url, **settings) as client:
        with client.subscribe("a") as messages, trio.fail_after(SOON):
            revoked = int(time.time())
            house.operator.publish(house.account, revocations={house.user.public: revoked})
            await trio.to_thread.run_sync(house.restart)
            assert REFUSED in await refused(house.url, credentials=file)
            house.operator.publish(house.account, revocations={house.user.public: revoked - 3600})
            await trio.to_thread.run_sync(house.restart)
            await client.publish("a", b"again")
            assert (await messages.receive()).payload == b"again"
    assert sum(isinstance(event, Reconnected) for event in told.events) >= 1


async def test_a_server_that_is_started_again(house: House) -> None:
    """It asks something new to be signed."""
    told = Told()
    settings = {"credentials": house.credentials(), "on_event": told, "reconnect_wait": 0.01}
    async with connect(house.url, **settings) as client:
        for count in (2, 4):
            house.server.kill()
            await trio.to_thread.run_sync(house.server.start)
            with trio.fail_after(SOON):
                await told.wait(count)
            assert isinstance(told.events[-1], Reconnected)
            await hears_itself(client)


def test_threads(house: House) -> None:
    with sync.connect(house.url, credentials=house.credentials()) as client, client.subscribe("a") as messages:
        client.publish("a", b"here", timeout=SOON)
        assert messages.receive(timeout=SOON).payload == b"here"
    with pytest.raises(AuthorizationFailed, match=REFUSED):
        sync.connect(house.url).open(timeout=SOON)
