"""The will of a client whose session is not stored, as it ends with its connection: a row of its own, from before the
CONNACK to the publication.  # [MQTT-3.1.2-8]

The process takes such a session with it, so the next one publishes the will at once, before anybody can connect: the
client's own messages come later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from trunkline.broker.session.export import will_from_plain, will_to_plain
from trunkline.hooks.client import client_from_plain, client_to_plain
from trunkline.mqtt.packing import pack, unpack
from trunkline.store import Space
from trunkline.store.engine import key_of

if TYPE_CHECKING:
    from trunkline.actors import Ref
    from trunkline.broker.committer import Committer
    from trunkline.hooks.client import ClientInfo
    from trunkline.mqtt.packets import Will
    from trunkline.store import Row, WriteBatch

#: By a number that was given to nothing else.
WILLS: Final = Space("wills")


class StoredWill:
    """It belongs to the committer's parts."""

    __slots__ = ("_changed_in", "_committer", "_is_stored", "_key", "client", "owner", "will")

    def __init__(
        self, committer: Committer, key: bytes, client: ClientInfo, will: Will, *, is_stored: bool = False
    ) -> None:
        self._committer = committer
        self._key = key
        self._is_stored = is_stored
        #: The commit that holds it as it is now.
        self._changed_in = committer.committed
        self.client = client
        #: None when it was published, or is not to be.
        self.will: Will | None = will
        self.owner: Ref[Any] | None = None

    @classmethod
    def of(cls, client: ClientInfo, will: Will, committer: Committer) -> StoredWill:
        """One that is not stored yet."""
        stored = cls(committer, key_of(committer.publications.next_number()), client, will)
        stored._changed()
        return stored

    @property
    def is_settled(self) -> bool:
        """Whether the store has it, or has it no more."""
        return self._changed_in <= self._committer.committed

    def end(self) -> None:
        """It was published, or is not to be."""
        if self.will is not None:
            self.will = None
            self._changed()

    def write(self, batch: WriteBatch) -> None:
        if self.will is not None:
            row = {"client": client_to_plain(self.client), "will": will_to_plain(self.will)}
            batch.put(WILLS, self._key, pack(row))
            self._is_stored = True
        elif self._is_stored:
            batch.delete(WILLS, self._key, put_once=True)

    def _changed(self) -> None:
        self._changed_in = self._committer.gathering
        self._committer.change(self, at_once=True)


def restored_will(row: Row, committer: Committer) -> StoredWill:
    key, value = row
    client, will = will_from_row(value)
    return StoredWill(committer, key, client, will, is_stored=True)


def will_from_row(value: bytes) -> tuple[ClientInfo, Will]:
    plain = unpack(value)
    return client_from_plain(plain["client"]), will_from_plain(plain["will"])
