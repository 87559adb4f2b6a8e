"""Failed logins, and the pause that follows too many of them. A hash is slow to verify on purpose, so during the pause
logins are refused without verifying.

A login is a user (or a client id that has a password) and a password. The same wrong login counts once: a misconfigured
device does not lock out anybody. A login that succeeded before is always verified, so that other clients at the same
address, and other devices of the same user, can log in during an attack.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from secrets import token_bytes
from typing import TYPE_CHECKING, Final, TypeVar

from trunkline.hooks.client import counted_address, read_address
from trunkline.hooks.decisions import Deny
from trunkline.hooks.passwords import REFUSED
from trunkline.mqtt.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Hashable

    from trunkline.hooks.client import ClientInfo

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")

TOO_MANY: Final = Deny(Reason.CONNECTION_RATE_EXCEEDED, "too many wrong passwords")


def address_of(client: ClientInfo) -> str:
    """The address for which failures count. Empty for this machine: all clients of a proxy on it have its address."""
    if client.peer is None:
        return ""
    address = read_address(client.peer[0])
    return "" if address is not None and address.is_loopback else counted_address(client.peer[0])


@dataclass(slots=True)
class _Failures:
    count: int
    #: The end of the window in which they are counted, or of the pause.
    until: float
    paused: bool = False


class Tries:
    """All tables are bounded; the oldest entries are forgotten first."""

    def __init__(
        self, *, max_failures: int, max_failures_by_address: int, window: float, pause: float, max_tracked: int
    ) -> None:
        """0 means no limit."""
        self._max_failures = max_failures
        self._max_by_address = max_failures_by_address
        self._window = window
        self._pause = pause
        self._max_tracked = max_tracked
        self._secret = token_bytes(32)
        #: The time until which each wrong login is remembered.
        self._wrong: OrderedDict[bytes, float] = OrderedDict()
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._failures: OrderedDict[tuple[str, str | None], _Failures] = OrderedDict()

    def refusal(self, address: str, whose: str, password: bytes, now: float) -> Deny | None:
        """The refusal without verifying the password, if there is one."""
        login = self._login(whose, password)
        if login in self._right:
            return None
        if self._wrong.get(login, now) > now:
            return REFUSED
        return TOO_MANY if self._is_paused(address, whose, now) or self._is_paused(address, None, now) else None

    def was_right(self, whose: str, password: bytes) -> bool:
        """As far as is remembered."""
        return self._login(whose, password) in self._right

    def note(self, address: str, whose: str, password: bytes, now: float, *, right: bool) -> None:
        """A password was verified."""
        login = self._login(whose, password)
        if right:
            self._wrong.pop(login, None)
            self._failures.pop((address, whose), None)
            self._keep(self._right, login, None)
            return
        self._right.pop(login, None)
        self._keep(self._wrong, login, now + self._pause)
        self.failed(address, whose, now)

    def failed(self, address: str, whose: str, now: float) -> None:
        """A login has failed, here or elsewhere."""
        self._count(address, whose, now, self._max_failures)
        if address:
            self._count(address, None, now, self._max_by_address)

    def _login(self, whose: str, password: bytes) -> bytes:
        digest = blake2b(key=self._secret, digest_size=16)
        digest.update(len(whose).to_bytes(4, "big") + whose.encode() + password)
        return digest.digest()

    def _is_paused(self, address: str, whose: str | None, now: float) -> bool:
        failures = self._failures.get((address, whose))
        return failures is not None and failures.paused and failures.until > now

    def _count(self, address: str, whose: str | None, now: float, most: int) -> None:
        """`whose` is None for all names at the address."""
        failures = self._failures.get((address, whose))
        if failures is None or failures.until <= now:
            failures = _Failures(0, now + self._window)
        failures.count += 1
        if 0 < most <= failures.count:
            failures.paused, failures.until = True, now + self._pause
        self._keep(self._failures, (address, whose), failures)

    def _keep(self, table: OrderedDict[K, V], key: K, value: V) -> None:
        table[key] = value
        table.move_to_end(key)
        if len(table) > self._max_tracked:
            table.popitem(last=False)
