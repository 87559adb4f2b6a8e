"""Verifies passwords in a few threads, with addresses and their names taking turns, and refuses logins after too many
wrong passwords."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from trunkline.broker.alarms import PASSWORDS_GUESSED
from trunkline.broker.fair_queue import FairQueue, QueueFull
from trunkline.broker.node_use import ALONE
from trunkline.hooks.decisions import ALLOW, Deny
from trunkline.hooks.exchange import Exchange
from trunkline.hooks.tries import TOO_MANY, Tries, address_of
from trunkline.mqtt.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trunkline.broker.alarms import Alarms
    from trunkline.broker.node_use import NodeUse
    from trunkline.config.security_settings import PasswordSettings
    from trunkline.hooks.client import ClientInfo
    from trunkline.hooks.decisions import Allow
    from trunkline.hooks.passwords import PasswordAuthenticator

A = TypeVar("A")

_logger = logging.getLogger("trunkline.authentication")

_BUSY: Final = Deny(Reason.SERVER_BUSY, "too many logins are waiting")
_FAILED: Final = "login failed"
#: Seconds between two log records about guessed passwords.
REPORTED_EVERY: Final = 60.0


class GuessReport:
    """Reports that passwords are being guessed: an alarm while it goes on, and a log record with the number each
    minute."""

    def __init__(self, alarms: Alarms, call_at: Callable[[float, Callable[[], None]], object]) -> None:
        self._alarms = alarms
        self._call_at = call_at
        self._refused = 0
        self._lasts = False

    def refused(self, client: ClientInfo) -> None:
        self._refused += 1
        where = "this machine" if client.peer is None else client.peer[0]
        self._alarms.activate(PASSWORDS_GUESSED, f"too many wrong passwords from {where}, last for {_name(client)}")
        if not self._lasts:
            self._lasts = True
            self._call_at(trio.current_time() + REPORTED_EVERY, self._report)

    def _report(self) -> None:
        if not self._refused:
            self._lasts = False
            self._alarms.deactivate(PASSWORDS_GUESSED)
            return
        _logger.warning(
            "%d logins were refused within %g s, as too many passwords had been wrong", self._refused, REPORTED_EVERY
        )
        self._refused = 0
        self._call_at(trio.current_time() + REPORTED_EVERY, self._report)


class PasswordCheck:
    """A callback for `client.authenticate`: the files of the client's listener decide. Its `demand` is another, for
    both points at which clients log in."""

    def __init__(
        self,
        by_listener: Mapping[str, PasswordAuthenticator | None],
        default: PasswordAuthenticator | None,
        settings: PasswordSettings,
        queue: PasswordQueue,
        report: GuessReport | None,
        use: NodeUse = ALONE,
    ) -> None:
        """`by_listener` has an entry for each listener with files of its own. `use` tells other shards of failures,
        which count there, too: who guesses has as many tries as at one shard."""
        self._by_listener = by_listener
        self._default = default
        self._queue = queue
        self._report = report
        self._use = use
        use.hear(_FAILED, self._failed_elsewhere)
        self._tries = Tries(
            max_failures=settings.max_failures,
            max_failures_by_address=settings.max_failures_by_address,
            window=settings.window,
            pause=settings.pause,
            max_tracked=settings.max_tracked,
        )

    def concerns(self, client: ClientInfo, password: bytes | None) -> bool:
        if client.certified:
            return False
        authenticator = self._of(client)
        return authenticator is not None and authenticator.concerns(client, password)

    async def __call__(self, client: ClientInfo, password: bytes | None) -> Allow | Deny | None:
        if client.proved_id and client.username is None:
            return ALLOW
        authenticator = self._of(client)
        assert authenticator is not None
        return await self._verify(client, authenticator, authenticator.whose(client), password, authenticator)

    # The demand: a client id that has a password is only for who knows it

    def demands(self, client: ClientInfo, proof: bytes | Exchange | None) -> bool:
        """`proof` is what comes with the question at either hook point."""
        if isinstance(proof, Exchange) and (proof.again or not proof.first):
            return False
        authenticator = self._of(client)
        return authenticator is not None and authenticator.demands(client)

    async def demand(self, client: ClientInfo, proof: bytes | Exchange | None) -> Deny | None:
        authenticator = self._of(client)
        assert authenticator is not None
        password = proof.password if isinstance(proof, Exchange) else proof
        whose = f"{client.client_id}\0"
        answer = await self._verify(client, authenticator, whose, password, authenticator.prove_id)
        return answer if isinstance(answer, Deny) else None

    def _of(self, client: ClientInfo) -> PasswordAuthenticator | None:
        return self._at(client.listener)

    def _at(self, listener: str) -> PasswordAuthenticator | None:
        return self._by_listener.get(listener, self._default)

    def _failed_elsewhere(self, failure: tuple[str, str, str]) -> None:
        listener, address, name = failure
        authenticator = self._at(listener)
        if authenticator is not None:
            self._tries.failed(address, _whose(authenticator, name), trio.current_time())

    async def _verify(
        self,
        client: ClientInfo,
        authenticator: PasswordAuthenticator,
        name: str,
        password: bytes | None,
        verify: Callable[[ClientInfo, bytes | None], A],
    ) -> A | Deny:
        address, whose, given = address_of(client), _whose(authenticator, name), password or b""
        tries = self._tries
        refusal = tries.refusal(address, whose, given, trio.current_time())
        if refusal is None:
            # nobody comes into the row of those who were right before without knowing a password
            group = address, tries.was_right(whose, given)
            try:
                async with self._queue.turns.turn(group, name):
                    # another client may have tried meanwhile
                    refusal = tries.refusal(address, whose, given, trio.current_time())
                    if refusal is None:
                        answer = await self._queue.run(lambda: verify(client, password))
                        if answer is not None or client.proved_id:
                            # otherwise no file has the name, and the password is neither right nor wrong
                            right = not isinstance(answer, Deny)
                            tries.note(address, whose, given, trio.current_time(), right=right)
                            if not right:
                                self._use.tell(_FAILED, (client.listener, address, name))
                        return answer
            except QueueFull:
                return _BUSY
        if refusal is TOO_MANY and self._report is not None:
            self._report.refused(client)
        return refusal


class PasswordQueue:
    """The threads of a node that verify passwords, and the logins that wait for them. It outlives the files."""

    def __init__(self, settings: PasswordSettings) -> None:
        self.turns = FairQueue(settings.threads, settings.max_waiting)
        self._threads = trio.CapacityLimiter(settings.threads)

    def resize(self, settings: PasswordSettings) -> None:
        self.turns.resize(settings.threads, settings.max_waiting)
        self._threads.total_tokens = settings.threads

    async def run(self, verify: Callable[[], A]) -> A:
        """Not cancelled when the client disconnects: an abandoned thread would go on, in addition to `threads`."""
        return await trio.to_thread.run_sync(verify, limiter=self._threads)


def _whose(authenticator: PasswordAuthenticator, name: str) -> str:
    """Users of different files may have one name."""
    return f"{id(authenticator)}\0{name}"


def _name(client: ClientInfo) -> str:
    return f"the client id {client.client_id!r}" if client.username is None else f"the user {client.username!r}"
