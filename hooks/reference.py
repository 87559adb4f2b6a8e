"""The table of hook points in docs/hooks.md."""

from trunkline.hooks.points import POINTS


def points_table() -> str:
    """All points, in Markdown."""
    rows = ["| point | kind | called with | when |", "|---|---|---|---|"]
    for point in POINTS:
        kind = point.kind + ", may be async" * point.waits + ", takes publications" * (point.publication is not None)
        rows.append(f"| `{point.name}` | {kind} | `{', '.join(point.arguments)}` | {point.doc} |")
    return "\n".join(rows) + "\n"
