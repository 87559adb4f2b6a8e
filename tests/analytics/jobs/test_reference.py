import re
from pathlib import Path

import pytest

from trunkline.analytics.jobs.catalogue import summaries

DOCS = Path(__file__).parents[3] / "docs"


def test_the_pages_have_the_tables_of_every_job() -> None:
    """`python -m trunkline.analytics.jobs.reference` writes them."""
    pytest.importorskip("pyspark")
    from trunkline.analytics.jobs.reference import OVERVIEW, PAGES, pages

    before = {name: (DOCS / name).read_text(encoding="utf-8") for name in (*PAGES, OVERVIEW)}
    assert pages(DOCS) == before
    listed = re.findall(r"^\| \[`([\w-]+)`\]\((\S+)#\1\)", before[OVERVIEW], re.MULTILINE)
    assert sorted(job for job, _ in listed) == sorted(summaries())
    assert all(f"\n## {job}\n" in before[page] for job, page in listed)
