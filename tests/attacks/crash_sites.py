"""Every place in the broker's source that gives code which all share something to call later, found by reading the
source; and a crash in one of them.

Such a place registers a timer, something for the end of a turn, a socket, or a task. What it registers runs outside of
any handler: an error there must end what it belongs to and nothing else.
"""

import ast
import functools
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

import trunkline
from trunkline.actors import Actor, Later, Ref, Scheduler
from trunkline.broker.net.poller import Poller
from trunkline.broker.node.supervisors import Supervisors

if TYPE_CHECKING:
    from types import FrameType

SOURCE = Path(trunkline.__path__[0])
_PREFIX = f"{SOURCE}{os.sep}"
#: Whose registrations are looked for. The runtime's own are in `tests/actors`; plugins that come with the broker run
#: under supervisors, as any other.
FOLDERS = ("broker", "management", "plugins")
#: What registers: the attribute that is called, and a word that must stand before it, to tell it from others.
CALLS = {
    "call_at": "",
    "send_after": "",
    "after": "later",
    "at_end": "",
    "register": "poller",
    "start_task": "",
    "start_soon": "",
    "start": "nursery",
}


class Injected(Exception):
    """The crash."""


@dataclass(frozen=True, order=True)
class Site:
    file: str
    function: str
    call: str
    #: Of a socket there are two: `ready` and `receiver`.
    part: str = ""

    def __str__(self) -> str:
        module = self.file.removesuffix(".py").replace("/", ".")
        return f"{module}:{self.function}:{self.call}{self.part and '-' + self.part}"


class _Finder(ast.NodeVisitor):
    def __init__(self, file: str) -> None:
        self.file = file
        self.sites: set[Site] = set()
        self._names: list[str] = []

    def _within(self, name: str, node: ast.AST) -> None:
        self._names.append(name)
        self.generic_visit(node)
        self._names.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._within(node.name, node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._names.append(node.name)
        self._within("<locals>", node)
        self._names.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._names.append("<lambda>")
        self._within("<locals>", node)
        self._names.pop()

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute):
            call = node.func.attr.lstrip("_")
            before = ast.unparse(node.func.value).lower()
            if call in CALLS and (CALLS[call] in before or "scheduling" in before):
                function = ".".join(self._names).removesuffix(".<locals>")
                for part in ("ready", "receiver") if call == "register" else ("",):
                    self.sites.add(Site(self.file, function, call, part))
        self.generic_visit(node)


def sites() -> list[Site]:
    found: set[Site] = set()
    for folder in FOLDERS:
        for path in (SOURCE / folder).rglob("*.py"):
            file = path.relative_to(SOURCE).as_posix()
            # commands of clients run in no broker
            if not file.startswith(("plugins/shipped/", "management/client_commands/")):
                finder = _Finder(file)
                finder.visit(ast.parse(path.read_text(encoding="utf-8")))
                found |= finder.sites
    return sorted(found)


def _caller() -> tuple[str, str]:
    """Who registers: the first frame that is neither ours nor the runtime's."""
    frame: FrameType | None = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(_PREFIX):
            file = path[len(_PREFIX) :].replace(os.sep, "/")
            if not file.startswith("actors/"):
                return file, frame.f_code.co_qualname
        elif path != __file__:
            break
        frame = frame.f_back
    return "", ""


