"""What a session has subscribed to is asked about again: a right that was given may have been taken away.

That happens when access is decided otherwise than before (rules were read again, a plugin came or went), when a client
has authenticated again, and when a client resumes the session, which may be another user's by now. Then nothing leaves
until the answers are there.

A subscription that is no longer allowed is removed, together with what waits because of it. Where whoever decides cannot
say now, the client keeps what it has; another user than the one that subscribed keeps nothing.
"""

from __future__ import annotations

import logging
from contextlib import nullcontext
from itertools import repeat
from typing import TYPE_CHECKING

from trunkline.broker.routes import FILTERS_AT_ONCE
from trunkline.broker.session.revoked import Revoked
from trunkline.mqtt.topics import plain_filter

if TYPE_CHECKING:
    from collections.abc import Iterator

    import trio

    from trunkline.actors import Later
    from trunkline.broker.session.outbound import Outbound
    from trunkline.broker.session.services import Services
    from trunkline.broker.session.state import Session
    from trunkline.broker.session.subscribing import Subscribing
    from trunkline.router import Options

_logger = logging.getLogger("trunkline.session")


class SubscriptionCheck:
    """Of one session."""

    __slots__ = ("_asking", "_later", "_outbound", "_round", "_services", "_session", "_subscribing", "_username")

    def __init__(
        self, session: Session, services: Services, outbound: Outbound, subscribing: Subscribing, later: Later
    ) -> None:
        self._session = session
        self._services = services
        self._outbound = outbound
        self._subscribing = subscribing
        self._later = later
        #: The user that the subscriptions were last allowed to.
        self._username = session.client.username
        #: Which check is the newest: an older one ends where it stands.
        self._round = 0
        #: The task that asks services which take their time.
        self._asking: trio.CancelScope | None = None

    def resume(self) -> None:
        """A client took up the session."""
        channel = self._outbound.channel
        assert channel is not None
        if self._outbound.empty:
            self._session.revoked = None
        channel.revoked = self._session.revoked
        self._outbound.held = True
        self._check(background=False)

    def forget_decisions(self, *, subscriptions: bool = True) -> None:
        """Access is decided otherwise than before."""
        if self._outbound.channel is not None:
            self._outbound.channel.forget_decisions()
        if subscriptions:
            self._ask_again()

    def _ask_again(self) -> None:
        if self._outbound.channel is not None or not self._services.access.waits:
            self._check(background=True)
        # else it is asked when a client comes back

    def stop(self) -> None:
        """The client is gone."""
        self._round += 1
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None

    def _check(self, *, background: bool) -> None:
        self.stop()
        access = self._services.access
        silenced = self._services.config.mqtt.subscribe_denied == "grant" and not access.waits
        if silenced or self._session.client.superuser or not self._session.subscriptions:
            self._over()
        elif access.waits:
            self._asking = self._later.start_task(self._ask, self._round, background)
        else:
            self._later.in_slices(self._slices(self._round, self._decide()))

    def _slices(self, round: int, steps: Iterator[None]) -> Iterator[None]:
        """So many steps in each turn, until a newer check begins or the client goes."""
        for count, _ in enumerate(steps, 1):
            if count % FILTERS_AT_ONCE == 0:
                yield
                if round != self._round:
                    return

    def _decide(self) -> Iterator[None]:
        denied: dict[str, Options] = {}
        for filter, options in self._asked_about():
            if self._lost(self._services.access.still(self._session.client, plain_filter(filter), options.qos)):
                denied[filter] = options
            yield
        yield from self._take_away(denied)

    async def _ask(self, round: int, background: bool) -> None:
        """`_decide`, where somebody has to be waited for. In the background only a few ask at the same time."""
        access = self._services.access
        denied: dict[str, Options] = {}
        patient = True
        for filter, options in self._asked_about():
            async with access.few if background else nullcontext():
                allowed = await access.ask_still(
                    self._session.client, plain_filter(filter), options.qos, patient=patient
                )
            # who could not say is not waited for once more: a thousand subscriptions would be held for a thousand timeouts
            patient = patient and allowed is not None
            if self._lost(allowed):
                denied[filter] = options
        self._later.soon(lambda: self._removed(round, denied))

    def _removed(self, round: int, denied: dict[str, Options]) -> None:
        if round == self._round:
            self._later.in_slices(self._slices(round, self._take_away(denied)))

    def _asked_about(self) -> list[tuple[str, Options]]:
        unasked = self._session.unasked
        return [item for item in self._session.subscriptions.items() if item[0] not in unasked]

    def _lost(self, allowed: bool | None) -> bool:
        return self._session.client.username != self._username if allowed is None else not allowed

    def _take_away(self, denied: dict[str, Options]) -> Iterator[None]:
        session, known = self._session, self._session.subscriptions
        # not what the client has ended or subscribed to anew meanwhile
        gone = {filter for filter, options in denied.items() if known.get(filter) is options}
        if gone:
            count = len(known)
            yield from self._revoke(gone)
            filters = list(gone)
            for first in range(0, len(gone), FILTERS_AT_ONCE):
                some = filters[first : first + FILTERS_AT_ONCE]
                self._subscribing.unsubscribe_for(some, self._session.client, self._outbound.channel)
                yield from repeat(None, len(some))
            _logger.info(
                "%d of %d subscriptions are no longer allowed and were removed",
                len(gone),
                count,
                extra={"client": session.client_id},
            )
        self._over()

    def _revoke(self, gone: set[str]) -> Iterator[None]:
        """From now on nothing is delivered that came by these subscriptions alone."""
        session, revoked = self._session, Revoked()
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
        for filter in before:  # what the client has ended in a turn between
            if filter not in gone and filter not in session.subscriptions:
                revoked.forget(filter)
        session.revoked = revoked
        channel = self._outbound.channel
        if channel is not None:
            channel.revoked = revoked
            channel.may_read.clear()
        self._outbound.end_replays(gone)

    def _over(self) -> None:
        self._username = self._session.client.username
        if self._outbound.held:
            self._outbound.held = False
            self._outbound.fill()
