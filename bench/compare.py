"""Changes since an earlier run: each ratio, and each figure by processor time."""

from typing import Any

from bench.results import Row, rows

HEADER = f"{'':<50}{'ratio':>8}{'before':>9}{'change':>9}{'per CPU s':>14}{'before':>12}{'change':>9}"


def compare(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Those that both have a rank in; then what only one of them has."""
    old = {(row.case, row.peer): row for row in rows(before)}
    new = {(row.case, row.peer): row for row in rows(after)}
    lines = [f"changes since {before.get('date', 'an earlier run')}", HEADER, "-" * len(HEADER)]
    differing = {key: (before["machine"].get(key), after["machine"].get(key)) for key in ("cpu", "cores", "python")}
    notes = [f"another machine: {key} {was} then, {now} now" for key, (was, now) in differing.items() if was != now]
    for key, row in new.items():
        earlier = old.get(key)
        if earlier is None:
            notes.append(f"new: {row.case}, {row.peer}")
        elif row.rate is None or earlier.rate is None:
            if row.state != earlier.state:
                notes.append(f"{row.case}, {row.peer}: {earlier.state} then, {row.state} now")
        else:
            lines.append(changes(earlier, row))
            if row.base != earlier.base:
                notes.append(f"{row.case}, {row.peer}: its ratio was to {earlier.base} then, is to {row.base} now")
    notes += [f"not run any more: {case}, {peer}" for case, peer in old if (case, peer) not in new]
    return "\n".join([*lines, "", *notes]) if notes else "\n".join(lines)


def changes(before: Row, after: Row) -> str:
    ratios = columns(before.ratio if before.base == after.base else None, after.ratio, "8.2f")
    work = columns(before.per_cpu_second, after.per_cpu_second, "12,.0f")
    return f"{f'{after.case}, {after.peer}':<50}{ratios}  {work}"


def columns(before: float | None, after: float | None, form: str) -> str:
    """After, before, and the change where both are known."""
    width = int(form.split(".")[0].rstrip(","))
    shown = [f"{value:{form}}" if value is not None else f"{'-':>{width}}" for value in (after, before)]
    change = f"{after / before - 1:+.1%}" if after is not None and before else "-"
    return f"{shown[0]} {shown[1]}{change:>9}"
