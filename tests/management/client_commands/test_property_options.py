"""-D and its words."""

import pytest

from trunkline.management.client_commands.property_options import PACKETS, GivenProperties, join_properties, take

FLAGS = frozenset(("-t", "-m", "--topic"))


@pytest.mark.parametrize(
    ("words", "joined"),
    [
        (
            "-t a -D publish content-type text/plain -m x",
            ["-t", "a", "-D", '["publish", "content-type", "text/plain"]', "-m", "x"],
        ),
        ("-D publish user-property a -5 -r", ["-D", '["publish", "user-property", "a", "-5"]', "-r"]),
        ("--property will content-type x y", ["--property", '["will", "content-type", "x"]', "y"]),
        ("-m -D -t -D x", ["-m", "-D", "-t", "-D", "x"]),
        ("-rm -D a", ["-rm", "-D", "a"]),
        ("-mx -D a b c", ["-mx", "-D", '["a", "b", "c"]']),
        ("--topic -D a", ["--topic", "-D", "a"]),
        ("--topic=x -D a b c", ["--topic=x", "-D", '["a", "b", "c"]']),
        ("-- -D a", ["--", "-D", "a"]),
        ("-D", ["-D", "[]"]),
    ],
)
def test_the_words_of_a_property_are_joined(words: str, joined: list[str]) -> None:
    assert join_properties(words.split(), FLAGS) == joined


def taken(*words: str) -> GivenProperties:
    found: GivenProperties = {packet: {} for packet in PACKETS}
    for each in words:
        take(found, each.split())
    return {packet: own for packet, own in found.items() if own}


def test_values() -> None:
    assert taken(
        "publish user-property a b",
        "PUBLISH user-property a c",
        "publish correlation-data xyz",
        "publish message-expiry-interval 60",
        "subscribe subscription-identifier 7",
        "will will-delay-interval 5",
    ) == {
        "publish": {
            "user_property": (("a", "b"), ("a", "c")),
            "correlation_data": b"xyz",
            "message_expiry_interval": 60,
        },
        "subscribe": {"subscription_identifier": (7,)},
        "will": {"will_delay_interval": 5},
    }


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("puback user-property a b", "'puback' is none of"),
        ("publish will-delay-interval 1", "publish has no will-delay-interval here, only content-type"),
        ("publish topic-alias 1", "use --topic-alias"),
        ("publish payload-format-indicator 2", "'2' is not a whole number up to 1"),
        ("publish message-expiry-interval x", "not a whole number"),
    ],
)
def test_what_is_no_property(words: str, text: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared below
        taken(words)
    assert text in str(caught.value)
    with pytest.raises(ValueError, match="twice"):
        taken("publish content-type a", "publish content-type b")
