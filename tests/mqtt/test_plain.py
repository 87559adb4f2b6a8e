from dataclasses import dataclass
from types import MappingProxyType

from trunkline.mqtt.plain import in_words, plain
from trunkline.mqtt.user_properties import UserProperties


def test_every_mapping_is_a_dict_and_every_sequence_a_list() -> None:
    properties = {"user_property": UserProperties(b"&\0\1k\0\1v"), "subscription_identifier": (1, 2), "data": b"x"}
    found = plain(MappingProxyType(properties))
    assert found == {"user_property": [["k", "v"]], "subscription_identifier": [1, 2], "data": b"x"}
    assert [type(value) for value in (found, *found.values())] == [dict, list, list, bytes]


@dataclass
class Unknown:
    number: int


def test_in_words() -> None:
    assert in_words({1: (None, True, 1.5, "a", b"x", Unknown(3))}) == {
        "1": [None, True, 1.5, "a", "b'x'", str(Unknown(3))]
    }
