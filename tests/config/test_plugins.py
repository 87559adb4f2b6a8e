"""Plugins are configured in the broker's own file, and their mistakes are told as the broker's own."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trunkline.config.config import changes
from trunkline.config.errors import ConfigError, Unusable
from trunkline.config.reader import MAX_MISSING, from_mapping, load
from trunkline.config.section import PluginSettings
from trunkline.management.config_view import as_toml
from trunkline.plugins.finding import settings_model

SOURCE = """
from typing import Annotated
from pydantic import Field, SecretStr, field_validator
from trunkline.config.section import Section
from trunkline.config.units import Duration, OptionalPath, Secret, Text, TopicFilter, Whole
from trunkline.plugins import Context, Settings, setting

class Rule(Section):
    source: TopicFilter = setting("#", "From.")
    target: Text = setting(..., "To.")
    file: OptionalPath = setting(None, "With.")

class Greeting(Settings):
    guards = ("client.authenticate",)
    word: Text = setting("hello", "What it says.", max_length=10)
    wait: Duration = setting(1.0, "How long.", "seconds")
    times: Whole = setting(1, "How often.", ge=1, le=5)
    rules: tuple[Rule, ...] = setting((), "Rules.")
    key_file: OptionalPath = setting(None, "A file.")
    password: Secret = setting(SecretStr(""), "Nobody sees it.")
    more_files: tuple[OptionalPath, ...] = setting((), "Files.")

    @field_validator("word")
    @classmethod
    def _polite(cls, value: str) -> str:
        if value == "oi":
            raise ValueError("that is not polite")
        return value

def plugin(context: Context[Greeting]) -> None: pass
"""


@pytest.fixture(autouse=True)
def _greeting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A plugin called `greeting` is installed."""
    site = tmp_path / "site"
    (site / "greeting-1.0.dist-info").mkdir(parents=True)
    (site / "greeting_plugin.py").write_text(SOURCE)
    (site / "greeting-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
    (site / "greeting-1.0.dist-info" / "entry_points.txt").write_text(
        "[trunkline.plugins]\ngreeting = greeting_plugin:plugin\ngreet-twice = greeting_plugin:plugin\n"
    )
    monkeypatch.syspath_prepend(site)
    yield
    sys.modules.pop("greeting_plugin", None)


def problems(path: Path | None = None, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        load(path, environ or {}, find_plugin=settings_model)
    return [str(problem) for problem in raised.value.problems]


def test_an_empty_section_is_enough(file: Path) -> None:
    file.write_text("[plugins.greeting]\n")
    greeting = load(file, {}, find_plugin=settings_model).config.plugins["greeting"]
    assert greeting.enabled
    assert (greeting.word, greeting.wait, greeting.restarts) == ("hello", 1.0, 5)  # type: ignore[attr-defined]


def test_settings_are_the_plugins_own(file: Path) -> None:
    (file.parent / "key").write_text("")
    file.write_text("""
        [plugins.greeting]
        word = "ahoy"
        wait = "2m"
        key_file = "key"
        rules = [{ target = "x" }, { source = "a/+", target = "y" }]
        [plugins.greet-twice]
        enabled = false
    """)
    loaded = load(file, {"TRUNKLINE_PLUGINS__GREET_TWICE__TIMES": "3"}, find_plugin=settings_model)
    greeting, twice = loaded.config.plugins.values()
    assert (greeting.word, greeting.wait) == ("ahoy", 120.0)  # type: ignore[attr-defined]
    assert [rule.target for rule in greeting.rules] == ["x", "y"]  # type: ignore[attr-defined]
    assert greeting.key_file == file.parent / "key"  # type: ignore[attr-defined]
    assert (twice.enabled, twice.times) == (False, 3)  # type: ignore[attr-defined]
    assert loaded.sources["plugins.greeting.word"] == str(file)
    assert loaded.sources["plugins.greet-twice.times"] == "variable TRUNKLINE_PLUGINS__GREET_TWICE__TIMES"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("wrod = 'x'", "plugins.greeting.wrod: unknown key; did you mean word?"),
        (
            "zzz = 1",
            (
                "plugins.greeting.zzz: unknown key; known are enabled, scope, start_timeout, restarts, "
                "restarts_within, word, wait, "
            ),
        ),
        ("wait = 'soon'", 'plugins.greeting.wait: "soon": accepted is seconds, or text such as "15s", "2h"'),
        ("times = 9", "plugins.greeting.times: 9: accepted is a whole number, 1 to 5"),
        ("times = '3'", 'plugins.greeting.times: "3": accepted is a whole number, 1 to 5'),
        ("word = 'oi'", "plugins.greeting.word: that is not polite"),
        ("rules = [{}]", "plugins.greeting.rules[0].target: is missing"),
        ("rules = [{target = 'x', to = 'y'}]", "plugins.greeting.rules[0].to: unknown key; known are source, target"),
        ("rules = [{target = 'x', source = 'a/#/b'}]", "plugins.greeting.rules[0].source: '#' is not alone"),
        ("rules = 3", "plugins.greeting.rules: 3: accepted is a list, each a table with source, target"),
        ("rules = [{target = 'x', file = 'not there'}]", "plugins.greeting.rules[0].file: no file "),
        ("more_files = ['not there']", "plugins.greeting.more_files[0]: no file "),
        ("password = 12345", "plugins.greeting.password: what it holds: accepted is text"),
        ("key_file = 'not there'", "plugins.greeting.key_file: no file "),
        ("scope = 'broker'", 'plugins.greeting.scope: "broker": accepted is "worker" or "node"'),
        (
            "scope = 'node'",
            'plugins.greeting: scope = "node" is not for a plugin that decides: it guards client.authenticate',
        ),
        ("restarts = -1", "plugins.greeting.restarts: -1: accepted is a whole number, 0 or more"),
    ],
)
def test_mistakes_are_told_as_the_brokers_own(file: Path, text: str, words: str) -> None:
    file.write_text(f"[plugins.greeting]\n{text}\n")
    (problem,) = problems(file)
    assert problem.startswith(f"{file}: {words}"), problem


