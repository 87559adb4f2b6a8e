"""The ids of messages."""

from tests.streams.world import World, single
from trunkline.streams.duplicates import DuplicateWindow, message_id


def test_the_id_is_a_user_property() -> None:
    assert message_id(single("a", b"", "x").properties) == "x"
    assert message_id({"user_property": [("other", "y")]}) is None


def test_an_id_is_known_for_the_window_and_no_longer() -> None:
    window = DuplicateWindow()
    assert (window.first, window.last_id) == (None, "")
    window.add("x", 1, 10.0)
    window.add("y", 2, 20.0)
    assert window.find("x", 10.0) == 1
    assert window.first == 1
    assert window.find("x", 10.5) is None
    assert (window.first, window.last_id) == (2, "y")


def test_a_message_that_comes_twice_is_kept_once_also_across_a_crash() -> None:
    world = World()
    world.create("#", duplicate_window=60.0)
    assert not world.take(single("a", b"1", "x"))
    assert not world.take(single("a", b"again", "x"))
    world.restart()
    assert not world.take(single("a", b"again", "x"))
    assert world.stream.info.messages == 1
    world.now += 61
    assert not world.take(single("a", b"new", "x"))
    assert world.stream.info.messages == 2
