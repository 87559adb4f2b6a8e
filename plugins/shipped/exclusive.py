"""exclusive: one session at a time may subscribe to `$exclusive/FILTER`; other sessions are refused until it ends that
subscription.

As in EMQX the text of the filter counts: `$exclusive/t/+` and `$exclusive/t/1` are two, and plain subscriptions to the
same filter are free to all. In a node of several workers, it is one session of all workers.
"""

from dataclasses import replace
from heapq import nsmallest
from typing import Final

from trunkline.config.units import Duration, Whole
from trunkline.hooks import ClientInfo, Deny, Withhold
from trunkline.hooks.priorities import EXCLUSIVE
from trunkline.mqtt.packets import SubscriptionRequest
from trunkline.mqtt.properties import Properties
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.topics import SHARE_PREFIX, parse_shared
from trunkline.plugins import Context, Settings, hook, setting
from trunkline.plugins.shipped.exclusive_claims import TAKEN, UNKNOWN, FilterClaims
from trunkline.plugins.store import PluginStoreFull

PREFIX: Final = "$exclusive/"
#: Seconds between two searches for claims that did not become subscriptions.
SWEEP_EVERY: Final = 60.0


class ExclusiveSettings(Settings):
    """Subscriptions to `$exclusive/FILTER`, which only one client can have."""

    max_subscriptions: Whole = setting(
        100_000, "Exclusive subscriptions at the same time. 0 means no limit.", "subscriptions", ge=0
    )
    claim: Duration = setting(
        10.0,
        "How long a filter is reserved for a client while async hooks or access rules decide about its SUBSCRIBE.",
        "seconds",
    )


