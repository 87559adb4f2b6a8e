"""Writes the tables of options and results into the pages about jobs: `python -m
trunkline.analytics.jobs.reference`."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trunkline.analytics.explaining import meaning, shown
from trunkline.analytics.jobs.catalogue import find

if TYPE_CHECKING:
    from trunkline.analytics.jobs.job import Job

#: `docs/analytics.md` explains these once.
SHARED: Final = ("lateness", "buckets")
PAGES: Final = ("traffic", "clients", "security", "queues")
_PLACE: Final = re.compile(r"(<!-- tables: ([\w-]+) -->\n).*?(<!-- end -->\n)", re.DOTALL)


def tables(job: "Job[Any]") -> Iterator[str]:
    """Options and results of a job, in Markdown, line by line."""
    yield "| option | default | |"
    yield "|---|---|---|"
    for name, field in job.options.model_fields.items():
        if name not in SHARED:
            yield f"| `{name}` | {shown(field.default)} | {_cell(meaning(field))} |"
    yield ""
    yield "| column | type | |"
    yield "|---|---|---|"
    for column in job.columns:
        yield f"| `{column.name}` | {column.type} | {_cell(column.meaning)} |"


def _cell(text: str) -> str:
    """A row of a table is one line."""
    return " ".join(text.split())


def with_tables(page: str) -> str:
    """The page with the tables of today."""
    return _PLACE.sub(lambda found: "\n".join([found[1].strip(), *tables(find(found[2])), found[3]]), page)


def main() -> None:
    for name in PAGES:
        path = Path(f"docs/jobs-{name}.md")
        path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