@dataclass
class Crash:
    """Happens once, at a site, as soon as it is armed: on behalf of anybody but those that are protected."""

    site: Site
    armed: bool = False
    protected: set[Ref[Any]] = field(default_factory=set[Ref[Any]])
    fired: bool = False
    #: On whose behalf it was.
    owner: Ref[Any] | None = None
    #: What is registered there is no such thing.
    absent: bool = False

    def arm(self, protected: set[Ref[Any]]) -> None:
        self.armed, self.protected = True, protected

    def _due(self, owner: Ref[Any] | None) -> bool:
        if self.armed and not self.fired and (owner is None or owner not in self.protected):
            self.fired, self.owner = True, owner
            return True
        return False

    def _hit(self, owner: Ref[Any] | None) -> None:
        if self._due(owner):
            raise Injected(str(self.site))

    def _function(self, callback: Callable[..., Any], owner: Ref[Any] | None) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            self._hit(owner)
            return callback(*args)

        return call

    def _task(self, async_fn: Callable[..., Awaitable[Any]], owner: Ref[Any] | None) -> Callable[..., Awaitable[Any]]:
        @functools.wraps(async_fn)
        async def run(*args: Any, **kwargs: Any) -> Any:
            if not self._due(owner):
                return await async_fn(*args, **kwargs)
            if owner is not None:
                with trio.CancelScope() as scope:  # it crashes where it first waits
                    scope.cancel()
                    await async_fn(*args, **kwargs)
            raise Injected(str(self.site))

        return run

    def _is_here(self, call: str) -> bool:
        file, function = _caller()
        return (file, function, call) == (self.site.file, self.site.function, self.site.call)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Have everything that is registered at the site crash."""
        crash = self
        call_at, at_end, register = Scheduler.call_at, Scheduler.at_end, Poller.register
        start_task, start_detached = Actor.start_task, Supervisors.start_task  # pyright: ignore[reportPrivateUsage, reportUnknownVariableType, reportUnknownMemberType]
        start_later = Later.start_task
        start_soon, start = trio.Nursery.start_soon, trio.Nursery.start

        def crashing_call_at(self: Any, deadline: float, callback: Any, *args: Any, owner: Any = None) -> Any:
            if any(map(crash._is_here, ("call_at", "send_after", "after"))):
                callback = crash._function(callback, owner)
            return call_at(self, deadline, callback, *args, owner=owner)

        def crashing_at_end(self: Any, task: Any) -> None:
            at_end(self, _Ending(crash, task) if crash._is_here("at_end") else task)

        def crashing_register(self: Any, sock: Any, events: int, polled: Any) -> None:
            if crash._is_here("register"):
                if crash.site.part == "ready":
                    polled = _Polled(crash, polled)
                elif not hasattr(polled, "receiver"):
                    crash.absent = True
                else:
                    polled.receiver = crash._function(polled.receiver, polled.owner)
            register(self, sock, events, polled)

        def crashing_start_task(self: Any, async_fn: Any, *args: Any) -> Any:
            if crash._is_here("start_task"):
                async_fn = crash._task(async_fn, self.ref)
            return start_task(self, async_fn, *args)

        def crashing_start_later(self: Any, async_fn: Any, *args: Any) -> Any:
            if crash._is_here("start_task"):
                async_fn = crash._task(async_fn, self._ref)
            return start_later(self, async_fn, *args)

        def crashing_detached(self: Any, async_fn: Any, *args: Any) -> None:
            start_detached(self, crash._task(async_fn, None) if crash._is_here("start_task") else async_fn, *args)

        def crashing_start_soon(self: Any, async_fn: Any, *args: Any, **names: Any) -> None:
            if crash._is_here("start_soon"):
                async_fn = crash._task(async_fn, None)
            start_soon(self, async_fn, *args, **names)

        def crashing_start(self: Any, async_fn: Any, *args: Any, **names: Any) -> Any:
            if crash._is_here("start"):
                async_fn = crash._task(async_fn, None)
            return start(self, async_fn, *args, **names)

        patch.setattr(Scheduler, "call_at", crashing_call_at)
        patch.setattr(Scheduler, "at_end", crashing_at_end)
        patch.setattr(Poller, "register", crashing_register)
        patch.setattr(Actor, "start_task", crashing_start_task)
        patch.setattr(Later, "start_task", crashing_start_later)
        patch.setattr(Supervisors, "start_task", crashing_detached)
        patch.setattr(trio.Nursery, "start_soon", crashing_start_soon)
        patch.setattr(trio.Nursery, "start", crashing_start)


class _Ending:
    def __init__(self, crash: Crash, task: Any) -> None:
        self._crash = crash
        self._task = task
        self.owner = task.owner

    def end_turn(self) -> None:
        self._crash._hit(self.owner)  # pyright: ignore[reportPrivateUsage]
        self._task.end_turn()


class _Polled:
    def __init__(self, crash: Crash, polled: Any) -> None:
        self._crash = crash
        self._polled = polled
        self.owner = polled.owner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._polled, name)

    def ready(self, events: int, limit: int) -> bytes | None:
        self._crash._hit(self.owner)  # pyright: ignore[reportPrivateUsage]
        return self._polled.ready(events, limit)
