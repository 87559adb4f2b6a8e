import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.analytics.report.made import HOSTILE, Loss, bad_day, nothing, whole
from trunkline.analytics.report import page
from trunkline.analytics.report.page import render

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECTIONS = [
    "nodes",
    "alarms",
    "gauges",
    "traffic",
    "latency",
    "connections",
    "ends",
    "flapping",
    "silent",
    "talkers",
    "topics",
    "use",
    "denials",
    "drops",
    "queues",
    "pipeline",
]
#: What a page with nothing but this tells of itself, when somebody looks from outside.
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)


class Seen(HTMLParser):
    """All elements of a page, and that they are closed in order."""

    VOID = frozenset(("meta", "link", "img", "br", "input", "hr"))

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def attributes(seen: Seen, name: str) -> list[str]:
    return [value for _, found in seen.elements if (value := found.get(name)) is not None]


def test_names_of_clients_stay_text() -> None:
    page = render(bad_day())
    seen = Seen(page)
    assert not {"script", "img", "iframe", "object"} & {tag for tag, _ in seen.elements}
    assert not [found for _, found in seen.elements if any(name.startswith("on") for name in found)]
    assert HOSTILE not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 10


def test_the_page_needs_nothing_else() -> None:
    seen = Seen(render(bad_day()))
    assert not attributes(seen, "src")
    assert all(target.startswith(("#", "data:")) for target in attributes(seen, "href"))
    assert "url(" not in render(bad_day())
    assert "@import" not in render(bad_day())


@pytest.mark.parametrize("results", [bad_day(), nothing()])
def test_references_lead_to_one_element_each(results: object) -> None:
    seen = Seen(render(results))  # type: ignore[arg-type]
    names = attributes(seen, "id")
    assert len(set(names)) == len(names)
    wanted = [target[1:] for target in attributes(seen, "href") if target.startswith("#")]
    wanted += [name for value in attributes(seen, "aria-labelledby") for name in value.split()]
    assert set(wanted) <= set(names)
    assert set(SECTIONS) <= set(names)


def test_drawings_and_tables_say_what_they_are() -> None:
    page = render(bad_day())
    drawings = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(drawings) == 8
    assert all(re.search(r"<title [^>]*>[^<]+</title>\s*<desc [^>]*>[^<]+</desc>", drawing) for drawing in drawings)
    tables = re.findall(r"<table>.*?</table>", page, re.DOTALL)
    assert len(tables) == 8 + 34
    assert all("<caption" in table and 'scope="col"' in table for table in tables)


def test_the_name_of_a_client_leads_to_all_that_names_it() -> None:
    page = render(bad_day())
    (id,) = set(re.findall(r'<a href="#(client-\d+)">archive</a>', page))
    (entry,) = re.findall(rf'<div id="{id}">(.*?)</div>', page, re.DOTALL)
    assert re.findall(r'href="#([\w-]+)"', entry) == ["dead-subscriptions", "queue-growth", "slow-consumers", "losses"]
    assert page.count(f'href="#{id}"') == 4
    assert 'id="named"' not in render(nothing())


def test_clients_whose_names_look_the_same_are_told_apart() -> None:
    names = [f"{'x' * 80}{last}" for last in "ab"]
    page = render(replace(nothing(), losses=whole([Loss(name, "queue_full", 1) for name in names])))
    assert re.findall(r'<a href="#(client-\d)">x+', page) == ["client-1", "client-2"]


def test_a_page_is_bounded() -> None:
    assert len(render(bad_day())) < 500_000


def test_nothing_is_said_in_words() -> None:
    page = render(nothing())
    assert "Nothing stands out." in page
    assert page.count('class="nothing"') == len(SECTIONS)
    assert "<svg" not in page


def test_the_same_results_give_the_same_page() -> None:
    assert render(bad_day()) == render(bad_day())


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_a_browser_shows_all_sections_and_complains_of_nothing(tmp_path: Path) -> None:
    assert CHROMIUM is not None
    page = tmp_path / "report.html"
    page.write_text(render(bad_day()), encoding="utf-8")
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    flags += " --disable-component-update --disable-sync --enable-logging=stderr --dump-dom"
    command = [CHROMIUM, *flags.split(), f"--user-data-dir={tmp_path / 'profile'}", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert "CONSOLE" not in done.stderr, done.stderr
    seen = re.findall(r'<section id="([a-z]+)"', done.stdout)
    assert seen == ["summary", *SECTIONS, "named"]
    assert "<script" not in done.stdout


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """What jobs would find, without Spark."""

    def collect(*given: Any, **more: Any) -> object:
        return nothing()

    monkeypatch.setattr(page, "collect", collect)


@pytest.mark.usefixtures("collected")
def test_the_page_is_written_whole_and_nothing_else(tmp_path: Path) -> None:
    html = tmp_path / "report.html"
    spark: SparkSession = None  # type: ignore[assignment]
    for _ in range(2):
        assert page.write(spark, "events", html) == nothing()
    assert html.read_text(encoding="utf-8").endswith("</html>\n")
    assert list(html.parent.iterdir()) == [html]


@pytest.mark.usefixtures("collected")
def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    html = tmp_path / "report.html"
    html.write_text("old", encoding="utf-8")

    def fail(results: object) -> str:
        raise OSError("the disk is full")

    monkeypatch.setattr(page, "render", fail)
    with pytest.raises(OSError, match="full"):
        page.write(None, "events", html)  # type: ignore[arg-type]
    assert html.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [html]
