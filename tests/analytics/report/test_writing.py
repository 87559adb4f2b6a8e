from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.analytics.report.made import nothing
from trunkline.analytics.report import writing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """What jobs would find, without Spark."""

    def collect(*given: Any, **more: Any) -> object:
        return nothing()

    monkeypatch.setattr(writing, "collect", collect)


@pytest.mark.usefixtures("collected")
def test_the_page_is_written_whole_and_nothing_else(tmp_path: Path) -> None:
    html = tmp_path / "report.html"
    spark: SparkSession = None  # type: ignore[assignment]
    for _ in range(2):
        assert writing.write(spark, "events", html) == nothing()
    assert html.read_text(encoding="utf-8").endswith("</html>\n")
    assert list(html.parent.iterdir()) == [html]


@pytest.mark.usefixtures("collected")
def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    html = tmp_path / "report.html"
    html.write_text("old", encoding="utf-8")

    def fail(results: object) -> str:
        raise OSError("the disk is full")

    monkeypatch.setattr(writing, "render", fail)
    with pytest.raises(OSError, match="full"):
        writing.write(None, "events", html)  # type: ignore[arg-type]
    assert html.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [html]
