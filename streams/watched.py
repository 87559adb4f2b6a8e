"""Something that others wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Watched:
    def __init__(self) -> None:
        self.watchers: dict[Callable[[], object], None] = {}

    def watch(self, action: Callable[[], object]) -> None:
        """Call back once, when there may be something new."""
        self.watchers[action] = None

    def unwatch(self, action: Callable[[], object]) -> None:
        self.watchers.pop(action, None)

    def wake(self) -> None:
        watchers, self.watchers = self.watchers, {}
        for action in watchers:
            action()
