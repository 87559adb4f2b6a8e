"""What is wrong with a configuration."""

from collections.abc import Sequence
from typing import NamedTuple


class Problem(NamedTuple):
    """One thing that is wrong: the source it was found in, the key, and what is accepted there."""

    source: str
    key: str
    text: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.source, self.key, self.text) if part)


class Unusable(Exception):
    """Something cannot be used as it is."""

    def __init__(self, problems: Sequence[object]) -> None:
        """`problems` has every reason."""
        super().__init__("\n".join(map(str, problems)))
        self.reasons = [str(problem) for problem in problems]


class ConfigError(Unusable):
    """The configuration cannot be used."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(problems)
        self.problems = problems
