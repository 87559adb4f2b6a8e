from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.management.plugin_packages import BELL, Install, installing
from trunkline.management.plugin_listing import Row, as_cells, installed_rows, page_lines, plugin_page
from trunkline.plugins import PluginError

DOES = "Rings when a client connects."
BELL_ROW = {"name": "bell", "package": "bells", "version": "1.2", "enabled": True, "scope": "worker"}


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    (tmp_path / "site").mkdir()
    with installing(tmp_path / "site", monkeypatch) as install:
        install("bells", BELL, bell="Bell", function="function")
        yield install


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "broker.toml"


def rows(path: Path | None = None) -> dict[str, Row]:
    return {row["name"]: row for row in installed_rows(path)}


def text(name: str, width: int) -> str:
    return "\n".join(page_lines(plugin_page(name), width))


def test_what_is_installed(install: Install) -> None:
    found = rows()
    assert found["bell"] == {**BELL_ROW, "enabled": False, "does": DOES, "problem": None}
    assert found["function"]["does"] == "Of the module."
    assert found["topic-rewrite"]["does"].startswith("Replaces the topics that clients use, ")
    assert found["topic-rewrite"]["package"] == "trunkline"
    assert list(found) == sorted(found)


def test_enabled_by_a_file_or_a_variable(install: Install, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("[plugins.bell]\n[plugins.function]\nenabled = false\n")
    found = rows(file)
    assert found["bell"]["enabled"]
    assert not found["function"]["enabled"]
    assert found["function"]["scope"] == "worker"
    monkeypatch.setenv("TRUNKLINE_PLUGINS__DELAYED_PUBLISH__SCOPE", "node")
    monkeypatch.setenv("TRUNKLINE_PLUGINS__BELL__ENABLED", "no")
    monkeypatch.setenv("TRUNKLINE_PLUGINS__FUNCTION__ENABLED", "yes")
    found = rows(file)
    assert not found["bell"]["enabled"]
    assert found["function"]["enabled"]
    assert found["delayed-publish"]["scope"] == "node"


def test_what_is_wrong_is_told_of_each(install: Install, file: Path) -> None:
    install("broken", "import no_such_module\n", broken="Plugin", absent="missing")
    install("whole", "def takes_nothing(): ...\n", strange="takes_nothing")
    file.write_text("[plugins.bell]\ntimes = 10\n[plugins.belt]\n[plugins.absent]\nenabled = false\n[plugins.broken]\n")
    found = rows(file)
    assert found["bell"]["problem"] == f"{file}: plugins.bell.times: 10: accepted is a whole number, 1 to 9"
    assert found["belt"]["problem"] == f"{file}: plugins.belt: no plugin 'belt' is installed; did you mean bell?"
    assert (found["belt"]["package"], found["belt"]["does"]) == ("", "")
    assert [name for name, row in found.items() if row["enabled"]] == ["bell", "belt", "broken"]
    assert found["broken"]["problem"] is not None
    assert "ModuleNotFoundError: No module named 'no_such_module'" in found["broken"]["problem"]
    assert (
        found["strange"]["problem"]
        == "whole.takes_nothing is not a plugin: it must be callable with one argument, its Context"
    )


def test_a_key_without_a_default() -> None:
    assert "  url must be set\n" in text("webhook", 80)
    assert "  ca_file is not set\n" in text("webhook", 80)
    (url,) = [row for row in plugin_page("webhook")["settings"] if row["key"] == "url"]
    assert (url["required"], url["default"]) == (True, None)


@pytest.mark.parametrize("text", ["[plugins", "plugins = 3"])
def test_a_file_that_cannot_be_used(install: Install, file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(ValueError, match="TOML|table"):
        installed_rows(file)


def test_an_object_shows_its_module_and_not_its_class(install: Install) -> None:
    source = '"""Made of parts."""\nfrom functools import partial\ndef made(size, context): ...\n'
    install("parts", f"{source}plugin = partial(made, 3)\n", parts="plugin")
    assert rows()["parts"]["does"] == "Made of parts."


def test_a_page(install: Install) -> None:
    page = plugin_page("bell")
    facts = [page[key] for key in ("name", "package", "version", "where", "is_class")]
    assert facts == ["bell", "bells", "1.2", "bells:Bell", True]
    assert page["text"] == "Rings when\na client connects.\n\nMore than once, if it is told to."
    duration = 'seconds, or text such as "15s", "2h", more than 0'
    assert [tuple(row.values()) for row in page["settings"][-3:]] == [
        ("times", False, 1, "times", "a whole number, 1 to 9", "How often."),
        ("every", False, 60.0, "seconds", duration, "Time between two."),
        ("topics", False, [], "", "a list, each text", "Where."),
    ]
    assert [tuple(row.values()) for row in page["hooks"]] == [
        ("client.connected", "ring", 5),
        ("client.authenticate", "ask", 0),
    ]
    assert page["guards"] == ["client.authenticate"]
    assert plugin_page("function")["hooks"] == []
    with pytest.raises(PluginError, match="did you mean bell"):
        plugin_page("bel")


def test_a_table_says_what_is_wrong_in_place_of_what_it_does() -> None:
    row = {**BELL_ROW, "does": DOES, "problem": None}
    assert as_cells(row) == {**BELL_ROW, "does": DOES}
    assert as_cells({**row, "problem": "no"}) == {**BELL_ROW, "does": "cannot run: no"}


def test_a_page_as_text(install: Install) -> None:
    lines = text("bell", 60).splitlines()
    assert lines[0] == "bell, of bells 1.2 (bells:Bell)"
    assert "[plugins.bell]" in lines
    start = lines.index("  times = 1 times")
    assert lines[start + 1 : start + 5] == [
        "      How often. (a whole number, 1 to 9)",
        "  every = 60.0 seconds",
        '      Time between two. (seconds, or text such as "15s",',
        '      "2h", more than 0)',
    ]
    assert lines[-6:] == [
        "Hooks that it marks:",
        "  client.connected     ring, priority 5",
        "  client.authenticate  ask",
        "",
        "While it should run and does not, everything is denied at:",
        "client.authenticate.",
    ]
    assert "It registers its hooks when it starts." in text("function", 60)


@pytest.mark.parametrize("name", [row["name"] for row in installed_rows(None) if row["package"] == "trunkline"])
def test_a_page_of_each_plugin_that_comes_with_the_broker(name: str) -> None:
    assert text(name, 100).startswith(name)
