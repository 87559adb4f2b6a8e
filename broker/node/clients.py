"""Clients with their sessions and subscriptions, by client id: what others than the clients themselves see of them and
do to them."""

from __future__ import annotations

from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from trio.lowlevel import checkpoint

from trunkline.actors import Paced
from trunkline.broker.session import mail
from trunkline.broker.session.access import Question
from trunkline.mqtt.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trunkline.broker.session.directory import Directory
    from trunkline.broker.session.occupant import Occupant
    from trunkline.broker.session.services import Services
    from trunkline.broker.views import SubscriptionRow
    from trunkline.hooks.client import ClientInfo
    from trunkline.hooks.points import Action
    from trunkline.mqtt.packets import SubscriptionRequest
    from trunkline.plugins.context import Client
    from trunkline.router import Options

#: Sessions that are notified before other work gets its turn.
NOTIFIED_AT_ONCE: Final = 100
#: Sessions that are looked at before other work gets its turn.
SEEN_AT_ONCE: Final = 500


class Clients:
    """Those that have a session, connected or not. Views are made when they are asked for, and the code that makes them
    is imported then."""

    def __init__(self, services: Services, sessions: Directory) -> None:
        self._services = services
        self._sessions = sessions
        #: Sessions that have not been notified yet that access decisions have changed.
        self._to_notify: list[Occupant] = []

    # Views

    def __contains__(self, client_id: str) -> bool:
        return self._sessions.get(client_id) is not None

    def get(self, client_id: str) -> Client | None:
        from trunkline.broker.views import client_row

        found = self._sessions.get(client_id)
        return None if found is None else client_row(found)

    def page(self, after: str = "", limit: int = SEEN_AT_ONCE) -> list[Client]:
        """The next ones behind the client id `after`, in order of client id."""
        from trunkline.broker.views import client_row

        return [client_row(each) for each in self._sessions.page(after, limit)]

    async def matching(
        self, prefix: str, username: str | None, connected: bool | None, after: str, limit: int
    ) -> tuple[list[Client], str | None]:
        """As `page`: those whose client id begins with the prefix, who have this user name, and are connected or not;
        and where the next page begins, None at the end."""
        from trunkline.broker.views import client_row

        rows: list[Client] = []
        if prefix > after:  # a page begins behind its cursor, and the prefix itself may be a client id
            found = self._sessions.get(prefix)
            actors = ([found] if found is not None else []) + self._sessions.page(prefix, SEEN_AT_ONCE - 1)
        else:
            actors = self._sessions.page(after, SEEN_AT_ONCE)
        while actors:
            for actor in actors:
                after = actor.session.client_id
                if not after.startswith(prefix):
                    return rows, None
                is_wanted = connected is None or connected is (actor.channel is not None)
                if is_wanted and username in (None, actor.client.username):
                    rows.append(client_row(actor))
                    if len(rows) == limit:
                        return rows, after
            await checkpoint()
            actors = self._sessions.page(after, SEEN_AT_ONCE)
        return rows, None

    @property
    def lasting(self) -> int:
        """How many have a session that outlives its connection."""
        return sum(each.session.expiry_interval > 0 for each in self._sessions)

    def subscriptions(self, client_id: str) -> Mapping[str, Options]:
        """By topic filter. Empty if there is no session."""
        found = self._sessions.get(client_id)
        return MappingProxyType({} if found is None else found.session.subscriptions)

    async def subscription_page(
        self, client_id: str | None, filter: str | None, after: tuple[str, str], limit: int
    ) -> tuple[list[SubscriptionRow], tuple[str, str] | None]:
        """The next subscriptions, of this client or of all, behind the client id and the topic filter `after`, in this
        order; with this very filter, if there is one. And where the next page begins, None at the end."""
        from trunkline.broker.views import subscriptions_of

        last, last_filter = after
        rows: list[SubscriptionRow] = []
        known = self._sessions.get(last if client_id is None else client_id)
        actors = [] if known is None else [known]  # the client of the cursor may have more
        while True:
            for actor in actors:
                own = actor.session.client_id
                rows += subscriptions_of(actor, filter, last_filter if own == last else "", limit - len(rows))
                if len(rows) == limit:
                    return rows, (rows[-1].client_id, rows[-1].filter)
                last, last_filter = own, ""
            if client_id is not None:
                return rows, None
            await checkpoint()
            actors = self._sessions.page(last, SEEN_AT_ONCE)
            if not actors:
                return rows, None

    def topic_of(self, client_id: str, alias: int, *, sent: bool) -> str:
        """What a topic alias of this connection stands for, `sent` by the broker or by the client; empty if nothing."""
        found = self._sessions.get(client_id)
        if found is None or found.channel is None:
            return ""
        return found.channel.aliases_out.topic(alias) if sent else found.channel.aliases_in[alias]

    # What is done to them

    def kick(
        self,
        client_id: str,
        reason: Reason = Reason.ADMINISTRATIVE_ACTION,
        text: str = "disconnected by an operator",
    ) -> bool:
        """End the connection; the session stays until it expires. False: there is no connection."""
        found = self._sessions.get(client_id)
        if found is None or found.channel is None:
            return False
        found.ref.cast(mail.Kick(reason, text))
        return True

    def end(self, client_id: str) -> bool:
        """Discard the session, and close the connection. False: there is none."""
        found = self._sessions.get(client_id)
        if found is None:
            return False
        found.ref.cast(mail.End(Reason.ADMINISTRATIVE_ACTION, "kicked"))
        return True

    def subscribe(self, client_id: str, requests: list[SubscriptionRequest]) -> bool:
        """On behalf of a connected client, without asking it or the access rules. False: it is not connected, or its
        protocol has no place for that."""
        found = self._sessions.get(client_id)
        if found is None or found.channel is None or not found.speaks_mqtt:
            return False
        found.ref.cast(mail.SubscribeFor(requests))
        return True

    def unsubscribe(self, client_id: str, filters: list[str]) -> bool:
        """On behalf of a client, which may be away. False: it has no session."""
        found = self._sessions.get(client_id)
        if found is None:
            return False
        found.ref.cast(mail.UnsubscribeFor(filters))
        return True

    @property
    def logged(self) -> list[str]:
        """Client ids whose packets are in the log."""
        return sorted(self._services.logged_clients)

    def log_packets(self, client_id: str, on: bool) -> None:
        """Start or stop logging a client's packets, on this connection and on later ones."""
        logged, found = self._services.logged_clients, self._sessions.get(client_id)
        if on:
            logged.add(client_id)
        else:
            logged.discard(client_id)
        if found is not None and found.channel is not None:
            found.channel.cast(mail.LogPackets(found.channel.client, on))

    # Access

    def may(self, client: ClientInfo, action: Action, topic: str, qos: int, retain: bool) -> bool:
        """The decision of access rules and hooks."""
        return bool(self._services.access.decide(Question(client, action, topic, qos, retain)))

    def forget_decisions(self, client_id: str | None = None, *, subscriptions: bool = True) -> None:
        """Of this client, or of all: they are made again, for what is subscribed to as well. For one client,
        `subscriptions=False` leaves that as it is."""
        if client_id is None:
            walking = bool(self._to_notify)
            self._to_notify = list(self._sessions)
            for session in islice(self._taken_to_notify(), NOTIFIED_AT_ONCE):
                session.ref.cast(mail.RulesChanged())
            if self._to_notify and not walking:
                self._services.start_task(self._notify_the_rest)
        elif (actor := self._sessions.get(client_id)) is not None:
            actor.ref.cast(mail.RulesChanged(subscriptions))

    async def _notify_the_rest(self) -> None:
        await checkpoint()  # the first ones check all their subscriptions
        async for actor in Paced(self._taken_to_notify(), NOTIFIED_AT_ONCE):
            actor.ref.cast(mail.RulesChanged())

    def _taken_to_notify(self) -> Iterator[Occupant]:
        while self._to_notify:
            yield self._to_notify.pop()
