"""The built-in authentication and access rules of a node: files read, callbacks registered, both again on reload."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from trunkline.broker.node_use import ALONE
from trunkline.broker.password_check import PasswordCheck, PasswordQueue
from trunkline.config.errors import SecurityError
from trunkline.config.files import read_text
from trunkline.config.security_settings import PASSWORDS, SCRAM
from trunkline.hooks.acl import Acl
from trunkline.hooks.acl_file import DEFAULT_RULES, AclError, parse_rules
from trunkline.hooks.client import IN_PROCESS
from trunkline.hooks.credentials import CredentialsError
from trunkline.hooks.decisions import ALLOW, Allow, Deny
from trunkline.hooks.passwords import PasswordAuthenticator, parse_passwords
from trunkline.hooks.points import (
    AUTHENTICATION,
    CLIENT_AUTHENTICATE,
    CLIENT_CHECK_ACL,
    CLIENT_ENHANCED_AUTHENTICATE,
    Action,
    Point,
)
from trunkline.hooks.priorities import CLIENT_IDS, CONFIGURATION

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from trunkline.broker.node_use import NodeUse
    from trunkline.broker.password_check import GuessReport
    from trunkline.config.config import Config
    from trunkline.config.security_settings import CredentialFiles
    from trunkline.hooks.acl import Rule
    from trunkline.hooks.chain import Hooks
    from trunkline.hooks.client import ClientInfo
    from trunkline.hooks.exchange import Continue, Exchange, Success
    from trunkline.hooks.scram import ScramAuthenticator


_logger = logging.getLogger("trunkline.access")


class SecurityFiles(NamedTuple):
    """What the files of a configuration say."""

    #: By listener; None where it has no files of its own, nor the configuration.
    passwords: dict[str, PasswordAuthenticator | None]
    scrams: dict[str, ScramAuthenticator | None]
    #: For connections without a listener.
    default_passwords: PasswordAuthenticator | None
    default_scram: ScramAuthenticator | None
    #: None: the default rules hold.
    rules: list[Rule] | None


def read_files(config: Config) -> SecurityFiles:
    """Read all files that the configuration names.

    Raises:
        SecurityError: with all problems at once.
    """
    files = _Files()
    listeners = {listener.label: config.credentials_at(listener) for listener in config.listeners}
    found = SecurityFiles(
        {label: files.passwords(each) for label, each in listeners.items()},
        {label: files.scram(each) for label, each in listeners.items()},
        files.passwords(config.auth.files),
        files.scram(config.auth.files),
        files.rules(config.acl.file, {*listeners, IN_PROCESS}),
    )
    if files.problems:
        raise SecurityError(files.problems)
    return found


class Security:
    def __init__(self, config: Config, hooks: Hooks, report: GuessReport | None = None, use: NodeUse = ALONE) -> None:
        self._hooks = hooks
        self._use = use
        self._report = report
        self._queue = PasswordQueue(config.passwords)
        self._registered: list[tuple[Point, Callable[..., Any]]] = []

    def apply(self, config: Config, files: SecurityFiles) -> None:
        """In place of what was applied before."""
        passwords, scrams, default_passwords, default_scram, rules = files
        self.unload()
        self._queue.resize(config.passwords)
        if default_passwords is not None or any(passwords.values()):
            check = PasswordCheck(passwords, default_passwords, config.passwords, self._queue, self._report, self._use)
            self._register(CLIENT_AUTHENTICATE, check, check.concerns, authenticator=PASSWORDS)
            for point in AUTHENTICATION:
                self._register(point, check.demand, check.demands, priority=CLIENT_IDS)
        if default_scram is not None or any(scrams.values()):
            self._register(CLIENT_ENHANCED_AUTHENTICATE, ScramLogin(scrams, default_scram), authenticator=SCRAM)
        source = "the access rules"
        if rules is None:
            rules, source = parse_rules(DEFAULT_RULES), "the default access rules"
            if not all(listener.loopback for listener in config.listeners):
                _logger.info(
                    "no acl.file is set, so the default access rules hold: from other machines nobody subscribes to #, "
                    "+/# or $SYS/#. An acl.file replaces them; an empty one allows everything"
                )
        self._register(CLIENT_CHECK_ACL, AccessRules(Acl(rules, no_match=config.acl.no_match), source))

    def unload(self) -> None:
        """The files no longer apply."""
        for point, callback in self._registered:
            self._hooks.remove(point, callback)
        self._registered.clear()

    def _register(
        self,
        point: Point,
        callback: Callable[..., Any],
        filter: Callable[..., object] | None = None,
        authenticator: str = "",
        priority: int = CONFIGURATION,
    ) -> None:
        self._hooks.add(point, callback, filter=filter, priority=priority, authenticator=authenticator)
        self._registered.append((point, callback))


class _Files:
    """Each file is read once, even if listeners share it."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._read: dict[tuple[Path, object], Any] = {}
        self._authenticators: dict[tuple[Path | None, Path | None], PasswordAuthenticator | None] = {}

    def passwords(self, files: CredentialFiles) -> PasswordAuthenticator | None:
        paths = files.password_file, files.client_id_file
        if paths not in self._authenticators:
            users, client_ids = (self.read(path, parse_passwords) for path in paths)
            none = users is None and client_ids is None
            self._authenticators[paths] = None if none else PasswordAuthenticator(users, client_ids)
        return self._authenticators[paths]

    def scram(self, files: CredentialFiles) -> ScramAuthenticator | None:
        found: ScramAuthenticator | None = self.read(files.scram_file, _parse_scram)
        return found

    def rules(self, path: Path | None, listeners: Collection[str]) -> list[Rule] | None:
        rules: list[Rule] | None = self.read(path, partial(parse_rules, listeners=listeners))
        return rules

    def read(self, path: Path | None, parse: Callable[[str, str], Any]) -> Any:
        if path is None:
            return None
        if (path, parse) not in self._read:
            self._read[path, parse] = self._parsed(path, parse)
        return self._read[path, parse]

    def _parsed(self, path: Path, parse: Callable[[str, str], Any]) -> Any:
        try:
            return parse(read_text(path), str(path))
        except OSError as error:
            self.problems.append(f"{path}: {error.strerror or error}")
        except UnicodeDecodeError as error:
            self.problems.append(f"{path}: not UTF-8 text: {error.reason} at byte {error.start}")
        except (CredentialsError, AclError) as error:
            self.problems += error.problems
        return None


