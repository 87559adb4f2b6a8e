"""User names and access rules that a test gives as values: written to files, as the broker reads them."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping


@contextmanager
def written(settings: Mapping[str, Any]) -> Generator[dict[str, Any], None, None]:
    """Settings with `auth.password_file` in place of `users`, and `acl.file` in place of `rules`, for the length of a
    block."""
    users, rules = settings.get("users"), settings.get("rules")
    sections = {name: value for name, value in settings.items() if name not in ("users", "rules")}
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


def _hashed(password: str) -> str:
    """At the lowest cost, because no attacker has to be slowed down."""
    from argon2 import PasswordHasher

    return PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(password)
