"""Where a reader stands: for each incarnation of a node, the number of the next row.

Spark keeps offsets as JSON text and compares the texts, so equal offsets must be equal texts: keys are always sorted.
"""

import json
from collections.abc import Mapping
from typing import Any

from trunkline.events.layout import LogError, NodeKey

#: `n1@1763739192123`: the node's name, and when its exporter started.
Offsets = dict[str, int]


class OffsetError(ValueError):
    """An offset that this source cannot have made."""


def parse(text: str) -> Offsets:
    """Offsets from JSON text.

    Raises: OffsetError.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise OffsetError(f"not JSON: {error}") from None
    return check(value)


def check(value: Any) -> Offsets:
    """Offsets in their order.

    Raises: OffsetError.
    """
    if not isinstance(value, Mapping):
        raise OffsetError(f'expected an object such as {{"n1@1763739192123": 5000}}, not {json.dumps(value)}')
    for key, number in value.items():
        try:
            NodeKey.parse(str(key))
        except LogError as error:
            raise OffsetError(str(error)) from None
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise OffsetError(f"{key}: expected the number of a row, 0 or more, not {json.dumps(number)}")
    return {str(key): value[key] for key in sorted(value)}


def farthest(one: Offsets, other: Offsets) -> Offsets:
    """For each node the greater of both: an offset never goes back."""
    return {key: max(one.get(key, 0), other.get(key, 0)) for key in sorted(one.keys() | other.keys())}
