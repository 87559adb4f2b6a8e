"""The jobs that there are, and what each must have."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from trunkline.analytics.jobs.catalogue import UnknownJob, find, summaries
from trunkline.hooks.points import POINTS

DOCS = Path(__file__).parents[3] / "docs"


def test_the_list_needs_no_spark() -> None:
    code = "import sys, trunkline.analytics.jobs.catalogue as c; c.summaries(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "trunkline.analytics.jobs.catalogue" in loaded
    assert not {"pyspark", "pyarrow", "pandas"} & set(loaded)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("latenzy", "did you mean latency?"),
        ("slow-consumer", "did you mean slow-consumers"),
        ("x", "there are audit,"),
    ],
)
def test_a_name_that_is_nearly_right_is_guessed(name: str, hint: str) -> None:
    with pytest.raises(UnknownJob, match=rf"no job '{name}': {re.escape(hint)}"):
        find(name)


@pytest.mark.parametrize("name", summaries())
def test_each_job_is_declared_in_full(name: str) -> None:
    pytest.importorskip("pyspark")
    from trunkline.events.schema import OWN_KINDS

    job = find(name)
    assert job.name == name
    assert job.description[0] == summaries()[name]
    assert job.description[1:]
    kinds = {point.name for point in POINTS} | {kind.name for kind in OWN_KINDS}
    assert set(job.kinds()) <= kinds | {"*"}
    assert all(field.description for field in job.options.model_fields.values())
    assert all(column.meaning.endswith(".") for column in job.columns)
    assert len({column.name for column in job.columns}) == len(job.columns)
    assert set(job.times) <= {column.name for column in job.columns if column.type == "timestamp"}


def test_the_pages_have_the_tables_of_every_job() -> None:
    """`python -m trunkline.analytics.jobs.reference` writes them."""
    pytest.importorskip("pyspark")
    from trunkline.analytics.jobs.reference import OVERVIEW, PAGES, pages

    before = {name: (DOCS / name).read_text(encoding="utf-8") for name in (*PAGES, OVERVIEW)}
    assert pages(DOCS) == before
    listed = re.findall(r"^\| \[`([\w-]+)`\]\((\S+)#\1\)", before[OVERVIEW], re.MULTILINE)
    assert sorted(job for job, _ in listed) == sorted(summaries())
    assert all(f"\n## {job}\n" in before[page] for job, page in listed)
