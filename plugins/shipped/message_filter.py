"""message-filter: subscriptions with conditions on user properties, `FILTER?key>5&room=kitchen`, as in EMQX 6.2.

The session has the plain filter; the conditions are checked when a message is about to be delivered. While no client
has conditions, deliveries are not checked.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from operator import ge, gt, le, lt
from typing import Final, TypeAlias

from trunkline.config.units import Whole
from trunkline.hooks import DROP, ClientInfo, Deny, Withhold
from trunkline.hooks.priorities import TOPIC_SYNTAX
from trunkline.mqtt.message import Message
from trunkline.mqtt.packets import SubscriptionRequest
from trunkline.mqtt.properties import Properties
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.topics import matches, parse_shared
from trunkline.mqtt.versions import Version
from trunkline.plugins import Context, Settings, hook, setting
from trunkline.plugins.store import PluginStoreFull

#: Topics whose conditions are cached, for each client with conditions.
MAX_REMEMBERED: Final = 1000
#: Longer topics are looked up each time.
MAX_REMEMBERED_TOPIC: Final = 256
#: The most conditions of one subscription that the settings can allow.
MAX_CONDITIONS: Final = 1000
_CONDITION: Final = re.compile(r"([^=<>!]+)(!=|>=|<=|=|>|<)([^=<>]+)")
_NUMBER: Final = re.compile(r"[+-]?([0-9]+)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?", re.ASCII)
_ORDER: Final[dict[str, Callable[[float, float], bool]]] = {">": gt, ">=": ge, "<": lt, "<=": le}

UserProperties: TypeAlias = Iterable[tuple[str, str]]
#: One prepared condition: tests the values of a key.
Condition: TypeAlias = tuple[str, Callable[[list[str]], bool]]
#: Conditions that must all be fulfilled. An empty tuple matches every message.
Conditions: TypeAlias = tuple[Condition, ...]


def parse(text: str, most: int = MAX_CONDITIONS) -> Conditions:
    """Parses the text behind the question mark.

    Raises:
        ValueError: the text is invalid; the message is for the client.
    """
    parts = text.split("&")
    if len(parts) > most:
        raise ValueError(f"more than {most} conditions")
    return tuple(map(_condition, parts))


def _condition(text: str) -> Condition:
    found = _CONDITION.fullmatch(text)
    key, word, wanted = (part.strip() for part in found.groups()) if found else ("", "", "")
    if not key or not wanted:
        raise ValueError(f"{text[:50]!r} is not a condition such as key=value or key>5")
    if word == "=":
        return key, lambda values: wanted in values
    if word == "!=":
        return key, lambda values: wanted not in values
    compare, number = _ORDER[word], _number(wanted)
    if number is None:
        raise ValueError(f"{wanted[:50]!r} is not a number")
    return key, lambda values: any(other is not None and compare(other, number) for other in map(_number, values))


def _number(text: str) -> float | None:
    """Whole numbers stay whole, so that large ones are compared exactly."""
    found = _NUMBER.fullmatch(text.strip()) if len(text) <= 50 else None
    if found is None:
        return None
    return float(text) if found[2] or found[3] else int(text)


def holds(conditions: Conditions, properties: UserProperties) -> bool:
    """Whether a message with these user properties fulfils all conditions. A condition on a missing key is not
    fulfilled."""
    values: dict[str, list[str]] = {}
    for key, value in properties:
        values.setdefault(key, []).append(value)
    return all(key in values and fulfilled(values[key]) for key, fulfilled in conditions)


@dataclass(slots=True)
class ClientConditions:
    """The conditions of one client, by the topic filters that it subscribed to with some."""

    #: By filter, then by the text of the conditions. The empty text is a subscription without conditions.
    filters: dict[str, dict[str, Conditions]] = field(default_factory=dict[str, dict[str, Conditions]])
    #: By topic: alternatives, one of which must be fulfilled; None: every message matches.
    remembered: dict[str, list[Conditions] | None] = field(default_factory=dict[str, list[Conditions] | None])


class FilterSettings(Settings):
    """Subscriptions with conditions on user properties, `FILTER?key>5`."""

    max_filters: Whole = setting(100, "Subscriptions with conditions that one client may have.", "subscriptions", ge=1)
    max_conditions: Whole = setting(16, "Conditions of one subscription.", "conditions", ge=1, le=MAX_CONDITIONS)
    max_length: Whole = setting(1024, "Longest text of the conditions of one subscription.", "characters", ge=1)


class MessageFilter:
    def __init__(self, context: Context[FilterSettings]) -> None:
        self._context = context
        self._clients: dict[str, ClientConditions] = {}
        #: The same as text, by client id, with the moment at which each session began.
        self._store = context.store
        self._filtering = False
        self._withheld = context.counter("withheld", "Messages that did not fulfil a subscriber's conditions.")
        self._refused = context.counter("refused", "Subscriptions whose conditions were refused.")
        context.gauge("clients", "Clients that have conditions.", lambda: len(self._clients))
        for client_id, (began, filters) in list(self._store.items()):
            self._restore(client_id, began, filters)

    def _restore(self, client_id: str, began: float, filters: dict[str, list[str]]) -> None:
        """The kept conditions that are still valid."""
        client, subscribed = self._context.client(client_id), self._context.subscriptions(client_id)
        if client is not None and client.created_at == began:
            own = self._clients[client_id] = ClientConditions()
            for filter, texts in filters.items():
                if filter in subscribed or self._context.replaces:  # a client may be about to subscribe to it
                    own.filters[filter] = {text: parse(text) if text else () for text in texts}
        self._changed(client_id)

    # Requests of clients

    @hook("client.read_filter")
    def read_filter(self, client: ClientInfo, filter: str) -> str:
        return _split(client, filter)[0]

    @hook("client.subscribe", priority=TOPIC_SYNTAX)
    def subscribe(
        self, client: ClientInfo, request: SubscriptionRequest, properties: Properties
    ) -> SubscriptionRequest | Deny | None:
        filter, text = _split(client, request.filter)
        own = self._clients.get(client.client_id)
        if text is None:
            if own is not None and filter in own.filters:
                own.filters[filter][""] = ()
                self._changed(client.client_id)
            return None
        if filter.startswith(("$share/", "$exclusive/")):
            return self._refuse(
                Reason.TOPIC_FILTER_INVALID, f"conditions cannot be combined with {filter.split('/')[0]}"
            )
        try:
            conditions = self._parse(text)
        except ValueError as error:
            return self._refuse(Reason.TOPIC_FILTER_INVALID, str(error))
        if own is None:
            own = self._clients[client.client_id] = ClientConditions()
        former = own.filters.get(filter)
        known = {} if former is None else {**former}
        if text not in known and sum(map(len, own.filters.values())) >= self._context.settings.max_filters:
            return self._refuse(Reason.QUOTA_EXCEEDED, "the limit of subscriptions with conditions is reached")
        if not known and filter in self._context.subscriptions(client.client_id):
            known[""] = ()
        known[text] = conditions
        own.filters[filter] = known
        try:
            self._changed(client.client_id)
        except PluginStoreFull as error:
            if former is not None:
                own.filters[filter] = former
            else:
                del own.filters[filter]
                if not own.filters:
                    del self._clients[client.client_id]
            return self._refuse(Reason.QUOTA_EXCEEDED, str(error))
        return replace(request, filter=filter)

    @hook("client.unsubscribe", priority=TOPIC_SYNTAX)
    def unsubscribe(self, client: ClientInfo, filter: str, properties: Properties) -> str | Withhold | None:
        """Called with the exact text of the subscription. The session keeps the filter while the client has any
        subscription to it."""
        filter, text = _split(client, filter)
        own = self._clients.get(client.client_id)
        known = own.filters.get(filter) if own is not None else None
        if known is None:
            return None
        if (text or "") not in known:
            return Withhold(Reason.NO_SUBSCRIPTION_EXISTED)
        if len(known) == 1:
            return filter
        del known[text or ""]
        self._changed(client.client_id)
        return Withhold()

    def _parse(self, text: str) -> Conditions:
        if len(text) > self._context.settings.max_length:
            raise ValueError(f"the conditions are longer than {self._context.settings.max_length} characters")
        return parse(text, self._context.settings.max_conditions)

    def _refuse(self, reason: Reason, text: str) -> Deny:
        self._refused.add()
        return Deny(reason, text)

    # Sessions

    @hook("session.created")
    def created(self, client: ClientInfo) -> None:
        self._forget(client.client_id)

    @hook("session.discarded")
    @hook("session.terminated")
    def ended(self, client: ClientInfo, *_: object) -> None:
        if self._context.client(client.client_id) is None:  # otherwise a new session exists already
            self._forget(client.client_id)

    @hook("session.resumed")
    @hook("session.subscribed")
    def subscribed(self, client: ClientInfo, *_: object) -> None:
        if client.client_id in self._clients:
            self._clients[client.client_id].remembered.clear()

    @hook("session.unsubscribed")
    def unsubscribed(self, client: ClientInfo, filter: str) -> None:
        own = self._clients.get(client.client_id)
        if own is not None:
            own.filters.pop(filter, None)
            self._changed(client.client_id)

    def _forget(self, client_id: str) -> None:
        if self._clients.pop(client_id, None) is not None:
            self._changed(client_id)

    def _changed(self, client_id: str) -> None:
        """Save the state, and check deliveries only if there are conditions."""
        own, client = self._clients.get(client_id), self._context.client(client_id)
        if own is not None and own.filters and client is not None:
            own.remembered.clear()
            self._store.put(client_id, [client.created_at, {name: list(texts) for name, texts in own.filters.items()}])
        else:
            self._clients.pop(client_id, None)
            self._store.delete(client_id)
        if self._filtering != bool(self._clients):
            self._filtering = not self._filtering
            if self._filtering:
                self._context.hooks.add("message.deliver", self.deliver, priority=TOPIC_SYNTAX)
            else:
                self._context.hooks.remove("message.deliver", self.deliver)

    # Messages

    def deliver(self, client: ClientInfo, message: Message) -> Withhold | None:
        own = self._clients.get(client.client_id)
        if own is None:
            return None
        try:
            alternatives = own.remembered[message.topic]
        except KeyError:
            alternatives = self._remember(client.client_id, own, message.topic)
        if alternatives is None:
            return None
        properties = message.properties.get("user_property", ())
        if any(holds(conditions, properties) for conditions in alternatives):
            return None
        self._withheld.add()
        return DROP

    def _remember(self, client_id: str, own: ClientConditions, topic: str) -> list[Conditions] | None:
        found = self._alternatives(client_id, own, topic)
        if len(topic) <= MAX_REMEMBERED_TOPIC:
            if len(own.remembered) >= MAX_REMEMBERED:
                own.remembered.clear()
            own.remembered[topic] = found
        return found

    def _alternatives(self, client_id: str, own: ClientConditions, topic: str) -> list[Conditions] | None:
        """The conditions of all subscriptions that match a topic; None if one of them has no conditions."""
        found: list[Conditions] = []
        for filter in self._context.subscriptions(client_id):
            shared = parse_shared(filter)
            if matches(filter if shared is None else shared[1], topic):
                found += own.filters.get(filter, {"": ()}).values()
        return None if () in found or not found else found


def _split(client: ClientInfo, filter: str) -> tuple[str, str | None]:
    """The filter, and the text of its conditions. For 3.x a question mark is an ordinary character."""
    plain, mark, text = filter.partition("?")
    return (plain, text) if mark and plain and client.version is Version.V5 else (filter, None)
