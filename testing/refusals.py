"""Faults that refuse requests of clients: callbacks at hooks that run before all others."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from trunkline.config.key_path import nearest
from trunkline.hooks.decisions import Deny
from trunkline.hooks.priorities import TEST_REFUSAL
from trunkline.mqtt.reasons import REASONS, Reason
from trunkline.mqtt.topics import matches, parse_shared
from trunkline.testing.fault import Fault, Owner
from trunkline.testing.portal import Portal
from trunkline.testing.selection import check_filter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trunkline.hooks.chain import Hooks
    from trunkline.hooks.client import ClientInfo
    from trunkline.hooks.exchange import Exchange
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.packets import PacketType, SubscriptionRequest
    from trunkline.mqtt.properties import Properties
    from trunkline.testing.fault_layer import Network

P = TypeVar("P", bound=Portal)


class Refusal(Fault[P]):
    def __init__(
        self,
        owner: Owner[P],
        text: str,
        reason: Reason,
        filter: str | None = None,
        client: str | None = None,
        times: int | None = None,
        after: int = 0,
    ) -> None:
        super().__init__(owner, f"{text}: {reason.name}", times, after)
        self._deny = Deny(reason, "refused by a fault of the test")
        self._client = client
        self._filter = filter
        if filter is not None:
            check_filter(filter)

    def callbacks(self) -> Mapping[str, Callable[..., Deny | None]]:
        """By hook point."""
        raise NotImplementedError

    def begin(self, network: Network, hooks: Hooks) -> None:
        self._network = network
        for point, callback in self.callbacks().items():
            hooks.add(point, callback, priority=TEST_REFUSAL)

    def end(self, network: Network, hooks: Hooks) -> None:
        for point, callback in self.callbacks().items():
            hooks.remove(point, callback)

    def refuse(self, client: ClientInfo, topic: str = "") -> Deny | None:
        if self._client not in (None, client.client_id):
            return None
        if self._filter is not None and topic != self._filter and not matches(self._filter, topic):
            return None
        return self._deny if self.happens() else None


class RefuseConnect(Refusal[P]):
    def callbacks(self) -> Mapping[str, Callable[..., Deny | None]]:
        return {"client.authenticate": self._password, "client.enhanced_authenticate": self._exchange}

    def _password(self, client: ClientInfo, password: bytes | None) -> Deny | None:
        return self.refuse(client)

    def _exchange(self, client: ClientInfo, exchange: Exchange) -> Deny | None:
        return self.refuse(client) if exchange.first and not exchange.again else None


class RefuseSubscribe(Refusal[P]):
    def callbacks(self) -> Mapping[str, Callable[..., Deny | None]]:
        return {"client.subscribe": self._request}

    def _request(self, client: ClientInfo, request: SubscriptionRequest, properties: Properties) -> Deny | None:
        shared = parse_shared(request.filter) if self._filter != request.filter else None
        return self.refuse(client, shared[1] if shared is not None else request.filter)


class RefusePublish(Refusal[P]):
    def callbacks(self) -> Mapping[str, Callable[..., Deny | None]]:
        return {"message.publish": self._message}

    def _message(self, client: ClientInfo, message: Message) -> Deny | None:
        refused = self.refuse(client, message.topic)
        if refused is not None:
            self._network.on_loss(message)
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
        hint = nearest(named.upper(), known)
        raise ValueError(f"{packet.name} does not refuse with {named}, but with {', '.join(known)}{hint}")
    return found
