import os
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest

from trunkline.management.config_file import Content, change_section, with_keys

GREETER = ("plugins", "greeter")

BEFORE = """\
# The broker of the plant
[plugins.greeter]
enabled = false   # until Monday
word = "hi"

# --- what clients may do ---

[mqtt]
max_qos = 1  # no more
"""


def accept(before: Content, after: Content) -> None:
    pass


def test_comments_order_and_spaces_stay() -> None:
    assert with_keys(BEFORE, GREETER, {"enabled": True, "times": 3}) == BEFORE.replace(
        'enabled = false   # until Monday\nword = "hi"\n', 'enabled = true   # until Monday\nword = "hi"\ntimes = 3\n'
    )


def test_a_new_section_comes_last() -> None:
    assert with_keys(BEFORE, ("plugins", "bell"), {"tone": "c"}) == BEFORE + '\n[plugins.bell]\ntone = "c"\n'
    text = with_keys("", GREETER, {"names": {"a/#": {"x": 1}}})
    assert text == '[plugins.greeter]\nnames = {"a/#" = {x = 1}}\n'
    assert with_keys("", GREETER, {}) == "[plugins.greeter]\n"
    assert with_keys("# no newline", GREETER, {}) == "# no newline\n\n[plugins.greeter]\n"


def test_what_is_so_already_is_not_touched() -> None:
    text = "[plugins.greeter]\nenabled=true\n"
    assert with_keys(text, GREETER, {"enabled": True}) == text
    assert with_keys(text, GREETER, {}) == text


@pytest.mark.parametrize(
    "text",
    [
        "plugins = { greeter = { word = 'hi' } }",
        "plugins = { }",
        "[plugins]\ngreeter = { word = 'hi' } # short",
        "plugins.greeter.word = 'hi'\n[mqtt]\nmax_qos = 1",
        "[plugins.greeter]\n[mqtt]\nmax_qos = 1\n[plugins.bell]\ntone = 1\n[log]",
        "[plugins.greeter]\nword = 'hi'\n[plugins.greeter.times]\nmonday = 1\n[plugins.bell]",
        "[plugins]\n[[listeners]]\nurl = 'tcp://127.0.0.1:1'",
        "[plugins.greeter]\n# nothing yet\n",
    ],
)
@pytest.mark.parametrize("name", ["greeter", "other"])
def test_every_form_in_which_a_section_may_be_written(text: str, name: str) -> None:
    values: dict[str, Any] = {"enabled": True, "lists": [1, {"a": "b"}], "table": {"c/#": 1.5}}
    wanted = tomllib.loads(text)
    wanted.setdefault("plugins", {}).setdefault(name, {}).update(values)
    changed = with_keys(text, ("plugins", name), values)
    assert tomllib.loads(changed) == wanted
    assert changed.count("#") == text.count("#") + 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("plugins = 3", "plugins is not a table"),
        ("[plugins]\ngreeter = 3", "plugins.greeter is not a table"),
        ("[[plugins]]", "plugins is not a table"),
        ("[plugins", "is not TOML: "),
        ("x = " + "[" * 5000 + "]" * 5000, "is not TOML: "),
        ("[plugins.greeter.a]\n[plugins.greeter]\n[plugins]\n[[plugins.greeter.b]]", "edit it by hand"),
    ],
)
def test_what_cannot_be_changed(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        with_keys(text, GREETER, {"word": "hi"})


def test_a_file_is_changed_and_keeps_its_permissions(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(BEFORE)
    file.chmod(0o640)
    seen: list[tuple[Content, Content]] = []
    assert change_section(file, GREETER, {"enabled": True}, create=False, check=lambda *both: seen.append(both))
    assert file.read_text() == BEFORE.replace("enabled = false", "enabled = true")
    assert [tuple(content["plugins"]["greeter"]["enabled"] for content in both) for both in seen] == [(False, True)]
    if os.name != "nt":
        assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert not change_section(file, GREETER, {"enabled": True}, create=False, check=accept)


def test_who_checks_can_refuse(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(BEFORE)

    def refuse(before: Content, after: Content) -> None:
        raise LookupError

    with pytest.raises(LookupError):
        change_section(file, GREETER, {"enabled": True}, create=False, check=refuse)
    assert file.read_text() == BEFORE


def test_a_file_is_made_only_when_it_should_be(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    with pytest.raises(FileNotFoundError):
        change_section(file, GREETER, {}, create=False, check=accept)
    assert change_section(file, GREETER, {}, create=True, check=accept)
    assert file.read_text() == "[plugins.greeter]\n"
    assert change_section(file, GREETER, {"word": "hi"}, create=True, check=accept)
    assert file.read_text() == '[plugins.greeter]\nword = "hi"\n'
