"""The results of the jobs, computed again in plain Python: as simply as possible, and by nothing that the jobs
are made of. Times are microseconds since the epoch."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from trunkline.events.reader import EventLog

#: Results by their key, each a dictionary of columns.
Rows = dict[tuple[Any, ...], dict[str, Any]]

SECOND: Final = 1_000_000


class Event(NamedTuple):
    """The columns of the event log that the results need."""

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
    delivery: str | None

    @property
    def accepted(self) -> int:
        """When the broker accepted the message: its GUID begins with that time."""
        return self.time if self.guid is None else int.from_bytes(self.guid[:8], "big")


def events(log: EventLog) -> Iterator[Event]:
    """All events of the log, in the order of its rows."""
    log.refresh()
    for node, extent in log.nodes().items():
        for batch in log.read(node, extent.first, extent.end, columns=Event._fields):
            table = batch.to_pydict()
            table["time"] = [round(time.timestamp() * SECOND) for time in table["time"]]
            yield from map(Event, *(table[name] for name in Event._fields))


def window_of(time: int, seconds: float) -> int:
    """The beginning of the window that holds this time."""
    return time - time % round(seconds * SECOND)


def percentile(ordered: Sequence[int], share: float) -> float | None:
    """Interpolated between neighbours."""
    if not ordered:
        return None
    low, part = divmod((len(ordered) - 1) * share, 1)
    high = min(int(low) + 1, len(ordered) - 1)
    return ordered[int(low)] + (ordered[high] - ordered[int(low)]) * part


def latency(happened: Iterable[Event], *, window: float, within: float, levels: int) -> Rows:
    """By window of acceptance, node, topic prefix and QoS: messages, their deliveries within so many seconds, and how
    long those took that did not wait for their client."""
    receivers: dict[tuple[Any, ...], int] = {}
    reached: dict[tuple[Any, ...], set[str | None]] = defaultdict(set)
    delays: dict[tuple[Any, ...], dict[str | None, int]] = defaultdict(dict)
    dropped: dict[tuple[Any, ...], set[str | None]] = defaultdict(set)
    for event in happened:
        if event.guid is None or event.topic is None or event.topic.startswith("$") or event.delivery == "retained":
            continue
        prefix = "/".join(event.topic.split("/")[:levels])
        message = window_of(event.accepted, window), event.node, prefix, event.qos, event.guid
        delay = event.time - event.accepted if event.latency_us is None else event.latency_us
        if event.kind == "message.routed":
            receivers[message] = event.receivers or 0
        elif event.kind == "message.delivered" and delay <= within * SECOND:
            reached[message].add(event.client_id)
            if event.delivery in (None, "live"):
                delays[message][event.client_id] = min(delay, delays[message].get(event.client_id, delay))
        elif event.kind == "message.dropped" and delay <= within * SECOND:
            dropped[message].add(event.client_id)
    groups: dict[tuple[Any, ...], list[tuple[Any, ...]]] = defaultdict(list)
    for message in receivers.keys() | reached.keys():
        groups[message[:-1]].append(message)
    found: Rows = {}
    for group, messages in groups.items():
        ordered = sorted(delay for message in messages for delay in delays[message].values())
        routed = [message for message in messages if message in receivers]
        missing = {message: max(0, receivers[message] - len(reached[message])) for message in routed}
        found[group] = {
            "messages": len(routed),
            "receivers": sum(receivers[message] for message in routed),
            "delivered": sum(len(reached[message]) for message in messages),
            "undelivered": sum(missing.values()),
            "dropped": sum(min(count, len(dropped[message] - reached[message])) for message, count in missing.items()),
            **{f"p{share}_us": percentile(ordered, share / 100) for share in (50, 95, 99)},
        }
    return found


def traffic(happened: Iterable[Event], *, window: float, k: int) -> Rows:
    """By window and rank: the busiest topics by messages, then by name."""
    messages: dict[int, Counter[str]] = defaultdict(Counter)
    sizes: dict[int, Counter[str]] = defaultdict(Counter)
    publishers: dict[tuple[int, str], set[str | None]] = defaultdict(set)
    for event in happened:
        if event.kind == "message.routed" and event.topic is not None and not event.topic.startswith("$"):
            begin = window_of(event.time, window)
            messages[begin][event.topic] += 1
            sizes[begin][event.topic] += event.size or 0
            publishers[begin, event.topic].add(event.publisher)
    found: Rows = {}
    for begin, counts in messages.items():
        order = sorted(counts, key=lambda topic: (-counts[topic], topic))
        for rank, topic in enumerate(order[:k], 1):
            found[begin, rank] = {
                "name": topic,
                "messages": counts[topic],
                "bytes": sizes[begin][topic],
                "clients": len(publishers[begin, topic]),
                "total_messages": counts.total(),
                "total_bytes": sizes[begin].total(),
                "names": len(counts),
                "share": counts[topic] / counts.total(),
            }
    return found


def flapping(happened: Iterable[Event], *, limit: int, window: float, calm: float, until: int) -> Rows:
    """By client, state and time: when a client began to connect more than `limit` times within `window` seconds, and
    when it had not done so for `calm` seconds. Nothing later than `until`."""
    connections: dict[str, list[int]] = defaultdict(list)
    for event in happened:
        if event.kind == "client.connected" and event.client_id is not None:
            connections[event.client_id].append(event.time)
    length, pause = round(window * SECOND), round(calm * SECOND)
    found: Rows = {}
    for client_id, times in connections.items():
        recent: list[int] = []
        began: int | None = None
        ends = total = 0
        for time in [*sorted(times), None]:
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
                # the client is too busy for as long as the oldest of the surplus connections counts
                ends = recent[-limit - 1] + length + pause
    return found


def silent(
    happened: Iterable[Event],
    *,
    factor: float,
    minimum: float,
    learn: int,
    learning: float,
    together: float,
    until: int,
) -> Rows:
    """By client, state and time: when a client had not published for `factor` times as long as usual, or `minimum`
    seconds, and when it did again. Nothing later than `until`."""
    published: dict[str, list[int]] = defaultdict(list)
    for event in happened:
        if event.kind == "message.publish" and event.client_id is not None:
            published[event.client_id].append(event.time)
    found: Rows = {}
    for client_id, times in published.items():
        usual, intervals = 0.0, 0
        patience = least = round(minimum * SECOND)
        beat = min(times)
        for at, following in pairwise([*sorted(times), None]):
            assert at is not None
            if at - beat >= together * SECOND:
                interval = at - beat if intervals < learn else min(at - beat, patience)
                intervals += 1
                usual += max(learning, 1 / intervals) * (interval - usual)
                patience = max(least, round(factor * usual))
                beat = at
            due = at + patience
            if intervals >= learn and due <= until and (following is None or following > due):
                row = {"last_seen": at, "usual": usual / SECOND}
                found[client_id, "begin", due] = row
                if following is not None:
                    found[client_id, "end", following] = row
    return found
