"""The jobs that there are, and what each must have."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from trunkline.analytics.jobs.catalogue import CATALOGUE, UnknownJob, entry, find
from trunkline.hooks.points import POINTS

DOCS = Path(__file__).parents[3] / "docs"
_OPTION = re.compile(r"^\| `(\w+)` \| (.+?) \| (.+) \|$", re.MULTILINE)


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


@pytest.mark.parametrize("name", CATALOGUE)
def test_each_job_has_a_page_with_its_options_and_columns(name: str) -> None:
    pytest.importorskip("pyspark")
    job = find(name)
    page = (DOCS / f"job-{name}.md").read_text(encoding="utf-8")
    options = page.partition("\n## Options\n")[2].partition("\n## ")[0]
    rows = {name: (default, words) for name, default, words in _OPTION.findall(options)}
    for option, field in job.options.model_fields.items():
        assert option in rows, f"option {option}"
        default: Any = field.default
        if isinstance(default, float | bool) or (isinstance(default, str) and default in get_args(field.annotation)):
            written = f"{default:g}" if isinstance(default, float) else str(default).lower()
            assert rows[option][0].strip("`") == written, f"default of {option}"
        assert rows[option][1].startswith(field.description or "-"), option
    missing = [
        column.name
        for column in job.columns
        if f"\n| `{column.name}` | {column.type} | {column.meaning} |\n" not in page
    ]
    assert not missing
    assert f"\n| [`{name}`](job-{name}.md) | {job.summary} |\n" in (DOCS / "analytics.md").read_text(encoding="utf-8")
