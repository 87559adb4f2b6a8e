"""What the options of a reader mean, once they are understood."""

from dataclasses import dataclass, field
from typing import Literal

from trunkline.analytics.source.offsets import Offsets

Policy = Literal["fail", "skip"]
#: Rows that are there when a query first starts, or from where on.
Position = Literal["earliest", "latest"] | Offsets


@dataclass(frozen=True, slots=True)
class Settings:
    """The options, with their defaults. Times are microseconds since the epoch, durations are in seconds."""

    path: str
    storage: dict[str, str] = field(default_factory=dict, repr=False)
    nodes: frozenset[str] = frozenset()
    kinds: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    starting: Position = "earliest"
    ending: Position = "latest"
    on_corrupt: Policy = "fail"
    on_loss: Policy = "fail"
    verify: bool = True
    rows_per_partition: int = 250_000
    bytes_per_partition: int = 64 * 2**20
    rows_per_trigger: int | None = None
    bytes_per_trigger: int | None = None
    align: bool = True
    align_within: float = 0.5
    max_wait: float = 10.0
    consumer: str | None = None
    push_filters: bool = False
