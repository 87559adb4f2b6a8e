"""Topic aliases of MQTT 5.0 (section 3.3.2.3.4): numbers that stand for topics."""

from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.reasons import Reason


class ReceivedAliases:
    """The aliases that the peer has set. They last as long as the network connection."""

    __slots__ = ("_topics", "maximum")

    def __init__(self, maximum: int = 0) -> None:
        self.maximum = maximum
        self._topics: dict[int, str] = {}

    def __getitem__(self, alias: int) -> str:
        """The topic; empty when none is set."""
        return self._topics.get(alias, "")

    def resolve(self, alias: int, topic: str) -> str:
        """The topic of a PUBLISH with this alias. If the packet has a topic of its own, the alias means that topic from
        now on.

        Raises:
            ProtocolError: the alias was not set, or is not allowed.
        """
        if alias > self.maximum:  # [MQTT-3.3.2-9]
            raise ProtocolError(f"topic alias {alias} is above {self.maximum}", Reason.TOPIC_ALIAS_INVALID)
        if topic:
            self._topics[alias] = topic
        elif alias not in self._topics:
            raise ProtocolError(f"topic alias {alias} was not set")
        return self._topics[alias]


class SentAliases:
    """The aliases that this side sets: the first topics get one, as many as the peer allows."""

    __slots__ = ("_aliases", "maximum")

    def __init__(self, maximum: int = 0) -> None:
        self.maximum = maximum
        self._aliases: dict[str, int] = {}

    def find(self, topic: str) -> tuple[int, bool]:
        """The alias for the next PUBLISH of this topic, 0 for none, and whether the peer knows it."""
        alias = self._aliases.get(topic, 0)
        if alias or len(self._aliases) >= self.maximum:
            return alias, alias != 0
        return len(self._aliases) + 1, False

    def set(self, topic: str, alias: int) -> None:
        """The peer has been sent both topic and alias."""
        self._aliases[topic] = alias

    def topic(self, alias: int) -> str:
        """The topic; empty when none is set."""
        return next((topic for topic, other in self._aliases.items() if other == alias), "")
