"""An actor's monitors, links and tasks, for the few actors that have any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import trio

    from trunkline.actors.calls import Reply
    from trunkline.actors.ref import Ref


class Monitor:
    """One watcher of one actor."""

    __slots__ = ("ref", "watcher")

    def __init__(self, ref: Ref[Any], watcher: Ref[Any]) -> None:
        self.ref = ref
        self.watcher = watcher


class Bonds:
    """Made when an actor gets its first bond: most have none, and each set would cost more than the mailbox."""

    __slots__ = ("done", "idle", "monitors", "owed", "scopes", "setup", "watching")

    def __init__(self) -> None:
        self.monitors: set[Monitor] | None = None
        self.watching: set[Monitor] | None = None
        self.owed: set[Reply] | None = None
        #: The actor's running tasks.
        self.scopes: set[trio.CancelScope] | None = None
        #: Around a setup that still runs.
        self.setup: trio.CancelScope | None = None
        #: Set when the last task has ended; exists once the actor winds down.
        self.idle: trio.Event | None = None
        #: Set when the actor has ended; exists once a task waits for it.
        self.done: trio.Event | None = None
