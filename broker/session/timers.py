"""While no client is connected: the will waits for its delay, and the session for its expiry."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from trunkline.broker.session import will as wills

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.actors import Later
    from trunkline.broker.session.state import Session
    from trunkline.mqtt.packets import Will


@dataclass(slots=True, eq=False)
class AwayTimers:
    session: Session
    later: Later
    publish: Callable[[Will], None]
    _timers: list[Callable[[], None]] = field(default_factory=list["Callable[[], None]"])

    def start(self, now: float, expire: Callable[[], None]) -> None:
        """The client left at `session.left_at`, which may be a while ago: publish the will after its delay, and
        `expire` the session in time."""
        session = self.session
        expiry, ago = session.expiry_interval, now - session.left_at
        if session.will is not None:
            delay = min(wills.delay(session.will), expiry) - ago
            if delay > 0:
                self._after(delay, self.publish_will)
            else:
                self.publish_will()
        if 0 < expiry < inf:  # [MQTT-4.1.0-2]
            self._after(max(0.0, expiry - ago), expire)

    def publish_will(self) -> None:
        """Now, if it was not published yet."""
        will, self.session.will = self.session.will, None
        if will is not None:  # [MQTT-3.1.2-8]
            self.publish(will)

    def stop(self) -> None:
        """The client is back, or the session has ended.  # [MQTT-3.1.3-9]"""
        for stop in self._timers:
            stop()
        self._timers.clear()

    def _after(self, delay: float, action: Callable[[], None]) -> None:
        self._timers.append(self.later.after(delay, partial(self._unless_back, self.session.left_at, action)))

    def _unless_back(self, left_at: float, action: Callable[[], None]) -> None:
        """What a timer has put into the mailbox cannot be stopped any more."""
        if self.session.left_at == left_at:
            action()
