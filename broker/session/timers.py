"""While nobody is connected: a will waits for its delay, and the session for its expiry."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING

from trunkline.broker.session import will as wills

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.mqtt.packets import Will


class AwayTimers:
    __slots__ = ("_after", "_expire", "_period", "_publish", "_timers", "will")

    def __init__(
        self,
        after: Callable[[float, Callable[[], None]], Callable[[], None]],
        publish: Callable[[Will], None],
        expire: Callable[[], None],
    ) -> None:
        """`after(delay, action)` starts a timer of the session and returns what stops it."""
        self._after = after
        self._publish = publish
        self._expire = expire
        #: What waits for its delay.
        self.will: Will | None = None
        self._timers: list[Callable[[], None]] = []
        #: Tells a timer of this absence from one of an earlier, whose message may lie in the mailbox already.
        self._period = 0

    def begin(self, will: Will | None, expiry: float, gone: float = 0.0) -> None:
        """The client is gone since `gone` seconds, and the session stays for `expiry` seconds from then on."""
        self.will = will
        if will is not None:
            delay = min(wills.delay(will), expiry) - gone
            if delay > 0:
                self._timers.append(self._after(delay, partial(self._in_period, self._period, self.publish_will)))
            else:
                self.publish_will()
        if 0 < expiry < inf:  # [MQTT-4.1.0-2]
            self._timers.append(
                self._after(max(0.0, expiry - gone), partial(self._in_period, self._period, self._expire))
            )

    def publish_will(self) -> None:
        """Now, if it still waits."""
        will, self.will = self.will, None
        if will is not None:  # [MQTT-3.1.2-8]
            self._publish(will)

    def over(self) -> None:
        """The client is back: nothing of this happens any more.  # [MQTT-3.1.3-9]"""
        self.will = None
        self._period += 1
        for stop in self._timers:
            stop()
        self._timers.clear()

    def _in_period(self, period: int, action: Callable[[], None]) -> None:
        if period == self._period:
            action()
