"""The specification of a supervisor's child."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.actors.actor import Actor
    from trunkline.actors.supervisor import Supervisor


class Restart(Enum):
    """When a child is started again."""

    PERMANENT = "always"
    TRANSIENT = "after a crash"
    TEMPORARY = "never"


@dataclass(frozen=True, slots=True)
class Child:
    """How to start a child, and how to treat it. A restart calls `start` again: a new object, never a reset."""

    name: str
    start: Callable[[], Actor[Any] | Supervisor]
    restart: Restart = Restart.PERMANENT
    #: Seconds for its tasks and its teardown to end. A supervisor has all the time that its children need.
    shutdown: float = 5.0
