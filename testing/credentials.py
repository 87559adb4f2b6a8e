"""What a test need not write to files, and the broker reads from them: user names, access rules, certificates."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

#: How the URLs of TLS listeners begin.
_ENCRYPTED: Final = ("tls:", "mqtts:", "wss:")


@contextmanager
def written(settings: Mapping[str, Any]) -> Generator[dict[str, Any], None, None]:
    """Settings with `auth.password_file` in place of `users`, `acl.file` in place of `rules`, and certificates where
    TLS listeners have none, for the length of a block.

    Raises:
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
            file.write_text("".join(f"{name}:{_hashed(password)}\n" for name, password in users.items()), "utf-8")
            sections["auth"] = {**sections.get("auth", {}), "password_file": str(file)}
        if rules is not None:
            from tomlkit import dumps

            file = Path(folder, "rules")
            file.write_text(dumps({"rule": [dict(rule) for rule in rules]}), "utf-8")
            sections["acl"] = {**sections.get("acl", {}), "file": str(file)}
        yield sections


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
