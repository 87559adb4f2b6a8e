"""Streams in the configuration."""

from pathlib import Path

import pytest

from tests.broker.disk import Disk
from trunkline.broker.node.opening import open_node
from trunkline.broker.stream_keeper import DeclaredStreamError
from trunkline.config.errors import ConfigError
from trunkline.config.reader import from_mapping, load
from trunkline.streams import ConsumerConfig, Retention

ORDERS = {"name": "orders", "filters": ["orders/#"], "max_bytes": "1MiB", "max_age": "7d", "retention": "interest"}


def test_a_stream_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "trunkline.toml"
    file.write_text(
        '[[streams]]\nname = "orders"\nfilters = ["orders/#", "returns"]\nmax_age = "1h"\nmetadata = { owner = "x" }\n'
    )
    (settings,) = load(file, {}).config.streams
    declared = settings.declared
    assert declared.metadata == {"owner": "x"}
    assert (declared.name, declared.filters, declared.max_age) == ("orders", ("orders/#", "returns"), 3600.0)


def test_units_and_words() -> None:
    (settings,) = from_mapping({"streams": [ORDERS]}).streams
    assert (settings.declared.max_bytes, settings.declared.retention) == (1 << 20, Retention.INTEREST)


def test_everything_that_is_wrong_is_said_at_once() -> None:
    streams = [ORDERS, {"name": "a/b", "filters": ["x"]}, ORDERS, {"name": "o", "filters": ["orders/1"]}]
    with pytest.raises(ConfigError) as caught:
        from_mapping({"listeners": [], "streams": streams})
    problems = {problem.key: problem.text for problem in caught.value.problems}
    assert "not a name" in problems["streams[1]"]
    assert problems["streams[2]"] == 'streams[0] is called "orders", too'
    assert "overlap" in problems["streams[3]"]


@pytest.mark.parametrize(
    ("stream", "key"),
    [
        ({"size": 1}, "size"),
        ({"max_age": "soon"}, "max_age"),
        ({"filters": ["a/#/b"]}, "filters"),
        ({"discard": "all"}, "discard"),
    ],
)
def test_a_wrong_key(stream: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_mapping({"listeners": [], "streams": [{**ORDERS, **stream}]})
    assert any(problem.key.startswith(f"streams[0].{key}") for problem in caught.value.problems)


async def test_a_declared_stream_is_there_at_the_start_and_follows_the_configuration() -> None:
    config = from_mapping({"listeners": [], "streams": [ORDERS]})
    async with open_node(config, grace=0) as node:
        assert [info.config.name for info in node.streams.list()] == ["orders"]
    disk = Disk()
    async with disk.broker(streams=[ORDERS]) as life:
        await life.node.streams.create_consumer("orders", ConsumerConfig(name="c", durable=True))
        await life.node.streams.publish("orders/1", b"kept")
    async with disk.broker(streams=[{**ORDERS, "max_messages": 5}]) as life:
        info = life.node.streams.info("orders")
        assert (info.messages, info.config.max_messages) == (1, 5)
    with pytest.raises(DeclaredStreamError, match="retention"):
        async with disk.broker(streams=[{**ORDERS, "retention": "limits"}]):
            pass
