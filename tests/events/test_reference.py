"""docs/events.md says what the code says, and its example works."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from trunkline.config.reader import from_mapping
from trunkline.events.plugin import EventsSettings
from trunkline.events.schema import COLUMNS, OWN_KINDS, SCHEMA, SPARK_SCHEMA
from trunkline.plugins.finding import settings_model

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "events.md"


def test_the_page_has_every_column_and_kind() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = ["| column | type in Spark | meaning |", "|---|---|---|"]
    rows += [f"| `{column.name}` | {column.type} | {column.meaning} |" for column in COLUMNS]
    assert "\n".join(rows) in text
    rows = ["| kind | when |", "|---|---|", *(f"| `{kind.name}` | {kind.meaning} |" for kind in OWN_KINDS)]
    assert "\n".join(rows) in text


def test_names_are_unique() -> None:
    assert len({column.name for column in COLUMNS}) == len(COLUMNS) == len(SCHEMA)
    assert len({kind.name for kind in OWN_KINDS}) == len(OWN_KINDS)


def test_its_example_works() -> None:
    ((name, block),) = re.findall(
        r"<!-- (examples/\S+) -->\n```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    assert block == (ROOT / name).read_text(encoding="utf-8")
    done = subprocess.run([sys.executable, name], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "{'message.dropped': 3, 'message.publish': 3, 'message.routed': 3}\n"


def test_its_configurations_are_right() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        settings = from_mapping(tomllib.loads(block), settings_model).plugins["events"]
        assert isinstance(settings, EventsSettings)
        assert settings.enabled


def test_spark_reads_the_same_columns() -> None:
    assert re.findall(r"`(\w+)`", SPARK_SCHEMA) == SCHEMA.names
