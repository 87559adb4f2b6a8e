"""The page "Write a plugin": its examples run, its messages are those that a mistake gives, and it leaves nothing
out."""

import re
import runpy
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from tests.management.plugin_packages import describe
from trunkline.config.errors import ConfigError
from trunkline.config.reader import load
from trunkline.config.section import PluginSettings
from trunkline.hooks.registration import HookError
from trunkline.management.cli import cli
from trunkline.plugins import Context, PluginError, Settings, hook
from trunkline.plugins.declaring import settings_of
from trunkline.plugins.finding import settings_model
from trunkline.plugins.store import PluginStore

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"<!-- (examples/\S+) -->\n```python\n(.*?)```", PAGE, re.DOTALL)
#: Blocks that are no example: the settings of a door bell.
(SETTINGS,) = set(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)) - {block for _, block in EXAMPLES}
CHECKED, STARTED = re.findall(r"<!-- what [^>]* says[^>]*-->\n```\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("name", "block"), EXAMPLES)
def test_its_examples_are_files(name: str, block: str) -> None:
    assert block == (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "output"),
    [
        (
            "plugin.py",
            "the server refused the message to news: quota exceeded (0x97), please be quiet\ntoo many: 1\n",
        ),
        ("plugin_function.py", "say/hello echo/say/hello\n"),
        ("plugin_store.py", "visits of ann: 1\nvisits of ann: 2\n"),
    ],
)
def test_its_programs_run(name: str, output: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    assert capsys.readouterr().out == output


def test_all_that_a_context_has_is_there() -> None:
    section = PAGE[PAGE.index("## The context") : PAGE.index("## Settings")]
    rows = " ".join(re.findall(r"^\| (.*?) \|", section, re.MULTILINE))
    has = {name for name in (*vars(Context), *Context.__slots__) if not name.startswith("_")}
    assert set(re.findall(r"`(\w+)", rows)) == has


def test_all_that_a_store_has_is_there() -> None:
    section = PAGE[PAGE.index("## What a plugin keeps") : PAGE.index("<!-- examples/plugin_store.py -->")]
    rows = " ".join(re.findall(r"^\| (.*?) \|", section, re.MULTILINE))
    has = {name for name in vars(PluginStore) if not name.startswith("_")} - {"restore", "packed", "all_packed"}
    assert set(re.findall(r"`(\w+)(?:\(.*?\))?`", rows)) == {*has, "size", "len"}


def test_all_common_settings_are_there() -> None:
    section = PAGE[PAGE.index("Every plugin has these keys") : PAGE.index("Errors are found when")]
    rows = " ".join(re.findall(r"^\| (.*?) \|", section, re.MULTILINE))
    assert set(re.findall(r"`(\w+)`", rows)) == set(PluginSettings.model_fields)


def test_all_its_commands_are_there() -> None:
    commands: Any = cli.get_command(click.Context(cli), "plugins")
    assert set(re.findall(r"^\$ trunkline plugins (\w+)", PAGE, re.MULTILINE)) == set(commands.commands)


@pytest.fixture
def bell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The settings that the page shows belong to an installed plugin."""
    source = f"{SETTINGS}\nfrom trunkline.plugins import Context\ndef bell(context: Context[BellSettings]): ...\n"
    (tmp_path / "page_bell.py").write_text(source)
    describe(tmp_path / "page_bell-1.0.dist-info", "bell", "1.0", {"door-bell": "page_bell:bell"})
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("page_bell", None)


def test_its_entry_point_is_one() -> None:
    (table,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert tomllib.loads(table)["project"]["entry-points"]["trunkline.plugins"] == {
        "door-bell": "trunkline_door_bell:DoorBell"
    }


@pytest.mark.usefixtures("bell")
def test_wrong_settings_are_told_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("trunkline.toml").write_text(
        '[plugins.door-bell]\nevery = "often"\ngreting = "hi"\nrules = [{ filter = "a", to = "fax" '
        "}]\n[plugins.dor-bell]\n"
    )
    with pytest.raises(ConfigError) as caught:
        load("trunkline.toml", {}, find_plugin=settings_model)
    assert sorted(map(str, caught.value.problems)) == sorted(CHECKED.splitlines())


def no_point() -> str:
    """What the import of such a module says."""
    with pytest.raises(HookError) as caught:

        class NoPoint:
            @hook("client.conected")
            def ring(self, client: object) -> None: ...

    return str(caught.value)


class TooMany:
    def __init__(self, context: Context[Settings]) -> None: ...

    @hook("client.connected")
    def ring(self, client, packet): ...  # type: ignore[no-untyped-def]


class OtherOrder:
    def __init__(self, context: Context[Settings]) -> None: ...

    @hook("message.publish")
    def hear(self, message, client): ...  # type: ignore[no-untyped-def]


class CannotWait:
    def __init__(self, context: Context[Settings]) -> None: ...

    @hook("message.publish")
    async def look(self, client, message): ...  # type: ignore[no-untyped-def]


def test_wrong_hooks_are_told_as_it_says() -> None:
    said = [no_point()]
    for kind in TooMany, OtherOrder, CannotWait:
        with pytest.raises(PluginError) as caught:
            settings_of(kind)
        said += caught.value.problems
    assert [
        re.sub(rf"{__name__}\.(no_point\.<locals>\.)?\w+\.", "door_bell.Bell.", text) for text in said
    ] == STARTED.splitlines()
