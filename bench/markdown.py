"""The results as tables for a document: a row a workload, a column a peer."""

from typing import Any

from bench.results import Case, Row, rows, size


def markdown(kept: dict[str, Any]) -> str:
    found = rows(kept)
    peers = list(dict.fromkeys(row.peer for row in found))
    cases: dict[Case, dict[str, Row]] = {}
    for row in found:
        cases.setdefault(row.case, {})[row.peer] = row
    head = "| workload | MQTT | payload | unit | " + " | ".join(peers) + " |"
    rule = "|---|---|---|---|" + "---:|" * len(peers)
    parts = [about(kept), "", head, rule]
    for case, by_peer in cases.items():
        parts.append(line(case, by_peer, [rate(by_peer.get(peer)) for peer in peers]))
    parts += ["", "By the processor time that the broker took:", "", head, rule]
    for case, by_peer in cases.items():
        if any(row.per_cpu_second for row in by_peer.values()):
            parts.append(line(case, by_peer, [work(by_peer.get(peer)) for peer in peers]))
    if any(row.bytes_each for row in found):
        parts += ["", "Resident bytes of each connection, subscription or retained message:", "", head, rule]
        for case, by_peer in cases.items():
            if any(row.bytes_each for row in by_peer.values()):
                parts.append(line(case, by_peer, [memory(by_peer.get(peer)) for peer in peers], "bytes"))
    return "\n".join(parts) + "\n"


def about(kept: dict[str, Any]) -> str:
    machine, versions = kept["machine"], kept.get("peers", {})
    named = ", ".join(f"{peer} {version}" for peer, version in versions.items() if version)
    host = f"{machine['cpu'] or 'unknown processor'}, {machine['cores']} cores, {machine['system']}"
    words = [kept.get("date", "")[:10], host, f"Python {machine['python']}", named]
    return "; ".join(word for word in words if word) + "."


def line(case: Case, by_peer: dict[str, Row], cells: list[str], unit: str = "") -> str:
    unit = unit or next(iter(by_peer.values())).unit
    return f"| `{case.name}` | {case.version} | {size(case.payload)} | {unit} | " + " | ".join(cells) + " |"


def rate(row: Row | None) -> str:
    """With its ratio to the first peer."""
    if row is None:
        return "-"
    if row.rate is None:
        return row.state
    return f"{row.rate:,.0f}" if row.ratio is None else f"{row.rate:,.0f} ({row.ratio:.2f})"


def work(row: Row | None) -> str:
    return "-" if row is None or row.per_cpu_second is None else f"{row.per_cpu_second:,.0f}"


def memory(row: Row | None) -> str:
    return "-" if row is None or row.bytes_each is None else f"{row.bytes_each:,.0f}"
