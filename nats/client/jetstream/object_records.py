"""What is known of an object, in its store: found, and replaced once, also where others do the same."""

from __future__ import annotations

from dataclasses import replace
from time import time
from typing import TYPE_CHECKING, Final

import trio

from trunkline.nats.errors import NoResponders, ObjectExists, PayloadTooLarge
from trunkline.nats.jetstream.buckets import OBJECTS
from trunkline.nats.jetstream.entries import ROLLUP, ROLLUP_SUBJECT
from trunkline.nats.jetstream.object_infos import object_info_of, subject_of
from trunkline.nats.jetstream.replies import ApiError, MessageMissing, WrongLast

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.nats.client.jetstream.context import JetStream
    from trunkline.nats.jetstream.object_infos import ObjectInfo

#: To be the one that says what an object is, where others do, too.
ATTEMPTS: Final = 100


async def find_info(js: JetStream, bucket: str, name: str, *, direct: bool = False) -> tuple[ObjectInfo | None, int]:
    """What is known of an object, and where that is in the stream; None and 0: nothing."""
    try:
        found = await js.get(OBJECTS + bucket, last=subject_of(bucket, name), direct=direct)
    except MessageMissing:
        return None, 0
    return replace(object_info_of(found.payload, found.time), bucket=bucket), found.sequence


class Replacement:
    """Of what is known of an object."""

    info: ObjectInfo
    #: It may have been stored, although there is no answer.
    is_in_doubt = False

    def __init__(self, js: JetStream, bucket: str, name: str) -> None:
        self._js = js
        self._bucket = bucket
        self._name = name

    async def run(self, make: Callable[[ObjectInfo | None], ObjectInfo]) -> ObjectInfo | None:
        """Returns what was known. `info` has then about the time at which it was stored.

        Once it is asked for, a cancellation waits for the answer, for as long as a request may take: otherwise nobody
        would know which chunks are needed. It comes behind what the caller does then without waiting, or shielded.
        """
        subject = subject_of(self._bucket, self._name)
        for attempt in range(ATTEMPTS):
            before, sequence = await find_info(self._js, self._bucket, self._name)
            self.info = make(before)
            self.is_in_doubt = True
            try:
                with trio.CancelScope(shield=True):
                    await self._js.publish(
                        subject,
                        self.info.encode(),
                        headers={ROLLUP: ROLLUP_SUBJECT},
                        expected_last_subject_sequence=sequence,
                    )
            except (ApiError, NoResponders, PayloadTooLarge) as error:
                self.is_in_doubt = False
                if not isinstance(error, WrongLast) or attempt == ATTEMPTS - 1:
                    raise
            else:
                # the clock of this machine: an acknowledgement has no time (ADR-20, Modified Time)
                self.info = replace(self.info, modified=time())
                return before
        raise AssertionError


def unless_object(before: ObjectInfo | None, info: ObjectInfo) -> ObjectInfo:
    """Nothing may be stored in the place of an object, which would be lost."""
    if before is not None and not before.is_deleted and before.link is None:
        raise ObjectExists(f"{before.bucket} has an object {before.name!r}")
    return info
