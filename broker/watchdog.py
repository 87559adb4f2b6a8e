"""Reports the code that blocks the broker.

Everything runs in one thread, so that a handler, a hook's callback or a task that does not return holds up everybody.
Another thread detects this: it asks the event loop for an answer periodically, and if none comes, it inspects the
loop's stack. Messages on their way pay nothing for this.
"""

from __future__ import annotations

import logging
import sys
import threading
from itertools import pairwise
from math import inf
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import trio

from trunkline.actors import Ref
from trunkline.broker.alarms import BLOCKED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from trunkline.actors import Scheduler
    from trunkline.broker.alarms import Alarms
    from trunkline.broker.metrics import Metrics

_logger = logging.getLogger("trunkline.watchdog")

#: The number of checks within the time after which the loop counts as blocked. The thread counts checks rather than
#: seconds: a process that was suspended as a whole was not blocked.
LOOKS: Final = 4
#: Seconds between two records of the same culprit, and without a block until the alarm is over.
QUIET: Final = 60.0

#: Modules that call foreign code: the next frame on the stack is the called code.
_CALLERS: Final = (
    "trunkline.actors.",
    "trunkline.hooks.chain.",
    "trunkline.hooks.registration.",
    "trunkline.plugins.running.",
)


class Watchdog:
    def __init__(
        self,
        limit: float,
        scheduler: Scheduler,
        alarms: Alarms,
        metrics: Metrics,
        plugin_of: Callable[[object], str],
    ) -> None:
        """`limit` is in seconds. `plugin_of` gives the plugin that registered a callback at a hook, or an empty
        text."""
        self._pause = limit / LOOKS
        self._scheduler = scheduler
        self._alarms = alarms
        self._metrics = metrics
        self._plugin_of = plugin_of
        self._answered = True
        #: When each culprit was last named.
        self._named: dict[str, float] = {}
        #: The blocking code, and since when; empty while nothing blocks.
        self._culprit = ""
        self._since = 0.0
        self._quiet = scheduler.call_at(inf, alarms.deactivate, BLOCKED)

    async def run(self) -> None:
        """Watch until cancelled."""
        over = threading.Event()
        arguments = over, trio.lowlevel.current_trio_token(), threading.get_ident()
        threading.Thread(target=self._watch, args=arguments, name="trunkline watchdog", daemon=True).start()
        try:
            await trio.sleep_forever()
        finally:
            over.set()
            self._quiet.cancel()
            self._alarms.deactivate(BLOCKED)

    # In the thread

    def _watch(self, over: threading.Event, token: trio.lowlevel.TrioToken, loop: int) -> None:
        looks = 0
        while not over.wait(self._pause):
            if self._answered:
                looks = 0
                self._answered = False
                try:
                    token.run_sync_soon(self._answer)
                except trio.RunFinishedError:
                    return
                continue
            looks += 1
            if looks == LOOKS:
                frame = sys._current_frames().get(loop)  # pyright: ignore[reportPrivateUsage]
                if frame is not None and frame.f_code.co_name != "get_events":  # else it waits for the system
                    self._name(*self._described(frame))

    def _described(self, frame: FrameType) -> tuple[str, str]:
        try:
            return describe(frame, self._plugin_of)
        except Exception as error:  # noqa: BLE001 - it inspects foreign objects, and the loop may go on meanwhile
            return "something", f"which cannot be determined: {type(error).__name__}"

    def _name(self, culprit: str, line: str) -> None:
        now = monotonic()
        self._since = now - self._pause * LOOKS
        self._culprit = f"{culprit} ({line})"
        if now >= self._named.get(culprit, -QUIET) + QUIET:
            self._named = {name: when for name, when in self._named.items() if now < when + QUIET}
            self._named[culprit] = now
            _logger.warning("nothing else has run for %.2g s: %s", self._pause * LOOKS, self._culprit)

    # In the loop

    def _answer(self) -> None:
        if self._culprit:
            lasted, culprit, self._culprit = monotonic() - self._since, self._culprit, ""
            self._metrics.loop_blocked += 1
            self._alarms.activate(BLOCKED, f"for {lasted:.2g} s nothing else ran: {culprit}")
            self._quiet.restart(QUIET)
        self._answered = True


def describe(frame: FrameType, plugin_of: Callable[[object], str]) -> tuple[str, str]:
    """The blocking code: the actor, the called function and its plugin; and the line."""
    actor = plugin = ""
    called: FrameType | None = None
    for inner, outer in pairwise(_outwards(frame)):
        if _calls(outer):
            if not _calls(inner):
                called = called or inner
                plugin = plugin or plugin_of(outer.f_locals.get("callback"))
            actor = actor or _actor(outer.f_locals)
        elif outer.f_code.co_name == "unrolled_run":  # trio's loop: the frames behind it are its caller's
            called = called or inner
            break
    called = called or frame
    who = f"{actor}, " if actor else ""
    whose = f" of the plugin {plugin}" if plugin else ""
    line = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_qualname}"
    return f"{who}{_module(called)}{called.f_code.co_qualname}{whose}", line


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _module(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__')}."


def _calls(frame: FrameType) -> bool:
    return _module(frame).startswith(_CALLERS)


def _actor(names: dict[str, Any]) -> str:
    """The actor whose turn it is, from the local variables of the runtime's frame."""
    for value in names.values():
        for ref in (value, getattr(value, "owner", None)):
            if isinstance(ref, Ref):
                return ref.name
    return ""
