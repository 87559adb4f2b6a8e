"""Stores in memory, divided anew."""

from trunkline.broker.alive_note import ALIVE, CLOCK, NODE
from trunkline.broker.resharding.resharding import reshard
from trunkline.broker.shards.homes import Homes, dealt
from trunkline.mqtt.packing import pack
from trunkline.store import Engine, Row, Space, WriteBatch
from trunkline.store.engine import rows
from trunkline.store.memory import MemoryEngine


def divide(*former: Engine, into: int, upgrade_qos: bool = False) -> list[MemoryEngine]:
    new = [MemoryEngine() for _ in range(into)]
    reshard(former, new, upgrade_qos=upgrade_qos)
    return new


def home_of(client_id: str, parts: int) -> int:
    return Homes(0, dealt(parts)).home_of(client_id)


def all_rows(engine: Engine, space: Space) -> list[Row]:
    return [*rows(engine, space)]


def holding(*held: tuple[Space, bytes, bytes], stored: float = 100.0, calendar: float = 100.0) -> MemoryEngine:
    """A store of a broker that was last known to run then."""
    engine, batch = MemoryEngine(), WriteBatch()
    batch.put(NODE, ALIVE, pack((stored, 5000, calendar)))
    batch.put(NODE, CLOCK, pack(("", 0.0, 0.0)))
    for space, key, value in held:
        batch.put(space, key, value)
    engine.commit(batch)
    return engine
