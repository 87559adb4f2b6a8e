"""A dict that records which keys change, so that a store can write only a session's changes. A session that is not
stored has plain dicts."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class TrackedDict(dict[K, V]):
    __slots__ = ("changed",)

    def __init__(self, values: Mapping[K, V]) -> None:
        super().__init__(values)
        #: The keys, in the order of their last change.
        self.changed: dict[K, None] = {}

    def take(self) -> list[K]:
        """The keys that have changed since the last call."""
        changed, self.changed = self.changed, {}
        return list(changed)

    def _note(self, key: K) -> None:
        self.changed.pop(key, None)
        self.changed[key] = None

    def __setitem__(self, key: K, value: V) -> None:
        self._note(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: K) -> None:
        self._note(key)
        super().__delitem__(key)

    def pop(self, key: K, *default: Any) -> Any:
        self._note(key)
        return super().pop(key, *default)

    def update(self, values: Mapping[K, V] | Iterable[tuple[K, V]]) -> None:  # type: ignore[override]
        for key, value in dict(values).items():
            self[key] = value
