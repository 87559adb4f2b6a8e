"""What a shard has stored of its dealings with others, as its next life finds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from trunkline.broker.shards.outbox import Unsent, unsent
from trunkline.broker.shards.places import LINKS, Reached, places_from
from trunkline.store.engine import rows

if TYPE_CHECKING:
    from trunkline.store import Engine


class StoredLinks(NamedTuple):
    #: How far it has come with each other shard, by number.
    reached: dict[int, Reached]
    unsent: Unsent


NO_LINKS: Final = StoredLinks({}, Unsent([], {}))


def find_links(engine: Engine) -> StoredLinks:
    return StoredLinks(places_from(rows(engine, LINKS)), unsent(engine))
