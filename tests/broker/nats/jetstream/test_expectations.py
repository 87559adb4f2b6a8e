"""Single expectations; what comes of them is in `test_storing` and `test_batch_publishing`."""

import pytest

from tests.streams.world import World
from trunkline.broker.nats.jetstream.expectations import check_offered, is_exact, number
from trunkline.nats.jetstream.replies import ApiError


@pytest.mark.parametrize(
    ("text", "expected"),
    [(None, None), ("0", 0), ("17", 17), ("-1", -1), ("x", -1), ("", -1), ("9" * 20, -1), ("\N{SUPERSCRIPT ONE}", -1)],
)
def test_numbers(text: str | None, expected: int | None) -> None:
    assert number(text) == expected


def test_topics_of_which_the_last_message_is_known() -> None:
    world = World()
    world.create("#")
    assert is_exact(world.stream, "a")
    world.publish("a", b"1", b"2")
    assert is_exact(world.stream, "a")
    world.stream.log.remove(2)
    assert not is_exact(world.stream, "a")


@pytest.mark.parametrize(
    ("demands", "code"),
    [({"Nats-Incr": "1"}, 10168), ({"Nats-Schedule": "x"}, 10188), ({"Nats-Expected-Stream": "other"}, 10060)],
)
def test_what_is_not_offered(demands: dict[str, str], code: int) -> None:
    world = World()
    world.create("#")
    check_offered(world.stream, {"Nats-Expected-Stream": world.stream.name, "A": "b"})
    with pytest.raises(ApiError) as refused:
        check_offered(world.stream, demands)
    assert refused.value.err_code == code
