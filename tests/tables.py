"""Tables of states and events in the documentation."""

from pathlib import Path


def transitions_in(page: Path, heading: str) -> dict[tuple[str, str], str]:
    """The first table with this heading over its first column. Events are the others' headings."""
    lines = iter(page.read_text().splitlines())
    head = next(line for line in lines if line.startswith(f"| {heading} |"))
    events = _cells(head)[1:]
    next(lines)
    found: dict[tuple[str, str], str] = {}
    for line in lines:
        if not line.startswith("|"):
            break
        state, *following = _cells(line)
        found |= {(state, event): after for event, after in zip(events, following, strict=True) if after}
    return found


def _cells(line: str) -> list[str]:
    return [cell.strip().strip("`") for cell in line.strip("|").split("|")]