def test_mistakes_of_plugins_and_broker_come_together(file: Path) -> None:
    file.write_text("""
        [mqtt]
        max_qos = 7
        [plugins]
        loose = 1
        [plugins.greeting]
        times = 0
        [plugins.greting]
        [plugins.webhok]
    """)
    found = problems(file, {"TRUNKLINE_PLUGINS__GREETING__WAIT": "soon", "TRUNKLINE_PLUGINS__GREETING__WIAT": "1"})
    assert len(found) == 7
    for words in (
        "mqtt.max_qos: 7",
        "plugins.loose: no plugin 'loose' is installed",
        "plugins.greeting.times: 0",
        "did you mean greeting?",
        "did you mean webhook?",
        'variable TRUNKLINE_PLUGINS__GREETING__WAIT: plugins.greeting.wait: "soon"',
        "variable TRUNKLINE_PLUGINS__GREETING__WIAT: plugins.greeting.wiat: unknown key; did you mean wait?",
    ):
        assert any(words in problem for problem in found), words


@pytest.mark.parametrize(
    ("text", "environ", "missed"),
    [
        ("", {}, True),
        ("enabled = true", {}, True),
        ("enabled = false\nkey = 1", {}, False),
        ("enabled = false", {"TRUNKLINE_PLUGINS__ABSENT__ENABLED": "yes"}, True),
        ("", {"TRUNKLINE_PLUGINS__ABSENT__ENABLED": "no", "TRUNKLINE_PLUGINS__ABSENT__KEY": "1"}, False),
    ],
)
def test_one_that_cannot_be_had_is_missed_only_when_it_is_enabled(
    file: Path, text: str, environ: dict[str, str], missed: bool
) -> None:
    file.write_text(f"[plugins.absent]\n{text}\n")
    if missed:
        (problem,) = problems(file, environ)
        assert problem.startswith(f"{file}: plugins.absent: no plugin 'absent' is installed")
    else:
        assert not load(file, environ, find_plugin=settings_model).config.plugins