def _parse_scram(text: str, source: str) -> ScramAuthenticator:
    from trunkline.hooks.scram import ScramAuthenticator, parse_scram  # rarely used, and slow to import

    return ScramAuthenticator(parse_scram(text, source))


class ScramLogin:
    """A callback for `client.enhanced_authenticate`: each listener may have keys of its own."""

    def __init__(self, scrams: Mapping[str, ScramAuthenticator | None], default: ScramAuthenticator | None) -> None:
        self._scrams = scrams
        self._default = default

    def __call__(self, client: ClientInfo, exchange: Exchange) -> Continue | Success | Deny | None:
        scram = self._scrams.get(client.listener, self._default)
        return None if scram is None else scram(client, exchange)


class AccessRules:
    """A callback for `client.check_acl`. Its denials name the rule, by its number in the file."""

    def __init__(self, acl: Acl, source: str) -> None:
        self._acl = acl
        self._denials = [Deny(text=f"denied by rule {number} of {source}") for number in range(1, len(acl.rules) + 1)]
        self._denials.append(Deny(text=f"no rule of {source} allows it"))  # at the place of NO_RULE

    def __call__(self, client: ClientInfo, action: Action, topic: str, qos: int, retain: bool) -> Allow | Deny:
        allowed, rule = self._acl.compile_for(client).decide(action, topic, qos, retain)
        return ALLOW if allowed else self._denials[rule]
