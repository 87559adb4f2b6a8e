"""`-D COMMAND NAME VALUE`: properties of MQTT 5.0, as in Mosquitto's commands. A user property has two values, so an
option of click, which takes a fixed number of words, is not enough: the words are joined before click sees them."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from trunkline.mqtt.properties import Properties

#: By the packet that has them: properties by the names of `trunkline.mqtt.properties`.
GivenProperties: TypeAlias = "dict[str, Properties]"

USER_PROPERTY: Final = "user-property"
_MESSAGE: Final = (
    "content-type",
    "correlation-data",
    "message-expiry-interval",
    "payload-format-indicator",
    "response-topic",
    USER_PROPERTY,
)
#: What each packet may have.
PACKETS: Final = {
    "connect": (
        "maximum-packet-size",
        "receive-maximum",
        "request-problem-information",
        "request-response-information",
        "session-expiry-interval",
        "topic-alias-maximum",
        USER_PROPERTY,
    ),
    "publish": _MESSAGE,
    "subscribe": ("subscription-identifier", USER_PROPERTY),
    "unsubscribe": (USER_PROPERTY,),
    "disconnect": ("session-expiry-interval", USER_PROPERTY),
    "will": (*_MESSAGE, "will-delay-interval"),
}
#: The largest value of properties that are numbers.
_NUMBERS: Final = {
    "maximum-packet-size": 0xFFFF_FFFF,
    "message-expiry-interval": 0xFFFF_FFFF,
    "payload-format-indicator": 1,
    "receive-maximum": 0xFFFF,
    "request-problem-information": 1,
    "request-response-information": 1,
    "session-expiry-interval": 0xFFFF_FFFF,
    "subscription-identifier": 0xFFF_FFFF,
    "topic-alias-maximum": 0xFFFF,
    "will-delay-interval": 0xFFFF_FFFF,
}


def property_option(*packets: str) -> Callable[..., Any]:
    """Passes `GivenProperties` to the command as `properties`."""

    def read(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> GivenProperties:
        found: GivenProperties = {packet: {} for packet in packets}
        for value in values:
            try:
                take(found, _split(value))
            except ValueError as error:
                raise click.BadParameter(str(error), context, parameter) from None
        return found

    return click.option(
        "-D",
        "--property",
        "properties",
        multiple=True,
        callback=read,
        metavar="PACKET NAME VALUE",
        help=f"A property (5.0) of {', '.join(packets)}; {USER_PROPERTY} has a name and a value. May be repeated.",
    )


def join_properties(arguments: Iterable[str], with_value: frozenset[str]) -> list[str]:
    """The words of each -D as one. `with_value` are the options that take one word, which may look like -D."""
    found: list[str] = []
    words = iter(arguments)
    for word in words:
        found.append(word)
        if word == "--":
            found += words
        elif word in ("-D", "--property"):
            parts = list(islice(words, 3))
            parts += islice(words, 1 if parts[1:2] == [USER_PROPERTY] else 0)
            found.append(json.dumps(parts))
        elif _awaits_value(word, with_value):
            found += islice(words, 1)
    return found


def _awaits_value(word: str, with_value: frozenset[str]) -> bool:
    if word.startswith("--"):
        return word in with_value
    # of flags in one word, such as -vR, the last may have its value in the next word
    takers = [place for place, letter in enumerate(word) if place and word[0] == "-" and f"-{letter}" in with_value]
    return takers[:1] == [len(word) - 1]


def _split(value: str) -> list[str]:
    try:
        words: list[str] = json.loads(value)
    except ValueError:  # it stood behind other letters: -vD
        words = []
    if len(words) < 3 or (len(words) == 3 and words[1] == USER_PROPERTY):
        raise ValueError(
            f"give PACKET NAME VALUE, such as: publish content-type text/plain; {USER_PROPERTY} has two values"
        )
    return words


def take(found: GivenProperties, words: Sequence[str]) -> None:
    """
    Raises:
        ValueError: this packet has no such property, or not with this value.
    """
    packet, name, value = words[0].lower(), words[1], words[-1]
    if packet not in found:
        raise ValueError(f"{words[0]!r} is none of {', '.join(found)}")
    if name not in PACKETS[packet]:
        hint = ": use --topic-alias" if name == "topic-alias" else f", only {', '.join(PACKETS[packet])}"
        raise ValueError(f"{packet} has no {name} here{hint}")
    key, own = name.replace("-", "_"), cast("dict[str, Any]", found[packet])
    if name == USER_PROPERTY:
        own[key] = (*own.get(key, ()), (words[2], value))
    elif key in own:
        raise ValueError(f"{packet} {name} is given twice")
    elif name in _NUMBERS:
        if not (value.isdecimal() and int(value) <= _NUMBERS[name]):
            raise ValueError(f"{packet} {name}: {value!r} is not a whole number up to {_NUMBERS[name]}")
        own[key] = (int(value),) if name == "subscription-identifier" else int(value)
    else:
        own[key] = value.encode() if name == "correlation-data" else value
