"""Pages of jobs tell of all that the jobs take and give."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
from trunkline.analytics.jobs.catalogue import find

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("name", ["unheard", "queues", "slow-consumers", "audit", "balance", "moves"])
def test_a_page_has_every_option_and_every_column_in_words(name: str) -> None:
    page = (DOCS / f"job-{name}.md").read_text(encoding="utf-8")
    job = find(name)
    missing = [option for option in job.options.model_fields if f"\n| `{option}` | " not in page]
    missing += [
        column.name
        for column in job.columns
        if f"\n| `{column.name}` | {column.type} | {column.meaning} |\n" not in page
    ]
    assert not missing
