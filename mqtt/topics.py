"""Topic names, topic filters and shared subscriptions (sections 4.7 and 4.8 of 5.0).

Whether the characters are allowed in a string at all is judged in `trunkline.mqtt.strings`.
"""

from typing import Final

from trunkline.mqtt.errors import MalformedPacket, ProtocolError
from trunkline.mqtt.explanations import quoted
from trunkline.mqtt.reasons import Reason

#: Nothing on the wire can have more: a string has 65,535 bytes.
NO_LEVEL_LIMIT: Final = 65_536

SHARE_PREFIX: Final = "$share/"
#: How clients shared a filter before 5.0: `$queue/a` is read as `$share/$queue/a`, and nobody but the decoder knows it.
QUEUE_PREFIX: Final = "$queue/"


def validate_name(topic: str, max_levels: int = NO_LEVEL_LIMIT) -> None:
    """Judge a topic name that somebody wants to publish to.

    Raises:
        ProtocolError: MALFORMED_PACKET for what is no topic name, TOPIC_NAME_INVALID for one that is not taken here.
    """
    if "+" in topic or "#" in topic:
        # [MQTT-3.3.2-2] [MQTT-4.7.1-1]
        raise MalformedPacket(f"topic name {quoted(topic)} holds a wildcard")
    if not topic:
        raise MalformedPacket("the topic name is empty")  # [MQTT-4.7.3-1]
    if topic.count("/") >= max_levels:
        raise ProtocolError(f"the topic name has more than {max_levels} levels", Reason.TOPIC_NAME_INVALID)
    if topic.startswith(SHARE_PREFIX):
        raise ProtocolError("a shared subscription is nothing to publish to", Reason.TOPIC_NAME_INVALID)


def validate_filter(topic_filter: str, max_levels: int = NO_LEVEL_LIMIT) -> None:
    """Judge a topic filter, shared or not. The levels of a shared one are counted without `$share/group/`.

    Raises:
        ProtocolError: MALFORMED_PACKET for what is no topic filter, TOPIC_FILTER_INVALID for one that is not taken
        here.
    """
    if topic_filter.startswith(SHARE_PREFIX):
        group, _, topic_filter = topic_filter[len(SHARE_PREFIX) :].partition("/")
        if not group or "+" in group or "#" in group:
            # [MQTT-4.8.2-1]: at least one character; [MQTT-4.8.2-2]: no wildcard in it
            raise MalformedPacket(f"{quoted(group)} cannot name a group of subscribers")
        if not topic_filter:
            # [MQTT-4.8.2-2]: a topic filter follows the name
            raise MalformedPacket(f"group {quoted(group)} shares no topic filter")
    elif not topic_filter:
        raise MalformedPacket("the topic filter is empty")  # [MQTT-4.7.3-1]
    if topic_filter.count("/") >= max_levels:
        raise ProtocolError(f"the topic filter has more than {max_levels} levels", Reason.TOPIC_FILTER_INVALID)
    hash_at = topic_filter.find("#")
    if hash_at >= 0 and (hash_at != len(topic_filter) - 1 or topic_filter[-2:-1] not in ("", "/")):
        # [MQTT-4.7.1-1]: a level of its own, and the last
        raise MalformedPacket(f"'#' is not alone at the end of {quoted(topic_filter)}")
    if "+" in topic_filter and any("+" in level and level != "+" for level in topic_filter.split("/")):
        # [MQTT-4.7.1-2]
        raise MalformedPacket(f"'+' is not alone in its level of {quoted(topic_filter)}")


def parse_shared(topic_filter: str) -> tuple[str, str] | None:
    """Group and topic filter of a (valid) shared subscription; None for an ordinary one."""
    if not topic_filter.startswith(SHARE_PREFIX):
        return None
    group, _, shared = topic_filter[len(SHARE_PREFIX) :].partition("/")
    return group, shared


def plain_filter(topic_filter: str) -> str:
    """What a (valid) subscription is about: of a shared one, the filter behind `$share/group/`."""
    shared = parse_shared(topic_filter)
    return topic_filter if shared is None else shared[1]


def matches(topic_filter: str, topic: str) -> bool:
    """Whether a valid (not shared) filter takes a valid topic name. Case and every slash count: [MQTT-4.7.3-4]."""
    if topic.startswith("$") and topic_filter.startswith(("+", "#")):
        return False  # [MQTT-4.7.2-1]
    wanted = topic_filter.split("/")
    levels = topic.split("/")
    if wanted[-1] == "#":
        # '#' takes its parent level too, so that many levels are enough.
        wanted.pop()
        if len(levels) < len(wanted):
            return False
    elif len(levels) != len(wanted):
        return False
    return all(want in ("+", level) for want, level in zip(wanted, levels, strict=False))
