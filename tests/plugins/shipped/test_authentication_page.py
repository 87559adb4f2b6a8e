"""The page "Authentication and access": its configurations are right, and its example works."""

import json
import re
import runpy
import tomllib
from pathlib import Path

import pytest

from trunkline.config.reader import from_mapping
from trunkline.hooks.client import ClientInfo
from trunkline.plugins.finding import settings_model
from trunkline.plugins.shipped.acl_rules import LoginRules
from trunkline.plugins.shipped.http_auth import Authorize
from trunkline.plugins.shipped.jwt_settings import JwtSettings

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "authentication.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("text", re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL))
def test_its_tables_are_configurations(text: str) -> None:
    table = tomllib.loads(text)
    assert from_mapping(table, settings_model).plugins.keys() == table["plugins"].keys()


def test_its_token_has_rules_that_are_understood() -> None:
    (text,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    rules = LoginRules(json.loads(text)["acl"], ClientInfo("c"))
    assert rules.decide("publish", "up/c/config", 0, True) is not None


def test_its_example_is_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    ((name, block),) = re.findall(r"<!-- (examples/\S+) -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    assert PAGE.count("```python") == 1
    assert block == (ROOT / name).read_text(encoding="utf-8")
    runpy.run_path(str(ROOT / name), run_name="__main__")
    (said,) = re.findall(r"^prints\n\n```text\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)
    assert capsys.readouterr().out == said


def test_every_placeholder_is_on_it() -> None:
    for word in (*Authorize.words(), "password"):
        assert f"`${{{word}}}`" in PAGE


def test_the_keys_that_it_names_are_keys() -> None:
    for key in re.findall(r"`(\w+_claims?|token_in|jwks_\w+|refe\w+|leeway|issuer|audience|algorithms)`", PAGE):
        assert key in JwtSettings.model_fields, key
