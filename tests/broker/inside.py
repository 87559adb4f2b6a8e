"""Tests of the broker look into it. All others see what everybody sees."""

from trunkline.broker.node.admin import Admin
from trunkline.broker.node.parts import Node


def inside(broker: Admin) -> Node:
    return broker._node  # pyright: ignore[reportPrivateUsage]
