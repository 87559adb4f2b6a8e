"""What is said where a library is missing."""

import sys

import pytest

from trunkline.config.errors import ConfigError
from trunkline.config.reader import from_mapping
from trunkline.plugins import PluginError
from trunkline.plugins.finding import settings_model
from trunkline.plugins.shipped.extras import NeedsExtra


class Needy(NeedsExtra):
    extra = "http"
    libraries = ("json", "httpx")


@pytest.mark.parametrize(
    ("plugin", "library", "extra"),
    [
        ("webhook", "httpx", "http"),
        ("http-auth", "httpx", "http"),
        ("jwt", "jwt", "jwt"),
        ("validation", "jsonschema", "schema"),
    ],
)
def test_a_configuration_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, plugin: str, library: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ConfigError) as raised:
        from_mapping({"plugins": {plugin: {"url": "http://h/"} if plugin == "webhook" else {}}}, settings_model)
    assert f"settings: plugins.{plugin}: needs {library}: pip install 'trunkline[{extra}]'" in str(raised.value)


def test_what_does_not_run_needs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    needy = Needy(enabled=False)
    with pytest.raises(PluginError, match=r"needs httpx: pip install 'trunkline\[http\]'"):
        needy.check_installed()


def test_nothing_is_said_where_all_is_there() -> None:
    Needy().check_installed()
