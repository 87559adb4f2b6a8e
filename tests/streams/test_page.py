"""What docs/streams.md says is so; its commands are run in tests/management/test_control_docs.py."""

import inspect
import re
import runpy
from dataclasses import fields
from pathlib import Path

import pytest

from trunkline import streams
from trunkline.config.declared_streams import StreamSettings
from trunkline.streams import ConsumerConfig, StreamConfig
from trunkline.streams.consumed import ConsumedMessage
from trunkline.streams.interface import Streams

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "streams.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["streams.py", "stream_replay.py", "between_streams.py"])
def test_the_examples_say_what_the_page_says(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    assert f"```\n{capsys.readouterr().out}```" in PAGE


@pytest.mark.parametrize("name", ["fetch", *(name for name in vars(Streams) if not name.startswith("_"))])
def test_every_request_is_on_it(name: str) -> None:
    if name != "next_messages":
        assert re.search(rf"`{name}[`(]", PAGE)


def test_every_answer_is_on_it() -> None:
    answers = [name for name, each in vars(ConsumedMessage).items() if inspect.isfunction(each) and name[0] != "_"]
    assert [name for name in answers if f"`{name}`" not in PAGE] == []


def test_every_error_is_on_it() -> None:
    errors = [name for name in streams.__all__ if issubclass(getattr(streams, name), Exception)]
    assert [name for name in errors if name not in PAGE] == []


def test_every_setting_is_on_it() -> None:
    names = [field.name for kind in (StreamConfig, ConsumerConfig) for field in fields(kind)]
    own = {"name", "filters", "description", "durable", "first_sequence"}
    assert [name for name in names if f"`{name}" not in PAGE and name not in own] == []


def test_the_configuration_has_what_a_stream_has() -> None:
    names = {field.name for field in fields(StreamConfig)}
    assert names - set(StreamSettings.model_fields) == {
        "sealed",
        "first_sequence",
        *("measure", "transform", "republish", "mirror", "sources"),  # which only clients of NATS and programs set
    }
