import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from trunkline.client.settings import ConnectionSettings, WillMessage
from trunkline.config.config import LISTS, WHOLE, Config, key_paths
from trunkline.config.declared_streams import StreamSettings
from trunkline.config.listener_settings import ListenerSettings
from trunkline.config.mqtt_settings import RateSettings, ZoneSettings
from trunkline.config.reader import load
from trunkline.config.section import PluginSettings, Section
from trunkline.config.tls_settings import TlsSettings
from trunkline.management import config_docs
from trunkline.plugins.finding import settings_model, shipped

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_what_the_models_say() -> None:
    written = (DOCS / "configuration.md").read_text(encoding="utf-8")
    assert written == config_docs.page(), "run: python -m trunkline.management.config_docs"


def test_the_page_of_the_client_is_what_the_models_say() -> None:
    written = (DOCS / "client.md").read_text(encoding="utf-8")
    assert written == config_docs.client_page(written), "run: python -m trunkline.management.config_docs"
    for name in [*ConnectionSettings.model_fields, *WillMessage.model_fields]:
        assert f"\n| `{name}` | " in written
    assert '\n| `version` | `"5.0"` |  | "5.0", "3.1.1" or "3.1" | Version of MQTT. |\n' in written


def test_every_key_is_on_it() -> None:
    page = config_docs.page()
    keys = [path[-1] for path in key_paths() if path[0] not in WHOLE]
    models = [ListenerSettings, StreamSettings, PluginSettings, ZoneSettings]
    models += [model for _, _, model in config_docs.tables_of(ListenerSettings)]
    for plugin in shipped():
        settings = settings_model(plugin)
        keys += [key for key in settings.model_fields if key not in PluginSettings.model_fields]
        models += [model for _, _, model in config_docs.tables_of(settings)]
    keys += [key for model in models for key in model.model_fields]
    assert len(re.findall(r"^\| `\w+` \|", page, re.MULTILINE)) == len(keys)
    for key in keys:
        assert f"\n| `{key}` |" in page


def test_tables_of_plugins_are_on_it() -> None:
    page = config_docs.page()
    assert "\n## `[plugins.http-auth.authenticate]`\n" in page
    assert "\n## `[[plugins.validation.rules]]`\n" in page


#: Keys that begin as limits do, and are none.
NO_LIMITS = {"mqtt.max_qos", "listeners.tls.max_version"}
#: What tables cannot be without.
NEEDED: dict[str, dict[str, object]] = {
    "streams": {"name": "s", "filters": ["a"]},
    "listeners.tls": {"certificate": "server.pem"},
}


def models() -> Iterator[tuple[str, type[Section]]]:
    """Each table of the configuration, without those of single plugins."""
    for name, field in Config.model_fields.items():
        if name == "zones":
            continue  # they have keys of other tables
        model = PluginSettings if name == "plugins" else field.annotation
        model = get_args(model)[0] if name in LISTS else model
        assert isinstance(model, type)
        assert issubclass(model, Section)
        yield "plugins.NAME" if name == "plugins" else name, model
    for name, _, model in config_docs.tables_of(ListenerSettings):
        yield f"listeners.{name}", model
    yield "listeners.tls", TlsSettings


def test_the_table_of_limits_has_every_limit_with_its_default() -> None:
    rows = re.findall(
        r"^\| `([\w.]+)` \| (?:`(.+?)` )?\|", (DOCS / "limits.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    shown = {name: default for name, default in rows if "." in name}
    known = {f"{table}.{key}": (model, key) for table, model in models() for key in model.model_fields}
    limits = {name for name in known if re.search(r"\.(max_\w+|\w*timeout)$", name)}
    assert limits - NO_LIMITS <= set(shown)
    for name, default in shown.items():
        model, key = known[name]
        needed = NEEDED.get(name.rpartition(".")[0], {})
        given = {key: tomllib.loads(f"value = {default}")["value"]} if default else {}
        settings = model.model_validate(needed | given)
        assert getattr(settings, key) == model.model_fields[key].get_default(call_default_factory=True), name
        assert bool(default) == (getattr(settings, key) is not None), name


def test_the_page_of_cores_says_of_each_limit_how_it_holds_with_several_workers() -> None:
    page = (DOCS / "limits.md").read_text(encoding="utf-8")
    limits = re.findall(r"^\| `([\w.]+)` \| (?:`.+?` )?\|", page, re.MULTILINE)
    rates = [f"rate.{key}" for key in RateSettings.model_fields if key != "over"]
    known = {each for each in limits if "." in each} | {*rates, *[f"listeners.{rate}" for rate in rates]}
    page = (DOCS / "cores.md").read_text(encoding="utf-8")
    section = page[page.index("## Limits") : page.index("## `ctl`")]
    rows = re.findall(r"^\| .+? \| (`.+) \|$", section, re.MULTILINE)
    assert sorted(re.findall(r"`([\w.]+\.\w+)`", " ".join(rows))) == sorted(known), "each once"


def test_its_example_is_a_configuration(tmp_path: Path) -> None:
    example = re.search(r"```toml\n(.*?)```", config_docs.page(), re.DOTALL)
    assert example is not None
    (tmp_path / "users").touch()
    (tmp_path / "broker.toml").write_text(example[1])
    config = load(tmp_path / "broker.toml", {}, find_plugin=settings_model).config
    assert config.session.expiry_interval == 12 * 3600
    assert config.auth.password_file == tmp_path / "users"


def test_writing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["config_docs", str(tmp_path / "page.md")])
    client = (DOCS / "client.md").read_text(encoding="utf-8")
    (tmp_path / "client.md").write_text(client.replace("| `keep_alive` |", "| `keep_aliv` |"), encoding="utf-8")
    config_docs.main()
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == config_docs.page()
    assert (tmp_path / "client.md").read_text(encoding="utf-8") == client
