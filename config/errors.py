"""Errors in a configuration."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple

# Type checkers let a bare `Unusable` mean `Unusable[object]`; the running Python learns that only in 3.13.
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    P = TypeVar("P", default=object)
else:
    from typing import TypeVar

    P = TypeVar("P")


class Problem(NamedTuple):
    """One problem: its source, the key, and what is accepted there."""

    source: str
    key: str
    text: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.source, self.key, self.text) if part)


class Unusable(Exception, Generic[P]):
    """A configuration, plugin or file cannot be used. `problems` has every reason, one line each."""

    def __init__(self, problems: Sequence[P]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class ConfigError(Unusable[Problem]):
    """The configuration cannot be used."""


class SecurityError(Unusable[str]):
    """The files of passwords, access rules, certificates or keys cannot be used."""
