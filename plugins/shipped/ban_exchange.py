"""The bans of a node of several workers: each worker has those of all. Bans of the configuration it reads itself.

A worker tells the others whom it bans, and whom no more; and all of that to a worker that has come, and when its plugin
starts. Of two changes of one ban the later counts, so it does no harm to tell one again.
"""

from __future__ import annotations

from collections import OrderedDict
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from trunkline.plugins.shipped.ban_list import Ban

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.plugins import Context
    from trunkline.plugins.shipped.ban_list import BanList, Kind

    #: Kind and who, when that was changed, and reason, origin and end of the ban; None: there is none any more. Times
    #: are seconds since the epoch.
    Change: TypeAlias = tuple[Kind, str, float, tuple[str, str, float] | None]

#: The origin of those that each worker has by itself.
CONFIG: Final = "config"
#: Changes in one message.
AT_ONCE: Final = 500
#: Bans that are no more and that are remembered: a worker that was away meanwhile has them still.
MAX_LIFTED: Final = 10_000


class BanExchange:
    def __init__(
        self, context: Context[Any], bans: BanList, enforce: Callable[[Ban], None], lift: Callable[[Ban], None]
    ) -> None:
        """`enforce` and `lift` do here what another worker has done."""
        self._context = context
        self._workers = context.workers
        self._bans = bans
        self._enforce = enforce
        self._lift = lift
        #: When, in seconds since the epoch.
        self._lifted: OrderedDict[tuple[Kind, str], float] = OrderedDict()

    def start(self) -> None:
        """This worker's own are known."""
        self._workers.hear(self._heard)
        self._workers.when_reached(self._tell_all)
        self._workers.tell(None)  # which asks for theirs

    def banned(self, ban: Ban) -> None:
        """Here."""
        self._lifted.pop((ban.kind, ban.who), None)
        self._workers.tell([self._as_told(ban)])

    def lifted(self, ban: Ban) -> None:
        """Here, before its time was over."""
        self._note_lifted(ban.kind, ban.who, self._context.wall)
        self._workers.tell([(ban.kind, ban.who, self._context.wall, None)])

    def _note_lifted(self, kind: Kind, who: str, at: float) -> None:
        self._lifted[kind, who] = at
        self._lifted.move_to_end((kind, who))
        if len(self._lifted) > MAX_LIFTED:
            self._lifted.popitem(last=False)

    @property
    def _behind(self) -> float:
        """What turns the times of bans into seconds since the epoch."""
        return self._context.wall - self._context.store.now

    def _as_told(self, ban: Ban) -> Change:
        behind = self._behind
        return ban.kind, ban.who, ban.at + behind, (ban.reason, ban.by, ban.until + behind)

    def _tell_all(self, worker: int) -> None:
        changes = [self._as_told(ban) for ban in self._bans if ban.by != CONFIG]
        changes += [(kind, who, at, None) for (kind, who), at in self._lifted.items()]
        for first in range(0, len(changes), AT_ONCE):
            self._workers.tell(changes[first : first + AT_ONCE], worker)

    def _heard(self, worker: int, changes: list[Change] | None) -> None:
        if changes is None:
            self._tell_all(worker)
            return
        for change in changes:
            self._follow(*change)

    def _follow(self, kind: Kind, who: str, at: float, fields: tuple[str, str, float] | None) -> None:
        behind, known = self._behind, self._bans.get(kind, who)
        if at <= (self._lifted.get((kind, who), -inf) if known is None else known.at + behind):
            return
        if fields is None:
            self._note_lifted(kind, who, at)
            if known is not None:
                self._lift(known)
            return
        reason, by, until = fields
        self._lifted.pop((kind, who), None)
        if until > self._context.wall:
            self._enforce(Ban(kind, who, reason, by, at - behind, until - behind))
