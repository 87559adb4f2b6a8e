"""Password files and the authenticator that uses them. Hashes are argon2id in its usual text form.

A file has `name:hash` on each line; one file has user names, another of the same form client ids. Verifying costs a few
hundredths of a second on purpose: the broker calls the authenticator in a worker thread. Nothing here changes after it
is made.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Final

from trunkline.hooks.client import ClientInfo
from trunkline.hooks.credentials import parse_entries, replace_entry
from trunkline.hooks.decisions import ALLOW, Allow, Deny
from trunkline.mqtt.reasons import Reason

if TYPE_CHECKING:
    from argon2 import PasswordHasher

#: The cost of a new hash. Memory is what an attacker pays for, and what every login in progress takes.
TIME_COST: Final = 2
MEMORY_COST_KIB: Final = 19_456
PARALLELISM: Final = 1

_HASH: Final = re.compile(
    r"(\$argon2id\$v=(?:16|19)\$m=(\d{1,9}),t=(\d{1,9}),p=(\d{1,9}))\$[A-Za-z0-9+/]{11,}\$[A-Za-z0-9+/]{22,}"
)
#: What a login may cost: beyond, a file would take the memory or the threads of the broker.
_MAX_MEMORY_KIB: Final = 1 << 20
_MAX_TIME: Final = 100
_MAX_PARALLELISM: Final = 16
#: What a line of a file of SCRAM keys ends with.
_SCRAM_KEY: Final = re.compile(r"[A-Za-z0-9+/]{43}=")
_PARAMETERS: Final = f"$argon2id$v=19$m={MEMORY_COST_KIB},t={TIME_COST},p={PARALLELISM}"
#: A salt of 16 and a hash of 32 bytes that no password produces.
_NO_HASH: Final = f"${'A' * 22}${'A' * 43}"

REFUSED: Final = Deny(Reason.BAD_USER_NAME_OR_PASSWORD)


def parse_passwords(text: str, source: str = "password file") -> dict[str, str]:
    """Names and hashes of a file's text; `source` is its name, for the errors.

    Raises:
        CredentialsError: with all problems at once.
    """
    return parse_entries(text, source, 1, _read_hash)


def set_password(text: str, name: str, password: str | bytes) -> str:
    """The file's text with a new password for the name; everything else stays as it is.

    Raises:
        ValueError: the name is not allowed in a file.
    """
    return replace_entry(text, name, hash_password(password), 1)


def delete_password(text: str, name: str) -> str:
    """The file's text without the name; LookupError if it does not have the name."""
    return replace_entry(text, name, None, 1)


def hash_password(password: str | bytes) -> str:
    return _hasher().hash(password)


def verify_password(hash: str, password: bytes) -> bool:
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        return _hasher().verify(hash, password)
    except (VerificationError, InvalidHashError):
        return False


class PasswordAuthenticator:
    """A callback for `client.authenticate`. Passes on clients without a user name whose id has no password, even
    if they send one.

    A client whose id has a password must send that one, whoever else lets it in: `prove_id` is asked before all others.
    A client with a user name must send the user's. A name or an id that is not in its file costs the same time as one
    that is, so that the time does not tell which exist.

    A client that authenticates by its client id alone loses its user name: it was not verified, and access rules depend
    on it.
    """

    def __init__(self, users: Mapping[str, str] | None = None, client_ids: Mapping[str, str] | None = None) -> None:
        self._users = users
        self._client_ids: Mapping[str, str] = client_ids or {}
        self._nobody = _never(next(iter([*(users or {}).values(), *self._client_ids.values()]), ""))

    def concerns(self, client: ClientInfo, password: bytes | None) -> bool:
        """Whether there is anything to verify. Register the authenticator with this as its filter, so that no thread
        starts in vain."""
        return (
            client.client_id in self._client_ids
            or (client.username is not None and self._users is not None)
            or (password is not None and (client.username is not None or bool(self._client_ids)))
        )

    def demands(self, client: ClientInfo) -> bool:
        """Whether its client id has a password."""
        return client.client_id in self._client_ids

    def prove_id(self, client: ClientInfo, password: bytes | None) -> Deny | None:
        """Whether the password is that of the client's id, which has one."""
        client.proved_id = verify_password(self._client_ids[client.client_id], password or b"") and password is not None
        if client.proved_id:
            return None
        if self._users is not None:
            verify_password(self._nobody, password or b"")  # with an id that is in no file, the user's would be next
        return REFUSED

    def whose(self, client: ClientInfo) -> str:
        """Identifies the password that is required."""
        by_id = client.client_id if self.demands(client) else ""
        by_name = client.username or "" if self._users is not None else ""
        return f"{by_id}\0{by_name}"

    def __call__(self, client: ClientInfo, password: bytes | None) -> Allow | Deny | None:
        if not self.concerns(client, password):
            return None
        by_id = self._client_ids.get(client.client_id)
        by_name = None if self._users is None or client.username is None else self._users.get(client.username)
        given = password or b""
        # one verification for each file, whether or not it has the name, and whatever the other one's result is
        id_fits = client.proved_id or bool(self._client_ids) and verify_password(by_id or self._nobody, given)
        name_fits = self._users is not None and verify_password(by_name or self._nobody, given)
        if client.username is None and by_id is None:
            return None
        if password is None or (by_id is None and by_name is None):
            return REFUSED
        if (by_id is not None and not id_fits) or (by_name is not None and not name_fits):
            return REFUSED
        if by_name is None:
            client.username = None
        return ALLOW


@cache
def _hasher() -> "PasswordHasher":
    from argon2 import PasswordHasher  # loading it takes longer than the rest of this package

    return PasswordHasher(time_cost=TIME_COST, memory_cost=MEMORY_COST_KIB, parallelism=PARALLELISM)


def _read_hash(text: str) -> str:
    if _SCRAM_KEY.fullmatch(text):
        raise ValueError("a key of SCRAM, which belongs into a file of auth.scram_file")
    match = _HASH.fullmatch(text)
    if match is None:
        raise ValueError("not an argon2id hash: delete the line, and set it with `trunkline passwd FILE NAME`")
    memory, time, lanes = map(int, match.groups()[1:])
    # the function itself needs 8 KiB for each lane
    if not (1 <= lanes <= _MAX_PARALLELISM and 8 * lanes <= memory <= _MAX_MEMORY_KIB and 1 <= time <= _MAX_TIME):
        raise ValueError(
            f"a hash with m={memory},t={time},p={lanes}; accepted: m from 8 for each p to {_MAX_MEMORY_KIB}, "
            f"t from 1 to {_MAX_TIME}, p from 1 to {_MAX_PARALLELISM}"
        )
    return text


def _never(like: str) -> str:
    """A hash that no password verifies against, as costly as the given one."""
    match = _HASH.fullmatch(like)
    return (match[1] if match else _PARAMETERS) + _NO_HASH