class Exclusive:
    def __init__(self, context: Context[ExclusiveSettings]) -> None:
        self._context = context
        #: The owner of each filter, without the prefix, and the time until which a mere claim counts. The session shows
        #: whether the client has really subscribed: no hook reports a SUBSCRIBE that was refused later.
        if not context.replaces:
            context.kept["owners"] = {filter: (owner, 0.0) for filter, owner in context.store.items()}
        self._owners: dict[str, tuple[str, float]] = context.kept["owners"]
        self._filters_of: dict[str, set[str]] = {}
        for filter, (client_id, _) in self._owners.items():
            self._filters_of.setdefault(client_id, set()).add(filter)
        self._swept_at = context.now
        self._refused = context.counter("refused", "Exclusive subscriptions that were refused.")
        context.gauge("held", "Filters with an exclusive subscription.", lambda: len(self._owners))
        context.command("list", self.rows)
        self._sweep()  # drop subscriptions that ended while the plugin did not run
        self._claims = FilterClaims(context.workers, self._is_held, self._claim)
        subscribe = self.subscribe_among_workers if context.workers.numbers else self.subscribe
        context.hooks.add("client.subscribe", subscribe, priority=EXCLUSIVE, filter=_concerns)

    # Requests of clients

    def subscribe(
        self, client: ClientInfo, request: SubscriptionRequest, properties: Properties
    ) -> SubscriptionRequest | Deny:
        filter = self._read(request)
        if isinstance(filter, Deny):
            return filter
        return self._claim(filter, client.client_id) or replace(request, filter=filter)

    async def subscribe_among_workers(
        self, client: ClientInfo, request: SubscriptionRequest, properties: Properties
    ) -> SubscriptionRequest | Deny:
        filter = self._read(request)
        if isinstance(filter, Deny):
            return filter
        if self._is_held(filter):
            denied = self._claim(filter, client.client_id)
        else:
            denied = await self._claims.claim(filter, client.client_id)
            if denied in (TAKEN, UNKNOWN):
                self._refused.add()
        return denied or replace(request, filter=filter)

    def _read(self, request: SubscriptionRequest) -> str | Deny:
        """The filter behind the prefix."""
        if not request.filter.startswith(PREFIX):
            return self._refuse(Reason.TOPIC_FILTER_INVALID, "a shared subscription is not exclusive")
        filter = request.filter[len(PREFIX) :]
        if not filter or filter.startswith((PREFIX, SHARE_PREFIX)):
            return self._refuse(Reason.TOPIC_FILTER_INVALID, f"{PREFIX} must be followed by a plain topic filter")
        return filter

    def _claim(self, filter: str, client_id: str) -> Deny | None:
        """For a client of this worker."""
        before, claimed_until = self._owners.get(filter, ("", 0.0))
        if before != client_id:  # a repeated request does not extend the claim
            claimed_until = self._context.now + self._context.settings.claim
        if self._owner(filter) not in (None, client_id):
            return self._refuse(TAKEN.reason, TAKEN.text)
        if not self._has_room(filter):
            return self._refuse(Reason.QUOTA_EXCEEDED, "the limit of exclusive subscriptions is reached")
        try:
            self._context.store.put(filter, client_id)
        except PluginStoreFull as error:
            return self._refuse(Reason.QUOTA_EXCEEDED, str(error))
        self._owners[filter] = (client_id, claimed_until)
        self._filters_of.setdefault(client_id, set()).add(filter)
        return None

    @hook("client.unsubscribe", priority=EXCLUSIVE)
    def unsubscribe(self, client: ClientInfo, filter: str, properties: Properties) -> str | Withhold | None:
        if not filter.startswith(PREFIX):
            return None
        if self._owner(filter[len(PREFIX) :]) != client.client_id:
            return Withhold(Reason.NO_SUBSCRIPTION_EXISTED)
        return filter[len(PREFIX) :]

    def _refuse(self, reason: Reason, text: str) -> Deny:
        self._refused.add()
        return Deny(reason, text)

    # Outcomes

    @hook("session.subscribed")
    def subscribed(self, client: ClientInfo, request: SubscriptionRequest) -> None:
        if request.filter in self._filters_of.get(client.client_id, ()):
            self._owners[request.filter] = (client.client_id, 0.0)

    @hook("session.unsubscribed")
    def unsubscribed(self, client: ClientInfo, filter: str) -> None:
        if filter in self._filters_of.get(client.client_id, ()):
            self._forget(filter)

    @hook("session.discarded")
    @hook("session.terminated")
    def ended(self, client: ClientInfo, *_: object) -> None:
        """A new session of the same client keeps its subscription."""
        for filter in list(self._filters_of.get(client.client_id, ())):
            self._owner(filter)

    def _owner(self, filter: str) -> str | None:
        """The current owner."""
        if filter not in self._owners:
            return None
        client_id, claimed_until = self._owners[filter]
        if filter in self._context.subscriptions(client_id) or claimed_until > self._context.now:
            return client_id
        self._forget(filter)
        return None

    def _is_held(self, filter: str) -> bool:
        """By a client of this worker."""
        return self._owner(filter) is not None

    def _forget(self, filter: str) -> None:
        client_id, _ = self._owners.pop(filter)
        self._context.store.delete(filter)
        filters = self._filters_of[client_id]
        filters.discard(filter)
        if not filters:
            del self._filters_of[client_id]

    def _has_room(self, filter: str) -> bool:
        most = self._context.settings.max_subscriptions
        if most and filter not in self._owners and len(self._owners) >= most:
            if self._context.now >= self._swept_at + SWEEP_EVERY:
                self._sweep()
            return len(self._owners) < most
        return True

    def _sweep(self) -> None:
        """Drop claims that did not become subscriptions."""
        self._swept_at = self._context.now
        for filter in list(self._owners):
            self._owner(filter)

    # Commands

    def rows(self, after: str = "", limit: int = 100) -> list[dict[str, object]]:
        """The exclusive subscriptions and their clients, in order of filters."""
        following = nsmallest(limit, (filter for filter in self._owners if filter > after))
        return [{"filter": filter, "client": self._owners[filter][0]} for filter in following]


def _concerns(client: ClientInfo, request: SubscriptionRequest, properties: Properties) -> bool:
    shared = parse_shared(request.filter)
    return (request.filter if shared is None else shared[1]).startswith(PREFIX)
