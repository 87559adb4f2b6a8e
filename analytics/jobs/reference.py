"""Writes the tables of jobs, and of their options and results, into the pages about them: `python -m
trunkline.analytics.jobs.reference`."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trunkline.analytics.explaining import meaning, shown
from trunkline.analytics.jobs.catalogue import find, summaries

if TYPE_CHECKING:
    from trunkline.analytics.jobs.job import Job

#: `docs/analytics.md` explains these once.
SHARED: Final = ("lateness", "buckets")
PAGES: Final = tuple(f"jobs-{name}.md" for name in ("traffic", "clients", "security", "queues"))
OVERVIEW: Final = "analytics.md"
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


def pages(folder: Path) -> dict[str, str]:
    """The pages with the tables of today, by name."""
    found = {name: (folder / name).read_text(encoding="utf-8") for name in (*PAGES, OVERVIEW)}
    overview = ["| job | |", "|---|---|"]
    for name in PAGES:
        jobs = [each[2] for each in _PLACE.finditer(found[name])]
        overview += [f"| [`{job}`]({name}#{job}) | {summaries()[job]} |" for job in jobs]
    return {name: _PLACE.sub(lambda place: _filled(place, overview), page) for name, page in found.items()}


def _filled(place: re.Match[str], overview: Iterable[str]) -> str:
    lines = overview if place[2] == "jobs" else tables(find(place[2]))
    return "\n".join([place[1].strip(), *lines, place[3]])


if __name__ == "__main__":
    for name, page in pages(Path("docs")).items():
        Path("docs", name).write_text(page, encoding="utf-8")
