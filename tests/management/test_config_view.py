import json
import tomllib
from pathlib import Path

from trunkline.config.config import Config
from trunkline.config.reader import Loaded, from_mapping, load
from trunkline.management.config_view import as_json, as_toml

ENVIRON = {
    "TRUNKLINE_MQTT__MAX_QOS": "1",
    "TRUNKLINE_NODE__NAME": 'a "node" \\ \x7f\U0001f600\n',
    "TRUNKLINE_SESSION__PRIORITIES": '{"a/b" = 3, c = 4}',
    "TRUNKLINE_LISTENERS": '["tcp://127.0.0.1:1", {url = "tcp://[::1]:2", access_rules = ["allow 10.0.0.0/8"]}]',
}


def test_toml_means_the_same() -> None:
    loaded = load(None, ENVIRON)
    text = as_toml(loaded)
    assert from_mapping(tomllib.loads(text)) == loaded.config
    assert "\nmax_qos = 1  # variable TRUNKLINE_MQTT__MAX_QOS\n" in text
    assert text.startswith("[[listeners]]  # variable TRUNKLINE_LISTENERS\n")
    assert "\n# password_file is not set\n" in text


def test_toml_without_listeners() -> None:
    text = as_toml(Loaded(from_mapping({"listeners": []}), {}))
    assert tomllib.loads(text)["listeners"] == []


def test_json() -> None:
    loaded = load(None, ENVIRON)
    view = json.loads(as_json(loaded))
    assert view["sources"]["mqtt.max_qos"] == "variable TRUNKLINE_MQTT__MAX_QOS"
    assert view["config"]["mqtt"]["max_qos"] == 1
    assert view["config"]["listeners"][1]["access_rules"] == ["allow 10.0.0.0/8"]
    assert Config.model_validate(view["config"]) == loaded.config


def test_a_source_cannot_end_its_comment(tmp_path: Path) -> None:
    text = as_toml(Loaded(Config(), {"mqtt.max_qos": "odd\nname"}))
    assert "max_qos = 2  # odd\\nname" in text
