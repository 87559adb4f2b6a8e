"""Routes, retained messages, and publishing."""

from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import Interval
from pydantic import Strict

from trunkline.broker.node.admin import Admin
from trunkline.broker.views import ReceiverRow, RetainedRow, RouteRow
from trunkline.config.key_path import nearest
from trunkline.config.mqtt_settings import RetainedSettings
from trunkline.config.units import OptionalWholeSeconds
from trunkline.management.operations.registry import (
    AT_ONCE,
    After,
    BadRequest,
    Limit,
    NotFound,
    Page,
    Position,
    Refused,
    operation,
)
from trunkline.mqtt.message import Message
from trunkline.mqtt.strings import encode_string
from trunkline.mqtt.topics import validate_filter, validate_name

if TYPE_CHECKING:
    from trunkline.mqtt.properties import Properties

#: Retained topics that are searched for a similar name.
NEIGHBOURS = 100

Topic = Annotated[str, "The topic name."]
#: JSON has it as text.
Payload = Annotated[bytes, "The payload.", Strict(False)]
Qos = Annotated[Literal[0, 1, 2], "The quality of service."]
Expiry = Annotated[OptionalWholeSeconds, "After how long the message expires.", Interval(le=0xFFFF_FFFF)]
ContentType = Annotated[str | None, "The content type, for 5.0 clients."]
UserProperties = Annotated[dict[str, str] | None, "User properties, for 5.0 clients."]


# Routes


@operation("routes.list", cursor=lambda row: row.filter)
def list_routes(broker: Admin, after: After = "", limit: Limit = AT_ONCE) -> Page[RouteRow]:
    """Topic filters with subscriptions, each with the number of subscribers."""
    rows = broker.routes.page(after, limit)
    return Page(rows, rows[-1].filter if len(rows) == limit else None)


@operation("routes.lookup")
def look_up(broker: Admin, topic: Topic, after: Position = 0, limit: Limit = AT_ONCE) -> Page[ReceiverRow]:
    """The receivers of a message with this topic: clients as they subscribed, those that get it from
    the store, then shared groups. A client that comes or goes meanwhile may be missing, or be listed twice."""
    validate_name(topic)
    rows = broker.routes.receivers(topic, after, limit)
    return Page(rows, after + len(rows) if len(rows) == limit else None)


# Retained messages


@operation("retained.list", cursor=lambda row: row.topic)
async def list_retained(
    broker: Admin,
    filter: Annotated[str, "Only topics that match: '$SYS/#' those of the broker."] = "#",
    after: After = "",
    limit: Limit = AT_ONCE,
) -> Page[RetainedRow]:
    """Retained messages, in order of topic, each with the beginning of its payload."""
    validate_filter(filter)
    return Page(*await broker.retained.page(filter, after, limit))


@operation("retained.show")
def show_retained(broker: Admin, topic: Topic) -> RetainedRow:
    """The retained message of a topic, with its whole payload."""
    validate_name(topic)
    found = broker.retained.get(topic)
    if found is None:
        raise _not_retained(broker, topic)
    return found


@operation("retained.set")
def set_retained(
    broker: Admin,
    topic: Topic,
    payload: Payload,
    qos: Qos = 0,
    expiry: Expiry = None,
    content_type: ContentType = None,
    user_properties: UserProperties = None,
) -> dict[str, object]:
    """Publish and retain a message as the broker itself."""
    if not payload:
        raise BadRequest("payload: an empty one would delete the retained message: use retained.delete")
    message = _message(broker, topic, payload, qos, True, expiry, content_type, user_properties)
    receivers = _route(broker, message)
    if not broker.retained.is_kept(message):
        raise Refused(
            f"published, but not retained: {_limits(broker.config.retained)}"
            if broker.config.retained.enabled
            else "published, but not retained: retained.enabled is false"
        )
    return {"topic": topic, "receivers": receivers}


@operation("retained.delete")
async def delete_retained(
    broker: Admin, topic: Annotated[str, "The topic name, or a topic filter for all that match."]
) -> dict[str, object]:
    """Delete retained messages. Subscribers are not notified."""
    if topic.startswith("$SYS/"):
        raise Refused(f"{topic}: these topics are the broker's own: sys.interval = 0 ends them")
    if "+" not in topic and "#" not in topic:
        validate_name(topic)
        if not broker.retained.delete(topic):
            raise _not_retained(broker, topic)
        return {"deleted": 1}
    validate_filter(topic)
    deleted = await broker.retained.delete_matching(topic)
    if not deleted:
        raise NotFound(f"no retained message matches {topic!r}")
    return {"deleted": deleted}


def _limits(retained: RetainedSettings) -> str:
    limits = {
        "retained.max_messages": retained.max_messages,
        "retained.max_bytes": retained.max_bytes,
        "retained.max_message_size": retained.max_message_size,
    }
    return "the limits are " + ", ".join(f"{name} = {limit}" for name, limit in limits.items() if limit)


def _not_retained(broker: Admin, topic: str) -> NotFound:
    near = [each for each in broker.retained.topics(topic[: len(topic) // 2], NEIGHBOURS) if len(each) <= 256]
    return NotFound(f"no message is retained at {topic!r}{nearest(topic, near)}")


# Publishing


@operation("publish")
def publish(
    broker: Admin,
    topic: Topic,
    payload: Payload = b"",
    qos: Qos = 0,
    retain: Annotated[bool, "Retain the message for later subscribers."] = False,
    expiry: Expiry = None,
    content_type: ContentType = None,
    user_properties: UserProperties = None,
) -> dict[str, object]:
    """Publish a message as the broker itself. Access rules and hooks at `message.publish` do not apply."""
    message = _message(broker, topic, payload, qos, retain, expiry, content_type, user_properties)
    return {"topic": topic, "receivers": _route(broker, message)}


def _route(broker: Admin, message: Message) -> int:
    """
    Raises:
        Refused: a stream has refused it.
    """
    receivers = broker.messages.route(message)
    refusal = broker.messages.refusal(message)
    if refusal:
        raise Refused(f"not published: {refusal}")
    return receivers


def _message(
    broker: Admin,
    topic: str,
    payload: bytes,
    qos: int,
    retain: bool,
    expiry: int | None,
    content_type: str | None,
    user_properties: dict[str, str] | None,
) -> Message:
    properties: Properties = {}
    if expiry is not None:
        properties["message_expiry_interval"] = expiry
    if content_type is not None:
        properties["content_type"] = content_type
    if user_properties:
        properties["user_property"] = tuple(user_properties.items())
    for text in (topic, content_type or "", *(part for pair in (user_properties or {}).items() for part in pair)):
        try:
            encode_string(text)
        except ValueError as error:
            raise BadRequest(f"{text!r:.80}: {error}") from None
    return broker.messages.message(topic, payload, qos, retain, properties)
