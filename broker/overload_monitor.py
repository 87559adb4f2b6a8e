"""Measures memory, lag of the event loop and open files, compares them with their marks, and slows publishers down.

A resource has two marks: the defence begins above the high one and ends below the low one, so that it does not begin
and end all the time. While it lasts, publishers are read from for `READING` of the time. What they send meanwhile waits
in the buffers of the system, and TCP's flow control holds back those that send more. Clients that only subscribe are
not held: their acknowledgements free memory.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from trunkline.actors import Paced
from trunkline.broker.metrics import LimitKind
from trunkline.broker.overload import Overload, Resource
from trunkline.broker.process_usage import memory, memory_limit, open_files
from trunkline.broker.session import mail
from trunkline.config.units import Mark, parse_mark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from trunkline.broker.session.channel import Channel
    from trunkline.broker.session.occupant import Occupant
    from trunkline.broker.session.services import Services
    from trunkline.config.node_settings import OverloadSettings

#: The part of the time in which publishers are read from while a mark is exceeded.
READING: Final = 0.2
#: Sessions visited before other work gets its turn.
VISITED_AT_ONCE: Final = 500
#: The lag is the least of so many measurements: one long turn is for the watchdog, and a suspended process is not busy.
LAGS: Final = 3
#: The limit of the memory is looked for once in so many measurements: that takes more than all else that is measured.
LIMIT_HOLDS: Final = 60


class Usage(NamedTuple):
    """How much of a resource is in use, and how much there is; 0 if that is not known."""

    used: float
    available: float


class Usages:
    """Of this process, besides the lag."""

    def __init__(self) -> None:
        self._measured = 0
        self._memory_limit = 0

    def __call__(self) -> dict[Resource, Usage]:
        if not self._measured % LIMIT_HOLDS:
            self._memory_limit = memory_limit()
        self._measured += 1
        return {Resource.MEMORY: Usage(memory()[0], self._memory_limit), Resource.FILES: Usage(*open_files())}


class _Watermark:
    """The two marks of a resource."""

    __slots__ = ("_high", "_low", "_text")

    def __init__(self, resource: Resource, settings: OverloadSettings) -> None:
        high: str | float = getattr(settings, f"{resource.word}_high")
        self._high = _mark(high)
        self._low = _mark(getattr(settings, f"{resource.word}_low"))
        self._text = f"overload.{resource.word}_high = {high}"

    def update(self, usage: Usage, before: str) -> str:
        """What is exceeded, for the log; empty if nothing is. `before` is what was exceeded until now."""
        used, available = usage
        if not self._high.amount or used <= 0:  # there is no mark, or no reading
            return before if self._high.amount else ""
        mark = self._low if before else self._high
        bound = mark.amount * available if mark.is_share else mark.amount
        if not bound or used <= bound:
            return ""
        return before or self._text


def _mark(setting: str | float) -> Mark:
    return parse_mark(setting) if isinstance(setting, str) else Mark(setting, is_share=False)


class OverloadMonitor:
    def __init__(
        self,
        settings: OverloadSettings,
        interval: float,
        services: Services,
        sessions: Iterable[Occupant],
        read: Callable[[], Mapping[Resource, Usage]] | None = None,
    ) -> None:
        """Measure every `interval` seconds. `read` measures everything but the lag."""
        self._interval = interval
        self._services = services
        self._overload: Overload = services.overload
        self._sessions = sessions
        self._read = Usages() if read is None else read
        self._marks = {resource: _Watermark(resource, settings) for resource in Resource}
        self._lags = deque([0.0] * LAGS, maxlen=LAGS)

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            if self._overload.exceeded:
                await self._hold_publishers(self._interval * (1 - READING))
                await self._sleep(self._interval * READING)
            else:
                await self._sleep(self._interval)
            self.check()

    async def _sleep(self, seconds: float) -> None:
        until = trio.current_time() + seconds
        await trio.sleep_until(until)
        self._lags.append(max(0.0, trio.current_time() - until))

    def check(self) -> None:
        """Compare everything with its marks."""
        overload, alarms = self._overload, self._services.alarms
        overload.lag = min(self._lags)
        # without any lag there would be no reading
        readings = {**self._read(), Resource.LAG: Usage(max(overload.lag, 1e-9), 0)}
        for resource, mark in self._marks.items():
            before = overload.exceeded.get(resource, "")
            now = mark.update(readings[resource], before)
            if now and not before:
                overload.exceeded[resource] = now
                alarms.activate(resource.alarm, f"{_shown(resource, readings[resource])}: above {now}")
            elif before and not now:
                del overload.exceeded[resource]
                alarms.deactivate(resource.alarm)

    def stay_off(self) -> None:
        """End the defence, because nothing will measure any more whether it is needed."""
        for resource in self._overload.exceeded:
            self._services.alarms.deactivate(resource.alarm)
        self._overload.exceeded.clear()
        self._overload.lag = 0.0

    async def _hold_publishers(self, seconds: float) -> None:
        text = ", ".join(self._overload.exceeded.values())
        held: list[Channel] = []
        try:
            async for session in Paced(self._sessions, VISITED_AT_ONCE):
                channel = session.channel
                # the client has published since it came, or since the access rules were read again
                if channel is not None and channel.may_publish:
                    channel.cast(mail.Pause(self))
                    held.append(channel)
                    self._services.limit_report.acted(LimitKind.OVERLOAD_PUBLISHERS, channel.client.client_id, text)
            await self._sleep(seconds)
        finally:
            for channel in held:
                channel.cast(mail.Resume(self))


def _shown(resource: Resource, usage: Usage) -> str:
    if resource is Resource.LAG:
        return f"the event loop is {usage.used:.2g} s late"
    what, unit = ("memory", 1_048_576) if resource is Resource.MEMORY else ("open files", 1)
    name = " MiB" if unit > 1 else ""
    known = f" of {usage.available / unit:,.0f}{name}" if usage.available else ""
    return f"{what}: {usage.used / unit:,.0f}{name}{known}"
