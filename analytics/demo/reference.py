"""The numbers of the demonstration's jobs, computed anew in plain Python: as simply as can be, and by nothing that the
jobs are made of. Times are microseconds since the epoch."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from trunkline.events.reader import EventLog

#: What is known of a result: its key, and its columns.
Rows = dict[tuple[Any, ...], dict[str, Any]]

SECOND: Final = 1_000_000
#: Deliveries that count as late are not waited for: `within` of the latency job.
_SHARES: Final = {"p50_us": 0.5, "p95_us": 0.95, "p99_us": 0.99}


class Event(NamedTuple):
    node: str
    time: int
    kind: str
    client_id: str | None
    topic: str | None
    qos: int | None
    size: int | None
    guid: bytes | None
    publisher: str | None
    receivers: int | None
    latency_us: int | None

    @property
    def born(self) -> int:
        """When the broker took the message over: its id begins with it."""
        return self.time if self.guid is None else int.from_bytes(self.guid[:8], "big")


def events(log: EventLog) -> Iterator[Event]:
    """All that is in the log, in the order of its rows."""
    log.refresh()
    for node, extent in log.nodes().items():
        for batch in log.read(node, extent.first, extent.end, columns=Event._fields):
            table = batch.to_pydict()
            table["time"] = [round(time.timestamp() * SECOND) for time in table["time"]]
            yield from map(Event, *(table[name] for name in Event._fields))


def window_of(time: int, seconds: float) -> int:
    """The beginning of the window; one that begins at this very time holds it."""
    length = round(seconds * SECOND)
    return time - time % length


def percentile(ordered: Sequence[int], share: float) -> float:
    """Between neighbours in proportion."""
    position = (len(ordered) - 1) * share
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


class _Fate:
    """What became of one message for one client: the first of each."""

    __slots__ = ("acked", "completed", "delivered", "dropped")

    def __init__(self) -> None:
        self.delivered: int | None = None
        self.acked: int | None = None
        self.completed = self.dropped = False


def latency(happened: Iterable[Event], *, window: float, within: float, levels: int) -> Rows:
    """By beginning of the window in which messages were published, node, topic prefix and QoS: how many there were, how
    many deliveries they were to have and had, and how long these took. `window` and `within` are seconds."""
    kinds = ("message.routed", "message.delivered", "message.acked", "message.dropped", "delivery.completed")
    fates: dict[tuple[Any, ...], dict[str | None, _Fate]] = defaultdict(dict)
    receivers: dict[tuple[Any, ...], int] = {}
    for event in happened:
        if event.kind not in kinds or event.topic is None or event.topic.startswith("$"):
            continue
        if event.guid is None:
            continue  # refused before it was a message
        group = window_of(event.born, window), event.node, "/".join(event.topic.split("/")[:levels]), event.qos
        message = (*group, event.guid)
        if event.kind == "message.routed":
            receivers[message] = event.receivers or 0
            continue
        delay = event.time - event.born if event.latency_us is None else event.latency_us
        if delay > within * SECOND:
            continue
        fate = fates[message].setdefault(event.client_id, _Fate())
        if event.kind == "message.delivered":
            fate.delivered = delay if fate.delivered is None else min(delay, fate.delivered)
        elif event.kind == "message.acked":
            fate.acked = delay if fate.acked is None else min(delay, fate.acked)
        elif event.kind == "delivery.completed":
            fate.completed = True
        else:
            fate.dropped = True
    return _by_group(fates, receivers)


def _by_group(
    fates: Mapping[tuple[Any, ...], Mapping[str | None, _Fate]], receivers: Mapping[tuple[Any, ...], int]
) -> Rows:
    counts: dict[tuple[Any, ...], Counter[str]] = defaultdict(Counter)
    delays: dict[tuple[Any, ...], dict[str, list[int]]] = defaultdict(lambda: {"": [], "ack_": []})
    for message in fates.keys() | receivers.keys():
        group, of_message = message[:-1], fates.get(message, {}).values()
        delivered = [fate for fate in of_message if fate.delivered is not None]
        count = counts[group]
        if message in receivers:
            missing = max(0, receivers[message] - len(delivered))
            count["messages"] += 1
            count["receivers"] += receivers[message]
            count["undelivered"] += missing
            count["dropped"] += min(missing, sum(fate.dropped and fate.delivered is None for fate in of_message))
        qos = group[-1]
        count["unacked"] += sum(qos > 0 and fate.acked is None and not fate.completed for fate in delivered)
        delays[group][""] += [fate.delivered for fate in delivered if fate.delivered is not None]
        delays[group]["ack_"] += [fate.acked for fate in delivered if fate.acked is not None]
    return {
        group: {
            **{name: count[name] for name in ("messages", "receivers", "undelivered", "dropped", "unacked")},
            "delivered": len(delays[group][""]),
            "acked": len(delays[group]["ack_"]),
            **_summary("", delays[group][""]),
            **_summary("ack_", delays[group]["ack_"]),
        }
        for group, count in counts.items()
        if count["messages"] or delays[group][""]
    }


def _summary(prefix: str, delays: list[int]) -> dict[str, float | None]:
    ordered = sorted(delays)
    found = {prefix + name: percentile(ordered, share) if ordered else None for name, share in _SHARES.items()}
    return {**found, f"{prefix}max_us": ordered[-1] if ordered else None}


def flapping(happened: Iterable[Event], *, limit: int, window: float, calm: float, until: int) -> Rows:
    """By client, state and time: when each one began to connect more than `limit` times within `window` seconds, and when
    that had not been so for `calm` seconds; nothing later than `until`."""
    connections: dict[str, list[int]] = defaultdict(list)
    for event in happened:
        if event.kind == "client.connected" and event.client_id is not None:
            connections[event.client_id].append(event.time)
    length, pause = round(window * SECOND), round(calm * SECOND)
    found: Rows = {}
    for client_id, times in connections.items():
        times.sort()
        recent: list[int] = []
        began: int | None = None
        ends = total = 0
        for time in [*times, None]:
            if began is not None and (time is None or ends < time) and ends <= until:
                found[client_id, "end", ends] = {"count": total, "began": began}
                began = None
            if time is None or time > until:
                break
            recent = [each for each in recent if each > time - length] + [time]
            total += 1
            if len(recent) > limit:
                if began is None:
                    began, total = time, len(recent)
                    found[client_id, "begin", time] = {"count": total, "began": began}
                # as long as the oldest of the newest ones that are too many counts
                ends = recent[-limit - 1] + length + pause
    return found


def traffic(happened: Iterable[Event], *, window: float, k: int) -> Rows:
    """By beginning of the window and rank: the busiest topics by messages, then by bytes, then by name."""
    messages: dict[int, Counter[str]] = defaultdict(Counter)
    sizes: dict[int, Counter[str]] = defaultdict(Counter)
    publishers: dict[tuple[int, str], set[str]] = defaultdict(set)
    for event in happened:
        if event.kind == "message.routed" and event.topic is not None and not event.topic.startswith("$"):
            begin = window_of(event.time, window)
            messages[begin][event.topic] += 1
            sizes[begin][event.topic] += event.size or 0
            publishers[begin, event.topic].add(event.publisher or "")
    found: Rows = {}
    for begin, counts in messages.items():
        bytes_of = sizes[begin]
        order = sorted(counts, key=lambda topic: (-counts[topic], -bytes_of[topic], topic))
        for rank, topic in enumerate(order[:k], 1):
            found[begin, rank] = {
                "name": topic,
                "messages": counts[topic],
                "bytes": bytes_of[topic],
                "clients": len(publishers[begin, topic]),
                "total_messages": counts.total(),
                "total_bytes": bytes_of.total(),
                "names": len(counts),
                "share": counts[topic] / counts.total(),
            }
    return found
