"""The hooks of one run of a plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Unpack

import trio

from trunkline.hooks.points import AUTHENTICATION, find
from trunkline.hooks.registration import HookError, Registering, Registration, describe
from trunkline.plugins.errors import PluginError

if TYPE_CHECKING:
    from trunkline.config.section import PluginSettings
    from trunkline.hooks.chain import Hooks
    from trunkline.hooks.points import Point
    from trunkline.hooks.registration import Callback, RegistrationOptions


class HookOwner(Protocol):
    """The run whose hooks they are."""

    @property
    def name(self) -> str: ...
    @property
    def authenticates(self) -> bool: ...
    @property
    def settings(self) -> PluginSettings: ...
    def check_alive(self) -> None: ...
    def forget_decisions(self, *points: Point) -> None: ...


class PluginHooks(Registering):
    """The hooks of one run of a plugin: in force all at once when it has started, and removed at once when it ends."""

    __slots__ = ("_hooks", "_in_force", "_owner", "_registered")

    def __init__(self, owner: HookOwner, hooks: Hooks) -> None:
        self._owner = owner
        self._hooks = hooks
        self._registered: list[Registration] = []
        self._in_force = False

    def add(self, point: Point | str, callback: Callback, **options: Unpack[RegistrationOptions]) -> bool:
        """Register a callback, as `trunkline.hooks.Hooks.add`.

        Raises:
            PluginError: the point does not exist, or the callback cannot be called as the point calls it; or other
                workers would not call it.
        """
        self._owner.check_alive()
        point = _point(point, callback)
        if self._owner.settings.scope == "node":
            raise PluginError([misplaced(self._owner.name, point.name, callback)])
        try:
            if point in AUTHENTICATION and self._owner.authenticates:
                options["authenticator"] = self._owner.name
            registration = Registration(point, callback, **options)
        except HookError as error:
            raise PluginError([f"{self._owner.name}: {error}"]) from None
        if self._find(point, callback) is not None:
            return False
        self._registered.append(registration)
        if self._in_force:
            self._hooks.exchange((), [registration])
            self._owner.forget_decisions(point)
        return True

    def remove(self, point: Point | str, callback: Callback) -> bool:
        """Remove a callback; False if it is not registered."""
        registration = self._find(point := _point(point, callback), callback)
        if registration is None:
            return False
        self._registered.remove(registration)
        if self._in_force:
            self._hooks.exchange([registration], ())
            self._owner.forget_decisions(point)
        return True

    def put_in_force(self, former: PluginHooks | None) -> None:
        """In one step, in the place of those of a former run."""
        self._in_force = True
        self._hooks.exchange(() if former is None else former._taken(), self._registered)

    def release(self) -> None:
        self._hooks.exchange(self._taken(), ())
        self._registered = []

    def _taken(self) -> list[Registration]:
        taken = self._registered if self._in_force else []
        self._in_force = False
        return taken

    async def settled(self) -> None:
        """Wait until the last call of an async callback is over."""
        for registration in self._registered:
            if registration.waiting:
                over = trio.Event()
                registration.settled = over.set
                await over.wait()

    def _find(self, point: Point, callback: Callback) -> Registration | None:
        return next((each for each in self._registered if each.point is point and each.callback == callback), None)

    def __len__(self) -> int:
        return len(self._registered) if self._in_force else 0

    @property
    def points(self) -> list[Point]:
        return [registration.point for registration in self._registered]

    @property
    def errors(self) -> int:
        """How often its callbacks raised."""
        return sum(registration.crashes for registration in self._registered)

    def owns(self, callback: object) -> bool:
        return any(registration.callback == callback for registration in self._registered)


def misplaced(plugin: str, point: str, callback: Callback) -> str:
    """What is wrong with a hook of a plugin that runs in one worker."""
    return f'{plugin}: scope = "node" is not for hooks: {describe(callback)} would see {point} in worker 0 alone'


def _point(point: Point | str, callback: Callback) -> Point:
    try:
        return find(point) if isinstance(point, str) else point
    except LookupError as error:
        raise PluginError([f"{describe(callback)}: {error.args[0]}"]) from None
