from typing import Any

import pytest

from trunkline.mqtt.packets import Puback
from trunkline.mqtt.properties import NO_PROPERTIES


def test_the_empty_block_stays_empty() -> None:
    properties: Any = NO_PROPERTIES

    def assign() -> None:
        properties["reason_string"] = "x"

    def merge() -> None:
        nonlocal properties
        properties |= {"reason_string": "x"}

    changes: list[Any] = [
        assign,
        merge,
        lambda: properties.update(reason_string="x"),
        lambda: properties.setdefault("reason_string", "x"),
        lambda: properties.pop("reason_string", None),
        lambda: properties.popitem(),
        lambda: properties.clear(),
    ]
    for change in changes:
        with pytest.raises(TypeError, match="shared"):
            change()
    assert NO_PROPERTIES == {}
    assert NO_PROPERTIES | {"reason_string": "x"} == {**NO_PROPERTIES, "reason_string": "x"} == {"reason_string": "x"}
    assert not NO_PROPERTIES


def test_packets_share_it() -> None:
    assert Puback(1).properties is NO_PROPERTIES
    assert Puback(1) == Puback(1, properties={})
