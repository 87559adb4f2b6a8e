"""The configured rates as buckets: of the node, of a listener, of a client id, of a connection.

A connection draws from all buckets that concern it. A bucket may fall into debt by what one read has brought, and the
connection waits until the debt that it sees is paid off; one that draws later from a shared bucket waits for longer. So
connections take turns in the order in which they came, without a queue, and the average is exact.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from trunkline.broker.metrics import LimitKind
from trunkline.broker.node_use import ALONE
from trunkline.broker.token_bucket import TokenBucket
from trunkline.config.units import parse_rate

if TYPE_CHECKING:
    from trunkline.broker.node_use import NodeUse
    from trunkline.config.listener_settings import ListenerRateSettings
    from trunkline.config.mqtt_settings import RateSettings

#: Client ids up to which buckets are kept without a sweep.
MIN_SWEPT: Final = 1024


class RateLimit(TokenBucket):
    """A bucket that knows what it limits."""

    __slots__ = ("kind", "text")

    def __init__(self, kind: LimitKind, rate: float, burst: float, text: str) -> None:
        super().__init__(rate, burst)
        self.kind = kind
        #: The key and its value.
        self.text = text


class SharedRateLimit(RateLimit):
    """All shards of a node draw from it, each from a bucket that has what all have drawn."""

    __slots__ = ("_name", "_use")

    def __init__(self, kind: LimitKind, rate: float, burst: float, text: str, name: str, use: NodeUse) -> None:
        """`name` is the same at all shards."""
        super().__init__(kind, rate, burst, text)
        self._name = name
        self._use = use
        use.when_drawn(name, super().take)

    def take(self, amount: float, now: float) -> None:
        super().take(amount, now)
        self._use.drawn(self._name, amount)


def limit_of(
    kind: LimitKind, rates: RateSettings | ListenerRateSettings, use: NodeUse = ALONE, holder: str = ""
) -> RateLimit | None:
    """The configured limit of a kind; None where there is none. Shards of a node draw from one of the node or of a
    listener together: `holder` is its name."""
    _, whose, what = kind.counter.split(".")
    key = what if whose in ("node", "listener") else f"{whose}_{what}"
    text = getattr(rates, key)
    rate = None if text is None else parse_rate(text)
    if rate is None:
        return None
    known = kind, rate.per_second, rate.burst, f"{key} = {text}"
    return RateLimit(*known) if use.is_alone else SharedRateLimit(*known, f"{kind.counter} {holder}", use)


class Buckets:
    """The limits of messages and bytes that concern one connection."""

    __slots__ = ("bytes", "messages", "shape")

    def __init__(self) -> None:
        self.messages: list[RateLimit] = []
        self.bytes: list[RateLimit] = []
        #: Whether any of them wants packets one by one.
        self.shape = False

    def add(self, messages: RateLimit | None, size: RateLimit | None) -> None:
        for limits, limit in ((self.messages, messages), (self.bytes, size)):
            if limit is not None:
                limits.append(limit)
                self.shape = self.shape or limit.shapes

    def room(self, now: float) -> float:
        """Messages that no limit keeps from coming now."""
        return min((limit.available(now) for limit in self.messages), default=inf)

    def take(self, messages: int, size: int, now: float) -> None:
        for limit in self.messages:
            limit.take(messages, now)
        for limit in self.bytes:
            limit.take(size, now)

    def exceeded(self, now: float) -> RateLimit | None:
        """The limit that has to be waited for the longest, if any has."""
        longest = max((*self.messages, *self.bytes), key=lambda limit: limit.ready_at, default=None)
        return longest if longest is not None and longest.ready_at > now else None

    def take_or_refuse(self, size: int, now: float) -> RateLimit | None:
        """Take one message with so many bytes; or nothing, and return the limit that has no room for it."""
        for limits, amount in ((self.messages, 1), (self.bytes, size)):
            for limit in limits:
                if not limit.has(amount, now):
                    return limit
        self.take(1, size, now)
        return None


class ClientLimits:
    """The limits of one client id."""

    __slots__ = ("bytes", "connections", "messages")

    def __init__(self, rates: RateSettings) -> None:
        self.connections = limit_of(LimitKind.CLIENT_CONNECTIONS, rates)
        self.messages = limit_of(LimitKind.CLIENT_MESSAGES, rates)
        self.bytes = limit_of(LimitKind.CLIENT_BYTES, rates)

    def are_full(self, now: float) -> bool:
        limits = (self.connections, self.messages, self.bytes)
        return all(limit is None or limit.is_full(now) for limit in limits)


class ClientRegistry:
    """The limits of client ids. They outlive a connection, so that the next one brings no new burst, and are forgotten
    when nothing has been drawn from them for so long that they are full."""

    __slots__ = ("_clients", "_rates", "_sweep_at", "is_limited")

    def __init__(self, rates: RateSettings) -> None:
        self._rates = rates
        self._clients: dict[str, ClientLimits] = {}
        self._sweep_at = MIN_SWEPT
        self.is_limited = any(map(parse_rate, (rates.client_connections, rates.client_messages, rates.client_bytes)))

    def __len__(self) -> int:
        return len(self._clients)

    def get(self, client_id: str, now: float) -> ClientLimits:
        found = self._clients.get(client_id)
        if found is None:
            if len(self._clients) >= self._sweep_at:
                self._clients = {key: limits for key, limits in self._clients.items() if not limits.are_full(now)}
                self._sweep_at = max(MIN_SWEPT, 2 * len(self._clients))
            found = self._clients[client_id] = ClientLimits(self._rates)
        return found


class NodeLimits:
    """The limits of messages and bytes of all listeners together."""

    __slots__ = ("clients", "rates", "shared", "use")

    def __init__(self, rates: RateSettings, use: NodeUse = ALONE) -> None:
        self.rates = rates
        self.use = use
        self.shared = limit_of(LimitKind.NODE_MESSAGES, rates, use), limit_of(LimitKind.NODE_BYTES, rates, use)
        #: For listeners without rates of their own.
        self.clients = ClientRegistry(rates)


class RateLimits:
    """The limits of one listener's clients."""

    __slots__ = ("_clients", "_node", "_rates", "_shared", "is_unlimited", "pauses")

    def __init__(
        self,
        node: NodeLimits,
        own: ListenerRateSettings | None = None,
        zone: RateSettings | None = None,
        listener: str = "",
    ) -> None:
        """`own` is None for connections inside the process. Rates of clients and connections that it does not set come
        from `zone`, or else from the node. `listener` is its name."""
        self._node = node
        #: What holds for each client id and each connection.
        self._rates = rates = _merged(zone or node.rates, own)
        self._clients = node.clients if rates == node.rates else ClientRegistry(rates)
        self._shared: tuple[RateLimit | None, RateLimit | None] = (None, None)
        if own is not None:
            kinds, use = (LimitKind.LISTENER_MESSAGES, LimitKind.LISTENER_BYTES), node.use
            self._shared = limit_of(kinds[0], own, use, listener), limit_of(kinds[1], own, use, listener)
        #: Whether connections over a limit are not read from. Otherwise their messages are refused.
        self.pauses = rates.over == "pause"
        per_connection = (rates.connection_messages, rates.connection_bytes, rates.client_messages, rates.client_bytes)
        #: Whether nothing limits messages and bytes.
        self.is_unlimited = not any((*node.shared, *self._shared, *map(parse_rate, per_connection)))

    def of_connection(self) -> Buckets:
        """Those of its client are added when its client id is known."""
        buckets = Buckets()
        buckets.add(*self._node.shared)
        buckets.add(*self._shared)
        buckets.add(
            limit_of(LimitKind.CONNECTION_MESSAGES, self._rates), limit_of(LimitKind.CONNECTION_BYTES, self._rates)
        )
        return buckets

    def of_client(self, client_id: str, now: float) -> ClientLimits | None:
        """None if client ids have no limits."""
        return self._clients.get(client_id, now) if self._clients.is_limited else None


def _merged(rates: RateSettings, own: ListenerRateSettings | None) -> RateSettings:
    """A listener's rates of each client and connection, where they are set."""
    if own is None:
        return rates
    keys = [key for key in type(rates).model_fields if key == "over" or key.startswith(("client_", "connection_"))]
    return rates.model_copy(update={key: getattr(own, key) for key in keys if getattr(own, key) is not None})
