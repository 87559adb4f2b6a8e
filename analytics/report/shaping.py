"""From the rows of jobs to what a page shows."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from trunkline.analytics.report.figures import HELD
from trunkline.analytics.report.results import (
    AlarmTime,
    ClientSums,
    Correction,
    Denial,
    EndCount,
    Health,
    LimitChange,
    MessageSums,
    NodeSums,
    QueueReading,
    Stay,
    Window,
)
from trunkline.mqtt.reasons import Reason, in_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from pyspark.sql import Row

    from trunkline.events.layout import NodeKey


def holds_until(node: str, at: datetime, health: Sequence[Health]) -> datetime:
    """How long a reading counts if no other comes: as long as readings do, and as the node goes on recording."""
    alive = [each.newest for each in health if each.name == node and each.newest >= at]
    return min([at + timedelta(seconds=HELD), *alive[:1]])


def held(readings: Sequence[Row], health: Sequence[Health]) -> list[QueueReading]:
    """Each reading holds until the next one of the same session and node."""
    found: list[QueueReading] = []
    following: dict[tuple[str, str], datetime] = {}
    for row in sorted(readings, key=lambda row: row["time"], reverse=True):
        key = row["node"], row["client_id"]
        longest = holds_until(row["node"], row["at"], health)
        until = min(longest, following.get(key, longest))
        following[key] = row["time"]
        found.append(QueueReading(row["time"], row["client_id"], row["length"], row["last"], until))
    return found[::-1]


def windows(timeline: Sequence[Row]) -> list[Window]:
    """The sums of each window, whatever their sort; a sort that no window has a field for is left out."""
    found: dict[datetime, Counter[str]] = defaultdict(Counter)
    for row in timeline:
        found[row["time"]].update({row["sort"]: row["events"], f"{row['sort']}_bytes": row["bytes"]})
    return [Window(time, *(found[time][name] for name in Window._fields[1:])) for time in sorted(found)]


def _why_closed(reason: int) -> str:
    if reason == Reason.UNSPECIFIED_ERROR:  # what the broker records for a connection that ended in no other way
        return "lost, or closed without a DISCONNECT"
    return in_words(reason)


def ends(timeline: Sequence[Row]) -> list[EndCount]:
    found = Counter[tuple[str, str]]()
    for row in timeline:
        if row["sort"] == "disconnected":
            reason = _why_closed(int(row["reason"])) if row["reason"] else "unknown"
            found["connection", reason] += row["events"]
        elif row["sort"] in ("ended", "taken over"):
            found["session", row["reason"] or row["sort"]] += row["events"]
    return [EndCount(of, reason, times) for (of, reason), times in found.most_common()]


def nodes(timeline: Sequence[Row], versions: Mapping[str, Sequence[str]], starts: Mapping[str, int]) -> list[NodeSums]:
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for row in timeline:
        sums[row["node"]][row["sort"]] += row["events"]
    return [
        NodeSums(
            name,
            ", ".join(versions.get(name, ())),
            starts.get(name, 0),
            *(sums[name][sort] for sort in ("connected", "published", "delivered", "dropped")),
        )
        for name in sorted(sums.keys() | versions.keys())
    ]


def facts(rows: Sequence[Row], begin: datetime, running: Sequence[NodeKey]) -> dict[str, Any]:
    """Alarms, corrections of clocks, limits that changed, and the versions and starts of each node in the period that
    has this `begin`, from all rows in the order of time. `running` are the incarnations of the period."""
    alarms: dict[tuple[str, str], AlarmTime] = {}
    ended: list[AlarmTime] = []
    corrections: list[Correction] = []
    versions: dict[str, list[str]] = defaultdict(list)
    starts = Counter[str]()
    limits: dict[tuple[str, str], float] = {}
    changes: list[LimitChange] = []
    said: dict[tuple[str, int], list[tuple[str, str | None]]] = defaultdict(list)
    for row in rows:
        node, time = row["node"], row["time"]
        key = node, row["name"]
        match row["kind"]:
            case "exporter.started" | "node.version":
                if row["kind"] == "exporter.started":
                    starts[node] += time >= begin
                    # they ended by now, or are said to be on again
                    ended += [alarms.pop(each)._replace(end=time) for each in list(alarms) if each[0] == node]
                version = row["reason"] or row["name"]
                if (node, row["incarnation"]) in running and version and version not in versions[node]:
                    versions[node].append(version)
            case "exporter.records":
                said[node, row["incarnation"]].append((row["name"], row["reason"]))
            case "node.clock" if time >= begin:
                corrections.append(Correction(node, time, row["value"]))
            case "node.limit":
                former = limits.get(key)
                limits[key] = row["value"]
                if former not in (None, row["value"]) and time >= begin:
                    changes.append(LimitChange(node, time, row["name"], former or 0.0, row["value"]))
            case "alarm.deactivated":
                begun = alarms.pop(key, AlarmTime(*key, row["reason"] or "", None, None))
                ended.append(begun._replace(end=time))
            case "alarm.activated" | "alarm.active" if key not in alarms:
                began = time if row["kind"] == "alarm.activated" else None
                alarms[key] = AlarmTime(*key, row["reason"] or "", began, None)
            case _:
                pass
    of_period = [said[key] for key in running]
    kinds = [frozenset(name for name, _ in each) for each in of_period]
    return {
        "alarms": [*(alarm for alarm in ended if alarm.end is None or alarm.end >= begin), *alarms.values()],
        "corrections": corrections,
        "limits": changes,
        "versions": versions,
        "starts": starts,
        "recorded": frozenset.intersection(*kinds) if kinds and all(kinds) else None,
        "narrowed": sorted({word for each in of_period for _, reason in each if reason for word in reason.split(", ")}),
    }


def denial(row: Row) -> Denial:
    return Denial(
        row["client_id"] or "",
        row["peer"] or "",
        row["action"],
        (row["topic"] if row["reason_code"] is None else in_words(row["reason_code"])) or "",
        row["times"],
    )


def health(findings: Sequence[Row]) -> list[Health]:
    sums: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for row in findings:
        sums[row["node"], row["incarnation"]][row["check"]] += row["rows"] or 0
    found = [
        Health(
            node=f"{row['node']}@{row['incarnation']}",
            name=row["node"],
            begin=row["since"],
            newest=row["until"],
            events=row["rows"],
            missing=sum((counts := sums[row["node"], row["incarnation"]])[why] for why in ("gap", "lost", "unread")),
            dropped=counts["dropped"],
            corrupt=counts["corrupt"],
            end=row["reason"],
        )
        for row in findings
        if row["check"] == "incarnation"
    ]
    return sorted(found, key=lambda each: (each.begin, each.node))


def clients(names: Sequence[str], done: Sequence[Row], stays: Sequence[Row]) -> dict[str, ClientSums]:
    """What each of them did, from sums by kind and reason, and from how long they were connected."""
    rows: dict[str, list[Row]] = defaultdict(list)
    for row in done:
        rows[row["client_id"]].append(row)
    stayed = {row["client_id"]: row for row in stays}
    return {name: _client(rows[name], stayed.get(name)) for name in names}


def _client(rows: Sequence[Row], stayed: Row | None) -> ClientSums:
    by_kind = {row["kind"]: row for row in rows}

    def messages(kind: str) -> MessageSums:
        row = by_kind.get(kind)
        return MessageSums() if row is None else MessageSums(row["events"], row["bytes"], row["last"], row["topics"])

    refused = by_kind.get("client.connack")
    return ClientSums(
        stay=None if stayed is None else Stay(*(stayed[name] for name in Stay._fields)),
        published=messages("message.publish"),
        delivered=messages("message.delivered"),
        dropped=Counter(
            {row["reason"] or "unknown": row["events"] for row in rows if row["kind"] == "message.dropped"}
        ),
        refused=0 if refused is None else refused["events"],
    )
