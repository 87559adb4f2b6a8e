"""The built-in authentication and access rules of a node: files read, callbacks registered, both again on reload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from trunkline.hooks.acl import Acl
from trunkline.hooks.acl_file import DEFAULT_RULES, AclError, parse_rules
from trunkline.hooks.credentials import CredentialsError
from trunkline.hooks.decisions import ALLOW, Allow, Deny
from trunkline.hooks.passwords import PasswordAuthenticator, parse_passwords
from trunkline.hooks.points import (
    CLIENT_AUTHENTICATE,
    CLIENT_CHECK_ACL,
    CLIENT_ENHANCED_AUTHENTICATE,
    Action,
    Point,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trunkline.broker.config import Config
    from trunkline.hooks.chain import Hooks
    from trunkline.hooks.client import ClientInfo


#: The priority of what the configuration says: hooks and plugins are asked before.
LAST: Final = -1_000_000


class SecurityError(Exception):
    """The files cannot be used. `problems` says all that is wrong with them, a line each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Security:
    def __init__(self, config: Config, hooks: Hooks) -> None:
        self._config = config
        self._hooks = hooks
        self._registered: list[tuple[Point, Callable[..., Any]]] = []
        #: Verifying a password takes a processor for a few hundredths of a second, so few at a time.
        self._workers = trio.CapacityLimiter(2)

    def load(self) -> None:
        """Read all files, and let what they say hold from now on. If anything is wrong with them, nothing changes.

        Raises:
            SecurityError: with all problems at once.
        """
        auth, problems = self._config.auth, list[str]()
        users = _read(auth.password_file, parse_passwords, problems)
        client_ids = _read(auth.client_id_file, parse_passwords, problems)
        scram = _read(auth.scram_file, _parse_scram, problems)
        rules = _read(self._config.acl.file, lambda text, _: parse_rules(text), problems)
        if problems:
            raise SecurityError(problems)
        self.unload()
        if users is not None or client_ids is not None:
            authenticator = PasswordAuthenticator(users, client_ids)
            self._register(CLIENT_AUTHENTICATE, self._in_thread(authenticator), authenticator.concerns)
        if scram is not None:
            self._register(CLIENT_ENHANCED_AUTHENTICATE, scram)
        if rules is None:
            rules = parse_rules(DEFAULT_RULES)
        self._register(CLIENT_CHECK_ACL, _acl_callback(Acl(rules, no_match=self._config.acl.no_match)))

    def unload(self) -> None:
        """Nothing that the files say holds any more."""
        for point, callback in self._registered:
            self._hooks.remove(point, callback)
        self._registered.clear()

    def _register(
        self, point: Point, callback: Callable[..., Any], filter: Callable[..., object] | None = None
    ) -> None:
        self._hooks.add(point, callback, filter=filter, priority=LAST)
        self._registered.append((point, callback))

    def _in_thread(self, authenticator: PasswordAuthenticator) -> Callable[..., Any]:
        async def check_password(client: ClientInfo, password: bytes | None) -> Allow | Deny | None:
            return await trio.to_thread.run_sync(
                authenticator, client, password, limiter=self._workers, abandon_on_cancel=True
            )

        return check_password


def _parse_scram(text: str, source: str) -> Callable[..., Any]:
    from trunkline.hooks.scram import ScramAuthenticator, parse_scram  # few use it, and it takes long to load

    return ScramAuthenticator(parse_scram(text, source))


def _acl_callback(acl: Acl) -> Callable[..., Any]:
    denied = Deny(text="the access rules deny it")

    def check_rules(client: ClientInfo, action: Action, topic: str, qos: int, retain: bool) -> Allow | Deny:
        return ALLOW if acl.compile_for(client).check(action, topic, qos, retain) else denied

    return check_rules


def _read(path: Path | None, parse: Callable[[str, str], Any], problems: list[str]) -> Any:
    if path is None:
        return None
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        problems.append(f"{path}: {error.strerror or error}")
    except UnicodeDecodeError as error:
        problems.append(f"{path}: not UTF-8 text: {error.reason} at byte {error.start}")
    except CredentialsError as error:
        problems += error.problems
    except AclError as error:
        problems += [f"{path}: {problem}" for problem in error.problems]
    return None
