"""Checks the subscriptions of a session again, because a right may have been revoked. This happens when access
decisions may have changed (rules were read again, a plugin started or stopped), when a client has re-authenticated, and
when a client resumes the session, which may be another user by now. In that last case no message is sent before the
decisions are made.

A subscription that is no longer allowed is removed, together with what waits because of it. If an access service cannot
answer now, the user that subscribed keeps its subscriptions. Another user keeps none of them.
"""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING

from trunkline.broker.routes import FILTERS_AT_ONCE
from trunkline.broker.session.access import Question
from trunkline.broker.session.outbound import PauseReason
from trunkline.broker.session.revoked import Revoked
from trunkline.mqtt.topics import plain_filter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import trio

    from trunkline.broker.session.context import SessionContext
    from trunkline.broker.session.outbound import Outbound
    from trunkline.router import Options

_logger = logging.getLogger("trunkline.session")


@dataclass(slots=True, eq=False)
class SubscriptionCheck:
    """The check of one session."""

    context: SessionContext
    outbound: Outbound
    unsubscribe: Callable[[Sequence[str]], None]
    #: The number of the newest check: an older one stops.
    _round: int = 0
    #: The task that waits for access services.
    _asking: trio.CancelScope | None = None
    #: The user that the subscriptions were last allowed to.
    _username: str | None = field(init=False)

    def __post_init__(self) -> None:
        self._username = self.context.session.client.username

    def resume(self) -> None:
        """A client has resumed the session."""
        channel = self.outbound.channel
        assert channel is not None
        if self.outbound.empty:
            self.context.session.revoked = None
        channel.revoked = self.context.session.revoked
        self.outbound.pause(PauseReason.ACCESS)
        self._check(background=False)

    def forget_decisions(self, subscriptions: bool = True) -> None:
        """Access decisions may have changed."""
        if self.outbound.channel is not None:
            self.outbound.channel.forget_decisions()
        if subscriptions and (self.outbound.channel is not None or not self.context.services.access.waits):
            self._check(background=True)
        # otherwise the check happens when a client resumes the session

    def stop(self) -> None:
        """End a running check."""
        self._round += 1
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None

    def _check(self, *, background: bool) -> None:
        self.stop()
        access = self.context.services.access
        silenced = self.context.services.config.mqtt.subscribe_denied == "grant" and not access.waits
        if silenced or self.context.session.client.superuser or not self.context.session.subscriptions:
            self._finish()
        elif access.waits:
            self._asking = self.context.start_task(self._ask, self._round, background)
        else:
            self.context.in_slices(self._slices(self._round, self._decide()))

    def _slices(self, round: int, steps: Iterator[None]) -> Iterator[None]:
        """A number of steps in each turn, until a newer check begins or the client disconnects."""
        for count, _ in enumerate(steps, 1):
            if count % FILTERS_AT_ONCE == 0:
                yield
                if round != self._round:
                    return

    def _decide(self) -> Iterator[None]:
        denied: dict[str, Options] = {}
        for filter, options in self._asked_about():
            if self._lost(self.context.services.access.still(self._question(filter, options))):
                denied[filter] = options
            yield
        yield from self._take_away(denied)

    async def _ask(self, round: int, background: bool) -> None:
        """`_decide`, where an access service has to be waited for. In the background only a few sessions ask at a
        time."""
        access = self.context.services.access
        denied: dict[str, Options] = {}
        patient = True
        for filter, options in self._asked_about():
            async with access.few if background else nullcontext():
                allowed = await access.ask_still(self._question(filter, options), patient=patient)
            # a service that gave no answer is not waited for again: a thousand subscriptions would wait a thousand
            # timeouts
            patient = patient and allowed is not None
            if self._lost(allowed):
                denied[filter] = options
        self.context.soon(lambda: self._removed(round, denied))

    def _removed(self, round: int, denied: dict[str, Options]) -> None:
        if round == self._round:
            self.context.in_slices(self._slices(round, self._take_away(denied)))

    def _asked_about(self) -> list[tuple[str, Options]]:
        unasked = self.context.session.unasked
        return [item for item in self.context.session.subscriptions.items() if item[0] not in unasked]

    def _question(self, filter: str, options: Options) -> Question:
        return Question(self.context.session.client, "subscribe", plain_filter(filter), options.qos)

    def _lost(self, allowed: bool | None) -> bool:
        return self.context.session.client.username != self._username if allowed is None else not allowed

    def _take_away(self, denied: dict[str, Options]) -> Iterator[None]:
        session, known = self.context.session, self.context.session.subscriptions
        # except for subscriptions that the client has ended or renewed meanwhile
        gone = {filter for filter, options in denied.items() if known.get(filter) is options}
        if gone:
            count = len(known)
            yield from self._revoke(gone)
            filters = list(gone)
            for first in range(0, len(gone), FILTERS_AT_ONCE):
                some = filters[first : first + FILTERS_AT_ONCE]
                self.unsubscribe(some)
                yield from repeat(None, len(some))
            _logger.info(
                "%d of %d subscriptions are no longer allowed and were removed",
                len(gone),
                count,
                extra={"client": session.client_id},
            )
        self._finish()

    def _revoke(self, gone: set[str]) -> Iterator[None]:
        """Drop messages that came only by these subscriptions."""
        session, revoked = self.context.session, Revoked()
        before = list(session.subscriptions)
        for filter in before:
            if filter in gone:
                revoked.deny(filter)
            else:
                revoked.keep(filter)
            yield
        for filter in list(session.revoked or ()):
            revoked.deny(filter)
            yield
        for filter in session.subscriptions.keys() - before:
            revoked.keep(filter)
        for filter in before:  # the client may have ended some of them in a turn in between
            if filter not in gone and filter not in session.subscriptions:
                revoked.forget(filter)
        session.revoked = revoked
        channel = self.outbound.channel
        if channel is not None:
            channel.revoked = revoked
            channel.may_read.clear()
        self.outbound.unsubscribed(gone)

    def _finish(self) -> None:
        self._username = self.context.session.client.username
        self.outbound.resume(PauseReason.ACCESS)
