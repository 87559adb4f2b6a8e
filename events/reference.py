"""The tables of docs/events.md."""

from trunkline.events.schema import COLUMNS, OWN_KINDS


def columns_table() -> str:
    """All columns, in Markdown."""
    rows = ["| column | type in Spark | meaning |", "|---|---|---|"]
    rows += [f"| `{column.name}` | {column.spark} | {column.meaning} |" for column in COLUMNS]
    return "\n".join(rows) + "\n"


def kinds_table() -> str:
    """The kinds that no hook point has, in Markdown."""
    rows = ["| kind | when |", "|---|---|"]
    rows += [f"| `{kind.name}` | {kind.meaning} |" for kind in OWN_KINDS]
    return "\n".join(rows) + "\n"
