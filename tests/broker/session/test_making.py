"""Sessions, and their settings."""

from trunkline.broker.session.making import _priorities  # pyright: ignore[reportPrivateUsage]
from trunkline.config.reader import from_mapping


def test_priorities_go_by_name_first_and_then_by_filter() -> None:
    configured = from_mapping({"session": {"priorities": {"a/#": 3, "a/b": 9, "+/c": 5}}}).session.priorities
    priority = _priorities(configured)
    assert priority is not None
    assert [priority(topic) for topic in ("a/b", "a/x", "x/c", "a/c", "other")] == [9, 3, 5, 3, None]
    assert _priorities({}) is None
