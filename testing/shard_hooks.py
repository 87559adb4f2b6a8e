"""The hooks of several shards as those of one broker: what a test registers, each of them has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trunkline.hooks.chain import Hooks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trunkline.hooks.points import Point
    from trunkline.hooks.registration import Registration


class ShardHooks(Hooks):
    """What a shard registers itself, for its plugins and logins, it has alone."""

    def __init__(self, shards: Sequence[Hooks]) -> None:
        super().__init__()
        self._shards = shards

    def add(self, *args: Any, **options: Any) -> bool:
        return all([hooks.add(*args, **options) for hooks in self._shards])  # noqa: C419 - each of them

    def remove(self, *args: Any, **options: Any) -> bool:
        return all([hooks.remove(*args, **options) for hooks in self._shards])  # noqa: C419 - each of them

    def listing(self, point: Point | str | None = None) -> list[Registration]:
        """Those of the first shard."""
        return self._shards[0].listing(point)


def hooks_of(shards: int, given: Hooks | None) -> list[Hooks]:
    """A chain for each, with the callbacks that the test has given."""
    first = Hooks() if given is None else given
    return [first, *[_copy(first) for _ in range(1, shards)]]


def _copy(hooks: Hooks) -> Hooks:
    copied = Hooks()
    for each in hooks.listing():
        copied.add(
            each.point,
            each.callback,
            priority=each.priority,
            filter=each.filter,
            args=each.args,
            publications=each.publications,
            authenticator=each.authenticator,
        )
    return copied
