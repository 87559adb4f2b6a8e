import pytest

from trunkline.hooks import ClientInfo
from trunkline.plugins.shipped.placeholders import filled, value_of

ADA = ClientInfo("c1", "ada", ("10.0.0.1", 4711))


def test_all_of_them() -> None:
    assert filled("a/%c/%u/%h/%p/%%/%x", ADA) == "a/c1/ada/10.0.0.1/4711/%%/%x"
    assert filled("plain", ClientInfo("")) == "plain"


@pytest.mark.parametrize("word", ["", "a/b", "+", "#", "x#"])
def test_words_that_would_change_the_meaning(word: str) -> None:
    assert filled("a/%c", ClientInfo(word)) is None
    assert filled("a/%u", ClientInfo("c", word)) is None
    assert filled("a/b", ClientInfo(word, word)) == "a/b"


def test_words_that_are_not_there() -> None:
    assert [value_of(letter, ClientInfo("c")) for letter in "cuhp"] == ["c", None, None, None]


def test_a_word_is_not_read_again_and_opens_no_topic_of_the_broker() -> None:
    assert filled("a/%c", ClientInfo("%u", "ada")) == "a/%u"
    assert filled("%c/a", ClientInfo("$SYS")) is None
    assert filled("$%c/a", ClientInfo("SYS")) == "$SYS/a"
    assert filled("a/%c", ClientInfo("$SYS")) == "a/$SYS"
