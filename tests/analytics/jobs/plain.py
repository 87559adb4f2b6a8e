"""What the stateful jobs should tell, computed in plain Python from whole lists: slowly, by the words of the
definition."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from tests.analytics.events_made import Row, microseconds

SECOND = 1_000_000
#: What happened: when (microseconds since the epoch), by weight, and a name.
Happened = tuple[int, int, str | None]


def moment(at: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)


def in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["time"], row["node"], row["incarnation"], row["seq"]))


def grouped(rows: Iterable[Row], column: str) -> dict[str, list[Row]]:
    groups = defaultdict(list)
    for row in in_order(rows):
        if row[column] is not None:
            groups[row[column]].append(row)
    return groups


def _weights(inside: Sequence[Happened]) -> int:
    return sum(weight for _, weight, _ in inside)


def _first(inside: Sequence[Happened], names: bool) -> int:
    """A name is as young as its latest time."""
    return min({name: at for at, _, name in inside}.values()) if names else inside[0][0]


def _names(inside: Sequence[Happened]) -> int:
    return len({name for _, _, name in inside})


def bursts(
    events: Sequence[Happened], limit: int, window: int, calm: int, until: int, *, names: bool = False
) -> list[Row]:
    """Alerts about more than `limit` within any stretch of `window`, as rows of their beginnings and ends."""
    amount = _names if names else _weights
    over = []
    for number, (now, *_) in enumerate(events):
        inside = [event for event in events[: number + 1] if event[0] > now - window]
        if amount(inside) > limit:
            leaving = (at + window for at, *_ in inside)
            end = next(e for e in leaving if amount([event for event in inside if event[0] + window > e]) <= limit)
            over.append((number, now, end, amount(inside), _first(inside, names)))
    found: list[list[Any]] = []
    for number, now, end, count, first in over:
        if found and now <= found[-1][2] + calm:
            found[-1][2] = max(found[-1][2], end)
            found[-1][5] = now
        else:
            found.append([number, now, end, count, first, now])
    rows: list[Row] = []
    for number, begin, over_until, count, first, last in found:
        end = over_until + calm
        rows.append({"state": "begin", "time": begin, "began": begin, "count": count, "threshold": float(limit)})
        if end > until:
            continue
        for other, (at, weight, name) in enumerate(events[number + 1 :], number + 1):
            if at <= end:
                known = {name for at_before, _, name in events[:other] if at_before > at - window}
                count += int(name not in known) if names else weight
        about = {"began": begin, "count": count, "duration": (last - first) / SECOND}
        rows.append({"state": "end", "time": end, **about})
    return rows


def surges(
    events: Sequence[Happened],
    *,
    window: int,
    factor: float,
    minimum: float,
    learning: float,
    calm: int,
    until: int,
    trusting: bool,
) -> list[Row]:
    """Alerts about windows that are above a threshold that moves with the windows before. Nothing is ever forgotten."""
    per_window = defaultdict(list)
    for at, weight, _ in events:
        per_window[at // window].append((at, weight))
    if not per_window:
        return []
    rows: list[Row] = []
    usual = None if trusting else 0.0
    begin = over_until = None
    total = first = last = 0
    for number in range(min(per_window), until // window + 1):
        end = (number + 1) * window
        threshold = None if usual is None else max(minimum, factor * usual)
        count = 0
        for at, weight in per_window[number]:
            count += weight
            total += weight
            if begin is None and threshold is not None and count > threshold:
                begin, over_until, total = at, end, count
                first = per_window[number][0][0]
                rows.append(
                    {"state": "begin", "time": at, "began": at, "count": count, "threshold": threshold, "usual": usual}
                )
            if threshold is not None and count > threshold:
                last = at
        if end > until:
            break
        if threshold is not None and count > threshold:
            over_until = end
        elif begin is not None and over_until is not None and end - over_until >= calm:
            about = {"began": begin, "count": total, "duration": (last - first) / SECOND}
            rows.append({"state": "end", "time": end, **about})
            begin = None
        if usual is None or threshold is None:
            usual = float(count)
        else:
            usual = (1 - learning) * usual + learning * min(count, threshold)
    return rows


def silences(times: Sequence[int], options: Any, until: int) -> list[Row]:
    """Silences of a client that published at these times. Nothing is ever forgotten."""
    together, minimum = options.together * SECOND, options.minimum * SECOND
    beat, intervals, usual = times[0], 0, 0.0
    rows: list[Row] = []
    for at, following in pairwise((*times, None)):
        if at - beat >= together:
            interval = at - beat
            if intervals >= options.learn:
                interval = min(interval, max(minimum, round(options.factor * usual)))
            intervals += 1
            share = max(options.learning, 1 / intervals)
            usual = (1 - share) * usual + share * interval
            beat = at
        wait = max(minimum, round(options.factor * usual))
        if intervals < options.learn or at + wait > until or (following is not None and following <= at + wait):
            continue
        about = {"last_seen": moment(at), "usual": usual / SECOND, "threshold": wait / SECOND}
        rows.append({**about, "state": "begin", "time": moment(at + wait), "silence": wait / SECOND})
        if following is not None:
            rows.append({**about, "state": "end", "time": moment(following), "silence": (following - at) / SECOND})
    return rows


HOW = {0: "left", 4: "left", 128: "lost", 139: "shutdown", 141: "keep_alive", 142: "taken_over", 152: "kicked"}


def connections(rows: Sequence[Row], timeout: int, until: int) -> list[Row]:
    """Connections to one node, of one incarnation that was never stopped, and whose disconnections say when they
    began."""
    beats = [microseconds(row["time"]) for row in in_order(rows) if row["client_id"] is None]
    deaths = [before for before, after in pairwise((*beats, until + timeout + 1)) if after > before + timeout]
    never = until + 1
    told: list[Row] = []
    for client, events in grouped(rows, "client_id").items():
        begun = [microseconds(row["time"]) for row in events if row["kind"] == "client.connected"]
        ends = {
            microseconds(row["time"]) - row["latency_us"]: row for row in events if row["kind"] == "client.disconnected"
        }
        for began, again in pairwise((*begun, never)):
            near = min(ends, key=lambda at: abs(at - began), default=None)
            ended = microseconds(ends[near]["time"]) if near is not None and abs(near - began) <= 5 * SECOND else never
            death = next((at for at in deaths if at + timeout >= began), never)
            given_up = again + 10 * SECOND
            if near is not None and ended <= min(death + timeout, given_up, until):
                told.append(_connection(client, began, ended, ends.pop(near)))
            elif death + timeout <= min(given_up, until):
                told.append(_ending(client, began, max(death, began), "node_killed"))
            elif given_up <= until:
                told.append(_ending(client, began, again, "unrecorded"))
            else:
                told.append(_ending(client, began, None, "open"))
        told += [_connection(client, began, microseconds(end["time"]), end) for began, end in ends.items()]
    return told


def _ending(client: str, began: int, ended: int | None, how: str) -> Row:
    return {"client_id": client, "began": moment(began), "ended": None if ended is None else moment(ended), "how": how}


def _connection(client: str, began: int, ended: int, end: Row) -> Row:
    return {
        "client_id": client,
        "began": moment(began),
        "ended": moment(ended),
        "duration": (ended - began) / SECOND,
        "how": HOW.get(end["reason_code"], "error"),
        "reason_code": end["reason_code"],
        "reason": end["reason"],
    }
