from types import MappingProxyType

import pytest

from trunkline.mqtt.packing import pack, unpack
from trunkline.mqtt.user_properties import UserProperties


@pytest.mark.parametrize(
    "value", [None, True, 0, -1, 2**64 - 1, 1.5, "ü", b"\0\xff", [1, [2]], {"a": {"b": [None]}}, {1: "one", b"k": 2}]
)
def test_plain_values_come_back_as_they_were(value: object) -> None:
    assert unpack(pack(value)) == value
    assert type(unpack(pack(value))) is type(value)


def test_mappings_and_sequences_come_back_as_dicts_and_lists() -> None:
    assert unpack(pack({"a": (1, 2), "b": MappingProxyType({"c": range(3)})})) == {"a": [1, 2], "b": {"c": [0, 1, 2]}}
    assert unpack(pack(UserProperties(b"&\0\1k\0\1v"))) == [["k", "v"]]


@pytest.mark.parametrize("value", [object(), {"a": [object()]}, {1, 2}, 2**64, "\udc00"])
def test_what_is_not_plain_is_refused(value: object) -> None:
    with pytest.raises((TypeError, OverflowError, ValueError)):
        pack(value)


def test_the_type_that_is_not_plain_is_named() -> None:
    with pytest.raises(TypeError, match="^set is no plain value$"):
        pack({"a": {1}})
