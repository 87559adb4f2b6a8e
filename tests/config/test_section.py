import re

import pytest
from pydantic import SecretStr, ValidationError

from trunkline.config.config import WHOLE, Config, key_paths
from trunkline.config.fields import field_at
from trunkline.config.listener_settings import ListenerSettings
from trunkline.config.mqtt_settings import SessionSettings
from trunkline.config.section import PluginSettings


def all_keys() -> list[tuple[str, ...]]:
    return [*key_paths(), *(("listeners", key) for key in ListenerSettings.model_fields)]


def test_every_key_says_what_it_means() -> None:
    for path in all_keys():
        field = field_at(Config, path)[1]
        if path[0] not in WHOLE:
            assert field is not None, path
            assert field.description, path
            assert field.description.endswith("."), path


def test_every_section_says_what_it_is() -> None:
    for section in Config.model_fields:
        if section not in (*WHOLE, "plugins"):
            assert type(getattr(Config(), section)).__doc__, section


def test_settings_do_not_change() -> None:
    config = Config()
    with pytest.raises(ValidationError):
        config.mqtt.max_qos = 0
    with pytest.raises(ValidationError):
        config.mqtt = config.mqtt


def test_what_could_hold_a_secret_is_hidden() -> None:
    for path in all_keys():
        if re.search(r"password|secret|token|passphrase", path[-1]) and not path[-1].endswith("_file"):
            field = field_at(Config, path)[1]
            assert field is not None, path
            assert field.annotation is SecretStr, path


def test_defaults_are_valid() -> None:
    # pydantic does not look at defaults by itself
    assert Config.model_validate(Config().model_dump()) == Config()
    assert SessionSettings().priorities == {}


class _Guard(PluginSettings):
    guards = ("client.authenticate",)


class _Watcher(PluginSettings):
    guards = ("message.publish",)


def test_a_plugin_authenticates_if_it_is_enabled_and_guards_logins() -> None:
    assert _Guard().authenticates
    assert not _Guard(enabled=False).authenticates
    assert not _Watcher().authenticates
    assert not PluginSettings().authenticates


def test_a_setting_has_its_meaning_and_its_unit() -> None:
    field = PluginSettings.model_fields["start_timeout"]
    assert field.description == "A plugin whose start takes longer has failed."
    assert field.json_schema_extra == {"unit": "seconds"}


def test_a_table_without_a_short_form_stays_as_it_is() -> None:
    assert PluginSettings.expanded("x") == "x"
