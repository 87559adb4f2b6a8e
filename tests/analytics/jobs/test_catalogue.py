"""The jobs that there are, and what each must have."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from trunkline.analytics.jobs.catalogue import CATALOGUE, UnknownJob, entry, find
from trunkline.hooks.points import POINTS

DOCS = Path(__file__).parents[3] / "docs"


def test_the_list_needs_no_spark() -> None:
    code = "import sys, trunkline.analytics.jobs.catalogue; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "trunkline.analytics.jobs.catalogue" in loaded
    assert not {"pyspark", "pyarrow", "pandas"} & set(loaded)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("latenzy", "did you mean latency?"),
        ("slow-consumer", "did you mean slow-consumers"),
        ("x", "there are latency,"),
    ],
)
def test_a_name_that_is_nearly_right_is_guessed(name: str, hint: str) -> None:
    for look in (entry, find):
        with pytest.raises(UnknownJob, match=rf"no job '{name}': {re.escape(hint)}"):
            look(name)


@pytest.mark.parametrize("name", CATALOGUE)
def test_each_job_is_declared_in_full(name: str) -> None:
    pytest.importorskip("pyspark")
    from trunkline.events.schema import OWN_KINDS

    job = find(name)
    assert job.name == name
    assert job.description
    kinds = {point.name for point in POINTS} | {kind.name for kind in OWN_KINDS}
    assert set(job.kinds()) <= kinds | {"*"}
    assert all(field.description for field in job.options.model_fields.values())
    assert all(column.meaning.endswith(".") for column in job.columns)
    assert len({column.name for column in job.columns}) == len(job.columns)
    assert set(job.times) <= {column.name for column in job.columns if column.type == "timestamp"}


def test_the_pages_have_the_tables_of_every_job() -> None:
    """`python -m trunkline.analytics.jobs.reference` writes them."""
    pytest.importorskip("pyspark")
    from trunkline.analytics.jobs.reference import PAGES, with_tables

    overview = (DOCS / "analytics.md").read_text(encoding="utf-8")
    found = 0
    for name in PAGES:
        page = (DOCS / f"jobs-{name}.md").read_text(encoding="utf-8")
        assert with_tables(page) == page
        for job, listed in CATALOGUE.items():
            if f"<!-- tables: {job} -->" in page:
                found += 1
                assert f"| [`{job}`](jobs-{name}.md#{job}) | {listed.summary} |" in overview
    assert found == len(CATALOGUE)
