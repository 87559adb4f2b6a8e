import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

from tests.analytics.source.logs import ticks, write
from trunkline.analytics.options import OptionError
from trunkline.analytics.source.wrong_options import in_one_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_what_is_wrong_is_told_in_the_first_line(spark: "SparkSession", tmp_path: Path) -> None:
    write(tmp_path, ticks("n1", 0, 5))
    wrong = (
        ({"maxRowsPerTriger": "5"}, None, "unknown option maxrowspertriger"),
        ({}, "kind int", "schema: column kind is string"),
        ({"nodes": "n9"}, None, "option nodes='n9': there is no such node"),
        ({"startingOffsets": "latest"}, None, "option startingOffsets='latest': a batch would be empty"),
    )
    for options, schema, complaint in wrong:
        reader = spark.read.format("trunkline").options(**options)
        with pytest.raises(AnalysisException) as caught:
            (reader.schema(schema) if schema else reader).load(str(tmp_path)).collect()
        assert complaint in str(caught.value).splitlines()[0]


def test_elsewhere_than_in_spark_nothing_is_hidden() -> None:
    with pytest.raises(OptionError, match="zzz"), in_one_line():
        raise OptionError("zzz")
    assert "SPARK_HIDE_TRACEBACK" not in os.environ
