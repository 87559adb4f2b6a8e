"""Two spaces, and how keys get into them."""

from trunkline.store import Engine, Space, WriteBatch

COLOURS = Space("colours")
OTHERS = Space("others")


def put(engine: Engine, space: Space, **values: bytes) -> None:
    batch = WriteBatch()
    for key, value in values.items():
        batch.put(space, key.encode(), value)
    engine.commit(batch)
