"""What is said of subscriptions to streams comes as it was."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.broker.shards import feed_words
from trunkline.broker.shards.feed_words import (
    CloseFeed,
    FeedEnded,
    FeedOpened,
    FeedRoom,
    KnownFeed,
    KnownFeeds,
    OpenFeed,
    feed_from_plain,
    feed_to_plain,
)
from trunkline.mqtt.packing import pack, unpack

NUMBERS = st.integers(0, 2**64 - 1)
CONFIGS = st.dictionaries(st.text(), st.none() | st.text() | st.integers(0, 9))
KNOWN = st.builds(KnownFeed, st.text(), st.text(), st.text(), st.text())
FRAMES: st.SearchStrategy[Any] = st.one_of(
    st.builds(OpenFeed, st.text(), NUMBERS, st.text(), CONFIGS, NUMBERS, NUMBERS, st.booleans()),
    st.builds(FeedOpened, st.text(), NUMBERS, NUMBERS, NUMBERS, st.text()),
    st.builds(FeedRoom, st.text(), NUMBERS, NUMBERS, NUMBERS, NUMBERS),
    st.builds(CloseFeed, st.text(), st.text(), st.booleans()),
    st.builds(FeedEnded, st.text(), NUMBERS),
    st.builds(KnownFeeds, st.lists(KNOWN)),
)
ONE_OF_EACH = [
    OpenFeed("n", 1, "s", {}, 2, 3, True),
    FeedOpened("n", 1, 2, 3, ""),
    FeedRoom("n", 1, 2, 3, 4),
    CloseFeed("n", "s", False),
    FeedEnded("n", 1),
    KnownFeeds([KnownFeed("n", "s", "c", "f")]),
]


@given(FRAMES)
def test_what_is_written_is_read(frame: Any) -> None:
    assert feed_from_plain(unpack(pack(feed_to_plain(frame)))) == frame


def test_each_kind_keeps_its_number() -> None:
    """Shards of two versions meet during an upgrade."""
    assert [feed_to_plain(frame)[0] for frame in ONE_OF_EACH] == list(range(6))
    assert {type(frame) for frame in ONE_OF_EACH} == set(feed_words._KINDS) | {KnownFeeds}  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    "plain",
    [
        (4, "n"),
        (4, "n", 1, 1),
        (4, 1, 1),
        (4, "n", -1),
        (4, "n", True),
        (3, "n", "s", 0),
        (0, "n", 1, "s", [], 2, 3, True),
        (5, ("n", "s", "c")),
        (5, "n"),
        (6,),
        (),
        5,
    ],
)
def test_what_is_none(plain: object) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 - its caller makes one error of all
        feed_from_plain(unpack(pack(plain)))
