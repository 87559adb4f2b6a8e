"""What the server said in its CONNACK that it allows, and the requests that it would refuse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trunkline.client.errors import LargerThanServerAccepts, NotOffered
from trunkline.mqtt.topics import SHARE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trunkline.mqtt.packets import SubscriptionRequest
    from trunkline.mqtt.properties import Properties

#: The receive maximum where none is said.
MAX_RECEIVE: Final = 65_535


@dataclass(frozen=True, slots=True)
class ServerLimits:
    receive_maximum: int = MAX_RECEIVE
    maximum_qos: int = 2
    retain: bool = True
    #: 0 means no limit.
    max_packet_size: int = 0
    topic_aliases: int = 0
    wildcards: bool = True
    shared: bool = True
    subscription_identifiers: bool = True

    @classmethod
    def of(cls, connack: Properties) -> ServerLimits:
        return cls(
            receive_maximum=connack.get("receive_maximum", MAX_RECEIVE),
            maximum_qos=connack.get("maximum_qos", 2),
            retain=connack.get("retain_available", 1) == 1,
            max_packet_size=connack.get("maximum_packet_size", 0),
            topic_aliases=connack.get("topic_alias_maximum", 0),
            wildcards=connack.get("wildcard_subscription_available", 1) == 1,
            shared=connack.get("shared_subscription_available", 1) == 1,
            subscription_identifiers=connack.get("subscription_identifier_available", 1) == 1,
        )

    def check_publish(self, qos: int, retain: bool) -> None:
        """
        Raises:
            NotOffered: the server would end the connection.
        """
        if qos > self.maximum_qos:
            raise NotOffered(f"the server offers QoS {self.maximum_qos} at most, not {qos}")  # [MQTT-3.2.2-11]
        if retain and not self.retain:
            raise NotOffered("the server offers no retained messages")  # [MQTT-3.2.2-14]

    def check_size(self, size: int) -> None:
        """
        Raises:
            LargerThanServerAccepts: the packet must not be sent.  # [MQTT-3.2.2-15]
        """
        if 0 < self.max_packet_size < size:
            raise LargerThanServerAccepts(size, self.max_packet_size)

    def check_subscribe(self, requests: Iterable[SubscriptionRequest], identified: bool) -> None:
        """
        Raises:
            NotOffered: the server would end the connection.
        """
        if identified and not self.subscription_identifiers:
            raise NotOffered("the server offers no subscription identifiers")
        for request in requests:
            shared = request.filter.startswith(SHARE_PREFIX)
            if shared and not self.shared:
                raise NotOffered("the server offers no shared subscriptions")
            if not self.wildcards and ("+" in request.filter or "#" in request.filter):
                raise NotOffered("the server offers no wildcards in topic filters")
