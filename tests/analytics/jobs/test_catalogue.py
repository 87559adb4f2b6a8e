"""The jobs that there are, and what each must have."""

import re
import subprocess
import sys

import pytest

from trunkline.analytics.jobs.catalogue import UnknownJob, find, summaries
from trunkline.hooks.points import POINTS


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