def test_many_that_cannot_be_had_are_not_all_looked_for() -> None:
    looked_for: list[str] = []

    def find(name: str) -> type[PluginSettings]:
        looked_for.append(name)
        raise Unusable([f"no plugin {name}"])

    with pytest.raises(ConfigError) as raised:
        from_mapping({"plugins": {f"p{number}": {} for number in range(1000)}}, find)
    assert (len(raised.value.problems), len(looked_for)) == (1000, MAX_MISSING)
    assert raised.value.problems[-1].text == f"not looked for: {MAX_MISSING} plugins before it cannot be had"


def test_what_is_no_table(file: Path) -> None:
    file.write_text("plugins = 3\n")
    assert "accepted is a table for each plugin, [plugins.NAME]" in problems(file)[0]
    file.write_text("[plugins]\ngreeting = true\n")
    assert "plugins.greeting: true: accepted is a table, [plugins.greeting]" in problems(file)[0]


def test_one_that_authenticates_lets_a_listener_be_reached_and_nobody_in_without_it(file: Path) -> None:
    listener = 'listeners = ["tcp://0.0.0.0:1883"]\n'
    file.write_text(listener)
    assert "without logging in" in problems(file)[0]
    file.write_text(listener + "[plugins.greeting]\n")
    config = load(file, {}, find_plugin=settings_model).config
    assert config.authenticates()
    assert not config.allows_anonymous()
    file.write_text(listener + "[plugins.greeting]\nenabled = false\n")
    assert "without logging in" in problems(file)[0]


def test_a_mapping_is_read_in_the_same_way() -> None:
    config = from_mapping({"plugins": {"greeting": {"word": "hi"}}}, settings_model)
    assert config.plugins["greeting"].word == "hi"  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"settings: plugins.greeting.word"):
        from_mapping({"plugins": {"greeting": {"word": 3}}}, settings_model)


def test_paths_start_at_the_file_however_deep_they_stand(file: Path) -> None:
    (file.parent / "a").write_text("")
    file.write_text("[plugins.greeting]\nrules = [{ target = 'x', file = 'a' }]\nmore_files = ['a']\n")
    greeting = load(file, {}, find_plugin=settings_model).config.plugins["greeting"]
    assert greeting.rules[0].file == file.parent / "a"  # type: ignore[attr-defined]
    assert greeting.more_files == (file.parent / "a",)  # type: ignore[attr-defined]


def test_a_secret_is_not_shown(file: Path) -> None:
    file.write_text("[plugins.greeting]\npassword = 'hush'\n")
    loaded = load(file, {}, find_plugin=settings_model)
    assert loaded.config.plugins["greeting"].password.get_secret_value() == "hush"  # type: ignore[attr-defined]
    assert "hush" not in as_toml(loaded) + repr(loaded.config)


def test_changes_name_the_plugin(file: Path) -> None:
    file.write_text("[plugins.greeting]\n[plugins.greet-twice]\n")
    old = load(file, {}, find_plugin=settings_model).config
    file.write_text("[plugins.greeting]\nword = 'hi'\n[plugins.greet-twice]\n")
    assert changes(old, load(file, {}, find_plugin=settings_model).config) == ["plugins.greeting"]
    file.write_text("[plugins.greeting]\n")
    assert changes(old, load(file, {}, find_plugin=settings_model).config) == ["plugins.greet-twice"]


def test_what_is_shown_can_be_read_again(file: Path) -> None:
    file.write_text("[plugins.greeting]\nword = 'hi'\nrules = [{ target = 'x' }]\n")
    loaded = load(file, {}, find_plugin=settings_model)
    text = as_toml(loaded)
    assert f'word = "hi"  # {file}' in text
    file.write_text(text)
    assert load(file, {}, find_plugin=settings_model).config == loaded.config
