"""For consumers of results: telling a message that was published again from a new one.

A batch that Spark runs again is published again, message by message with the same numbers. A consumer that
remembers which numbers it has seen recognizes the repeats.
"""

import re
from collections import OrderedDict
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

#: User properties of every message. The first names query and batch, the second the row in it.
BATCH: Final = "trunkline-batch"
ROW: Final = "trunkline-row"

#: Rows that are numbered are remembered in bitmaps of so many.
_BLOCK: Final = 1024
#: A number as the sink writes it: what has a zero before it is another text.
_NUMBERED: Final = re.compile(r"(.*?)(0|[1-9][0-9]{0,17})", re.ASCII | re.DOTALL)


class Deduplicator:
    """Remembers what it has seen, up to a bound; works with any client library, and with any order of arrival.

    Not for several threads at once. What is forgotten counts as new when it comes again: nothing is ever dropped that
    was not seen before.
    """

    def __init__(self, limit: int = 4096) -> None:
        """`limit`: how many blocks of up to 1024 neighbouring rows are remembered, about 300 bytes each. The block that
        was not touched for longest is forgotten first."""
        if limit < 1:
            raise ValueError("a deduplicator that remembers nothing lets everything pass")
        self.limit = limit
        self._seen: OrderedDict[tuple[bytes, int], int] = OrderedDict()

    def is_new(self, properties: Iterable[tuple[str, str]]) -> bool:
        """Whether a message with these user properties was not seen before; it is from now on.

        Messages without numbers, which no sink of Trunkline's has sent, are always new.
        """
        batch = row = None
        for key, value in properties:
            if key == BATCH:
                batch = value
            elif key == ROW:
                row = value
        if batch is None or row is None:
            return True
        numbered = _NUMBERED.fullmatch(row)
        prefix, number = (row, 0) if numbered is None else (numbered[1], int(numbered[2]) + 1)
        # with the length, so that no two pairs of texts look alike; a digest, as clients may send texts of 64 KiB
        digest = blake2b(f"{len(batch)} {batch}{prefix}".encode(), digest_size=16).digest()
        key_of_block = (digest, number // _BLOCK)
        bit = 1 << number % _BLOCK
        seen = self._seen.get(key_of_block, 0)
        self._seen[key_of_block] = seen | bit
        self._seen.move_to_end(key_of_block)
        if len(self._seen) > self.limit:
            self._seen.popitem(last=False)
        return not seen & bit
