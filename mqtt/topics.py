"""Topic names, topic filters and shared subscriptions (sections 4.7 and 4.8 of 5.0).

`trunkline.mqtt.strings` checks which characters a string may contain.
"""

from typing import Final

from trunkline.mqtt.errors import MalformedPacket, ProtocolError
from trunkline.mqtt.explanations import quoted
from trunkline.mqtt.reasons import Reason

#: The most that a packet can hold: a string has 65,535 bytes.
NO_LEVEL_LIMIT: Final = 65_536

SHARE_PREFIX: Final = "$share/"
#: An older form of a shared subscription: `$queue/a` is read as `$share/$queue/a`. Only the decoder knows this form.
QUEUE_PREFIX: Final = "$queue/"


#: A subscription to a stream, `$stream/NAME/FILTER`.
STREAM_PREFIX: Final = "$stream/"


#: What bridges say of themselves, in Mosquitto's way. All else below `$SYS` is the broker's own.
BRIDGE_STATES: Final = "$SYS/broker/connection/"


def bridge_state(client_id: str) -> str:
    """Where the bridge with this client id says whether it is connected."""
    return f"{BRIDGE_STATES}{client_id}/state"


def validate_name(topic: str, max_levels: int = NO_LEVEL_LIMIT) -> None:
    """Validate the topic name of a publication.

    Raises:
        ProtocolError: MALFORMED_PACKET if it is not a topic name, TOPIC_NAME_INVALID if it exceeds this broker's
            limits.
    """
    if "+" in topic or "#" in topic:
        # [MQTT-3.3.2-2] [MQTT-4.7.1-1]
        raise MalformedPacket(f"topic name {quoted(topic)} holds a wildcard")
    if not topic:
        raise MalformedPacket("the topic name is empty")  # [MQTT-4.7.3-1]
    if topic.count("/") >= max_levels:
        raise ProtocolError(f"the topic name has more than {max_levels} levels", Reason.TOPIC_NAME_INVALID)
    if topic.startswith((SHARE_PREFIX, STREAM_PREFIX)):
        raise ProtocolError("a shared subscription or a stream cannot be published to", Reason.TOPIC_NAME_INVALID)


def validate_filter(topic_filter: str, max_levels: int = NO_LEVEL_LIMIT) -> None:
    """Validate a topic filter, shared or not. The levels of a shared one are counted without `$share/group/`.

    Raises:
        ProtocolError: MALFORMED_PACKET if it is not a topic filter, TOPIC_FILTER_INVALID if it is not accepted
        here.
    """
    if topic_filter.startswith(SHARE_PREFIX):
        group, _, topic_filter = topic_filter[len(SHARE_PREFIX) :].partition("/")
        if not group or "+" in group or "#" in group:
            # [MQTT-4.8.2-1]: at least one character; [MQTT-4.8.2-2]: no wildcard in it
            raise MalformedPacket(f"{quoted(group)} is not a valid name of a shared group")
        if not topic_filter:
            # [MQTT-4.8.2-2]: a topic filter follows the name
            raise MalformedPacket(f"the shared subscription of group {quoted(group)} has no topic filter")
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


def join_shared(group: str, topic_filter: str) -> str:
    """The shared subscription of a group: what `parse_shared` takes apart."""
    return f"{SHARE_PREFIX}{group}/{topic_filter}"


def parse_shared(topic_filter: str) -> tuple[str, str] | None:
    """Group and topic filter of a (valid) shared subscription; None for an ordinary one."""
    if not topic_filter.startswith(SHARE_PREFIX):
        return None
    group, _, shared = topic_filter[len(SHARE_PREFIX) :].partition("/")
    return group, shared


def plain_filter(topic_filter: str) -> str:
    """The topic filter of a (valid) subscription: for a shared one, the part behind `$share/group/`, for one to a
    stream the part behind `$stream/name/`."""
    inner = parse_shared(topic_filter) or parse_stream(topic_filter)
    return topic_filter if inner is None else inner[1]


def parse_stream(topic_filter: str) -> tuple[str, str] | None:
    """Name and topic filter of a subscription to a stream, either of which may be empty; None for another one."""
    if not topic_filter.startswith(STREAM_PREFIX):
        return None
    name, _, inner = topic_filter[len(STREAM_PREFIX) :].partition("/")
    return name, inner


def matches(topic_filter: str, topic: str) -> bool:
    """Whether a valid (not shared) filter matches a valid topic name. Case and every slash count: [MQTT-4.7.3-4]."""
    if topic.startswith("$") and topic_filter.startswith(("+", "#")):
        return False  # [MQTT-4.7.2-1]
    wanted = topic_filter.split("/")
    levels = topic.split("/")
    if wanted[-1] == "#":
        # '#' matches its parent level too, so as many levels are enough.
        wanted.pop()
        if len(levels) < len(wanted):
            return False
    elif len(levels) != len(wanted):
        return False
    return all(want in ("+", level) for want, level in zip(wanted, levels, strict=False))
