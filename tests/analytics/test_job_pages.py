"""The pages about jobs show what the jobs say of the log that an example records."""

import re
import runpy
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock

pytest.importorskip("pyspark")

from click.testing import CliRunner

from tests.analytics.test_commands import Shared
from trunkline.analytics.commands import analytics
from trunkline.analytics.jobs.reference import PAGES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
TEXTS = {page: (ROOT / "docs" / page).read_text(encoding="utf-8") for page in PAGES}
BLOCK = re.compile(r"^```console\n\$ trunkline analytics run (.*?)^```", re.MULTILINE | re.DOTALL)
#: Each command, and its output.
SHOWN = [
    (command, output)
    for text in TEXTS.values()
    for block in BLOCK.findall(text)
    for command, _, output in [block.replace("\\\n", "").partition("\n")]
    if "--input recorded" in command
]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("example") / "recorded"
    example = runpy.run_path(str(ROOT / "examples" / "recorded_hour.py"))
    trio.run(example["main"], str(folder), clock=MockClock(autojump_threshold=0))
    return folder


def test_each_job_shows_what_it_finds() -> None:
    jobs = {job for text in TEXTS.values() for job in re.findall(r"<!-- tables: ([\w-]+) -->", text)}
    shown = {command.split()[0] for command, _ in SHOWN}
    assert jobs == shown


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=[command.split()[0] for command, _ in SHOWN])
def test_a_job_finds_what_its_page_shows(
    command: str, output: str, recorded: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trunkline.analytics.spark.session", lambda *_, **__: Shared(spark))
    words = [str(recorded) if word == "recorded" else word for word in shlex.split(command)]
    found = CliRunner().invoke(analytics, ["run", *words], catch_exceptions=False)
    assert found.stdout.splitlines() == output.splitlines()
