"""What the README shows of Spark works."""

import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark_topics.py"


def test_spark_topics(spark: "SparkSession", capsys: pytest.CaptureFixture[str]) -> None:
    """With the session that the tests share, which is the one that the example finds."""
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert capsys.readouterr().out == "plant/0 7\nplant/1 7\nplant/2 6\n"
