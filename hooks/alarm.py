"""A condition that an operator should know about, from its detection until it is over."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

_NO_DETAILS: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Alarm:
    #: Names the condition; one name is active at most once.
    name: str
    text: str = ""
    #: Seconds since the epoch.
    since: float = 0.0
    #: None while it lasts.
    until: float | None = None
    details: Mapping[str, object] = field(default_factory=lambda: _NO_DETAILS)
