"""What a test need not write to files, and the broker reads from them: user names, access rules, certificates."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, cast

from trunkline.config.errors import SecurityError
from trunkline.hooks.acl_file import RulePlace, read_rules

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

#: How the URLs of TLS listeners begin.
_ENCRYPTED: Final = ("tls:", "mqtts:", "nats+tls:", "nats+wss:", "wss:")


@contextmanager
def written(settings: Mapping[str, Any]) -> Generator[dict[str, Any], None, None]:
    """Settings with `auth.password_file` in place of `users`, `acl.file` in place of `rules`, and certificates where
    TLS listeners have none, for the length of a block.

    Raises:
        TypeError: the users are no table of passwords, or the rules no list of tables.
        SecurityError: a user name or a rule is wrong.
        ImportError: trustme is not installed, which makes certificates.
    """
    users, rules = settings.get("users"), settings.get("rules")
    sections = {name: value for name, value in settings.items() if name not in ("users", "rules")}
    if isinstance(listeners := sections.get("listeners"), list | tuple):
        sections["listeners"] = [_certified(each) for each in cast("Sequence[object]", listeners)]
    if users is None and rules is None:
        yield sections
        return
    with TemporaryDirectory(prefix="trunkline-") as folder:
        if users is not None:
            file = Path(folder, "users")
            file.write_text(_users_text(users), "utf-8")
            sections["auth"] = _with(sections.get("auth", {}), "password_file", file)
        if rules is not None:
            file = Path(folder, "rules")
            file.write_text(_rules_text(rules), "utf-8")
            sections["acl"] = _with(sections.get("acl", {}), "file", file)
        yield sections


def _with(section: object, key: str, file: Path) -> object:
    """What is no section is refused where all sections are read."""
    return {**cast("Mapping[str, object]", section), key: str(file)} if isinstance(section, Mapping) else section


def _users_text(users: object) -> str:
    if not isinstance(users, Mapping):
        raise TypeError(f'users={users!r:.80}: accepted is a password for each user name, {{"ada": "secret"}}')
    lines: list[str] = []
    for name, password in cast("Mapping[object, object]", users).items():
        if not (isinstance(name, str) and isinstance(password, str)):
            raise TypeError(f"users: {name!r:.80}: accepted is text for the name and for the password")
        if not name or "\n" in name:
            raise SecurityError([f"users: {name!r:.80} cannot be a user name"])
        lines.append(f"{name}:{_hashed(password)}\n")
    return "".join(lines)


def _rules_text(rules: object) -> str:
    from tomlkit import dumps

    if not isinstance(rules, list | tuple):
        raise TypeError(f'rules={rules!r:.80}: accepted is a list of rules, [{{"permit": "allow", "user": "ada"}}]')
    texts: list[str] = []
    problems: list[str] = []
    for number, rule in enumerate(cast("Sequence[object]", rules)):
        place = f"rules[{number}]"
        if not isinstance(rule, Mapping):
            raise TypeError(f'{place} is {rule!r:.80}: accepted is a table, {{"permit": "allow", "user": "ada"}}')
        try:
            texts.append(dumps({"rule": [dict(cast("Mapping[str, object]", rule))]}))
        except TypeError as error:
            raise TypeError(f"{place}: {error}") from None
        read_rules([(RulePlace(place), table) for table in tomllib.loads(texts[-1])["rule"]], problems)
    if problems:
        raise SecurityError(problems)
    return "\n".join(texts)


def _certified(listener: object) -> object:
    table: object = listener
    url = cast("Mapping[str, object]", table).get("url") if isinstance(table, dict) else listener
    if not isinstance(url, str) or not url.lower().startswith(_ENCRYPTED):
        return listener
    from trunkline.testing.certificates import with_certificates  # few brokers speak TLS

    return with_certificates(listener)


def _hashed(password: str) -> str:
    """At the lowest cost, because no attacker has to be slowed down."""
    from argon2 import PasswordHasher

    return PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(password)
