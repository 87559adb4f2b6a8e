"""Topic aliases of MQTT 5.0 (section 3.3.2.3.4): numbers that stand for topics. They last as long as the network
connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.mqtt.properties import Properties
    from trunkline.mqtt.publication import ReceivedPublication


class ReceivedAliases:
    """The aliases that the peer has set."""

    __slots__ = ("_topics", "maximum")

    def __init__(self, maximum: int = 0) -> None:
        self.maximum = maximum
        self._topics: dict[int, str] = {}

    def __getitem__(self, alias: int) -> str:
        """The topic; empty when none is set."""
        return self._topics.get(alias, "")

    def read(self, publication: ReceivedPublication) -> None:
        """Put its topic in the place of the alias, which means nothing to others. If the packet has a topic of its own,
        the alias means that topic from now on.

        Raises:
            ProtocolError: the alias was not set, or is not allowed.
        """
        alias = publication.properties.get("topic_alias")
        if alias is None:
            return
        if alias > self.maximum:  # [MQTT-3.3.2-9]
            raise ProtocolError(f"topic alias {alias} is above {self.maximum}", Reason.TOPIC_ALIAS_INVALID)
        if publication.topic:
            self._topics[alias] = publication.topic
        elif alias not in self._topics:
            raise ProtocolError(f"topic alias {alias} was not set")
        publication.topic = self._topics[alias]
        rest: Properties = {**publication.properties}
        del rest["topic_alias"]
        publication.properties = rest or NO_PROPERTIES


class SentAliases:
    """The aliases that this side sets: the first topics get one, as many as the peer allows."""

    __slots__ = ("_aliases", "maximum")

    def __init__(self, maximum: int = 0) -> None:
        self.maximum = maximum
        self._aliases: dict[str, int] = {}

    def encode(self, topic: str, encode: Callable[..., bytes], max_packet_size: int) -> bytes:
        """A PUBLISH of this topic by `encode`, with an alias if there is one, and room for it in the packet."""
        alias = self._aliases.get(topic, 0)
        is_known = alias > 0
        if not is_known and len(self._aliases) < self.maximum:
            alias = len(self._aliases) + 1
        wire = encode(topic_alias=alias, omit_topic=is_known)
        if alias and 0 < max_packet_size < len(wire):
            return encode()
        if alias:
            self._aliases[topic] = alias
        return wire

    def topic(self, alias: int) -> str:
        """The topic; empty when none is set."""
        return next((topic for topic, other in self._aliases.items() if other == alias), "")
