"""What survives the process: an ordered key-value store with atomic batches, its engines, and the writing thread.

Knows nothing of MQTT. An engine is used by one thread at a time; `Writer` is that thread, and its face in trio.
"""

from trunkline.store.batch import Space, WriteBatch
from trunkline.store.engine import Defect, Engine, Progress, Row
from trunkline.store.errors import (
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreInUse,
    StoreTooNew,
    StoreUnavailable,
)

__all__ = [
    "Defect",
    "Engine",
    "Progress",
    "Row",
    "Space",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreInUse",
    "StoreTooNew",
    "StoreUnavailable",
    "WriteBatch",
]
