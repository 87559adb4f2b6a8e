import pytest

from trunkline.mqtt.packets import Puback
from trunkline.mqtt.properties import NO_PROPERTIES


def test_the_empty_block_stays_empty() -> None:
    with pytest.raises(TypeError, match="shared"):
        NO_PROPERTIES["reason_string"] = "x"
    assert NO_PROPERTIES == {}
    assert not NO_PROPERTIES


def test_packets_share_it() -> None:
    assert Puback(1).properties is NO_PROPERTIES
    assert Puback(1) == Puback(1, properties={})
