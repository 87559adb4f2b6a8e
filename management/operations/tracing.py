"""Traces of messages."""

from dataclasses import asdict
from typing import Annotated

from trunkline.broker.node.admin import Admin
from trunkline.broker.traced_message import MessageRow, Outcome
from trunkline.management.operations.registry import (
    AT_ONCE,
    After,
    Limit,
    Page,
    answering,
    operation,
)

Guid = Annotated[str, "The message's id, as shown in the list."]


@operation("trace.start")
def start(
    broker: Admin,
    client: Annotated[list[str] | None, "Messages that this client publishes or receives. May be repeated."] = None,
    topic: Annotated[list[str] | None, "Messages whose topic matches this filter. May be repeated."] = None,
) -> dict[str, object]:
    """Start a trace of messages, in place of the running one: of some clients and topics, or of all."""
    with answering():
        broker.trace.start(clients=client or (), topics=topic or ())
    return _state(broker)


@operation("trace.stop")
def stop(broker: Admin) -> dict[str, object]:
    """End the trace. Its messages stay until the next trace."""
    broker.trace.stop()
    return _state(broker)


@operation("trace.status")
def status(broker: Admin) -> dict[str, object]:
    """Whether a trace is on, and for which clients and topics."""
    return _state(broker)


@operation("trace.list", cursor=lambda row: row.guid)
def list_messages(
    broker: Admin,
    topic: Annotated[str, "Only messages whose topic matches this filter."] = "",
    client: Annotated[str, "Only messages that this client published or was to get."] = "",
    after: After = "",
    limit: Limit = AT_ONCE,
) -> Page[MessageRow]:
    """Traced messages, the newest first, with the progress of each."""
    with answering():
        rows, cursor = broker.trace.messages(topic=topic, client=client, before=after, limit=limit, scan=4 * AT_ONCE)
    return Page(rows, cursor)


@operation("trace.show")
def show(broker: Admin, guid: Guid) -> dict[str, object]:
    """A traced message, and the outcome for the message as a whole."""
    with answering():
        traced = broker.trace.find(guid)
    return {**asdict(traced.row()), "steps": list(traced.own_steps)}


@operation("trace.outcomes", cursor=lambda row: row.client_id)
def list_outcomes(broker: Admin, guid: Guid, after: After = "", limit: Limit = AT_ONCE) -> Page[Outcome]:
    """The outcome of a message for each of its subscribers, in order of client id."""
    with answering():
        return Page(*broker.trace.find(guid).outcomes(after, limit))


def _state(broker: Admin) -> dict[str, object]:
    trace = broker.trace
    return {
        "on": trace.on,
        "clients": sorted(trace.clients),
        "topics": list(trace.topics),
        "since": trace.since or None,
        "messages": len(trace),
    }
