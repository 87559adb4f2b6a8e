"""Where a reader stands: for each incarnation of a node, the number of the next row.

Spark keeps offsets as JSON text and compares the texts, so equal offsets must be equal texts: keys are always sorted.
"""

import json

from trunkline.events.layout import LogError
from trunkline.events.positions import checked

#: `n1@1763739192123`: the node's name, and when its exporter started.
Offsets = dict[str, int]


def parse(text: str) -> Offsets:
    """Offsets from JSON text.

    Raises: LogError.
    """
    try:
        return checked(json.loads(text))
    except json.JSONDecodeError as error:
        raise LogError(f"not JSON: {error}") from None


def farthest(one: Offsets, other: Offsets) -> Offsets:
    """For each node the greater of both: an offset never goes back."""
    return {key: max(one.get(key, 0), other.get(key, 0)) for key in sorted(one.keys() | other.keys())}
