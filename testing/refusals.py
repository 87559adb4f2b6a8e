"""Faults that say no to what clients ask for. They are callbacks at hooks, asked before all others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.hooks.decisions import Deny
from trunkline.hooks.priorities import TEST_REFUSAL
from trunkline.mqtt.reasons import REASONS, Reason
from trunkline.mqtt.topics import matches, parse_shared
from trunkline.testing.fault import Fault, Owner
from trunkline.testing.selecting import check_filter

if TYPE_CHECKING:
    from trunkline.hooks.chain import Hooks
    from trunkline.hooks.client import ClientInfo
    from trunkline.hooks.exchange import Exchange
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.packets import PacketType, SubscriptionRequest
    from trunkline.mqtt.properties import Properties
    from trunkline.testing.links import Links


class Refusal(Fault):
    """A callback that says no."""

    #: Hook points, and the method that is registered there.
    points: tuple[tuple[str, str], ...] = ()

    def __init__(
        self,
        text: str,
        owner: Owner,
        reason: Reason,
        client: str | None,
        filter: str | None,
        times: int | None = None,
        after: int = 0,
    ) -> None:
        super().__init__(text, owner, times, after)
        self._deny = Deny(reason, "refused by a fault of the test")
        self._client = client
        self._filter = filter
        if filter is not None:
            check_filter(filter)

    def begin(self, links: Links, hooks: Hooks) -> None:
        for point, method in self.points:
            hooks.add(point, getattr(self, method), priority=TEST_REFUSAL)

    def end(self, links: Links, hooks: Hooks) -> None:
        for point, method in self.points:
            hooks.remove(point, getattr(self, method))

    def refuse(self, client: ClientInfo, topic: str = "") -> Deny | None:
        if self._client not in (None, client.client_id):
            return None
        if self._filter is not None and topic != self._filter and not matches(self._filter, topic):
            return None
        return self._deny if self.happens() else None


class RefuseConnect(Refusal):
    points = (("client.authenticate", "password"), ("client.enhanced_authenticate", "exchange"))

    def password(self, client: ClientInfo, password: bytes | None) -> Deny | None:
        return self.refuse(client)

    def exchange(self, client: ClientInfo, exchange: Exchange) -> Deny | None:
        return self.refuse(client) if exchange.first and not exchange.again else None


class RefuseSubscribe(Refusal):
    points = (("client.subscribe", "request"),)

    def request(self, client: ClientInfo, request: SubscriptionRequest, properties: Properties) -> Deny | None:
        shared = parse_shared(request.filter) if self._filter != request.filter else None
        return self.refuse(client, shared[1] if shared is not None else request.filter)


class RefusePublish(Refusal):
    points = (("message.publish", "message"),)

    def begin(self, links: Links, hooks: Hooks) -> None:
        super().begin(links, hooks)
        self._links = links

    def message(self, client: ClientInfo, message: Message) -> Deny | None:
        refused = self.refuse(client, message.topic)
        if refused is not None:
            self._links.on_loss(message)
        return refused


def refusing(reason: Reason | int | str, packet: PacketType) -> Reason:
    """A reason to refuse with, as the answer `packet` may carry it.

    Raises:
        ValueError: it may not.
    """
    known = {Reason(code).name: Reason(code) for code in sorted(REASONS[packet, False]) if code >= 0x80}
    try:
        found = known.get(reason.upper()) if isinstance(reason, str) else Reason(reason)
    except ValueError:
        found = None
    if found is None or found.name not in known:
        named = found.name if found is not None else reason if isinstance(reason, str) else f"0x{reason:02X}"
        raise ValueError(f"{packet.name} does not refuse with {named}, but with {', '.join(known)}")
    return found
