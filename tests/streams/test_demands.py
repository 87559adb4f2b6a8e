import pytest

from trunkline.mqtt.properties import Properties
from trunkline.streams.config import StreamConfig
from trunkline.streams.demands import check_demands, is_demanding
from trunkline.streams.errors import InvalidLife, LifeForbidden, RollupForbidden

STREAM = StreamConfig(name="s", filters=("#",))


def said(*pairs: tuple[str, str]) -> Properties:
    return {"user_property": list(pairs)}


def test_what_demands_something() -> None:
    assert is_demanding(said(("a", "b"), ("Nats-Rollup", "sub")))
    assert is_demanding(said(("Nats-TTL", "5")))
    assert not is_demanding(said(("Nats-TTL", ""), ("Nats-Rollup", ""), ("Nats-Msg-Id", "1")))
    assert not is_demanding({"content_type": "text"})


@pytest.mark.parametrize(
    ("properties", "error"),
    [
        (said(("Nats-Rollup", "sub")), RollupForbidden),
        (said(("Nats-TTL", "5")), LifeForbidden),
        (said(("Nats-TTL", "x")), InvalidLife),
        (said(("a", "b"), ("Nats-TTL", "0")), InvalidLife),
    ],
)
def test_what_a_stream_does_not_do(properties: Properties, error: type[Exception]) -> None:
    with pytest.raises(error):
        check_demands(STREAM, properties)


def test_what_it_does() -> None:
    config = StreamConfig(name="s", filters=("#",), allow_message_ttl=True, allow_rollup=True)
    check_demands(config, said(("Nats-TTL", "5"), ("Nats-Rollup", "ALL"), ("other", "x")))
    check_demands(STREAM, said(("Nats-TTL", ""), ("Nats-Rollup", "")))


def test_each_of_them_is_looked_at() -> None:
    config = StreamConfig(name="s", filters=("#",), allow_rollup=True)
    with pytest.raises(LifeForbidden):
        check_demands(config, said(("Nats-Rollup", "sub"), ("Nats-TTL", "5")))
