"""Topic filters to subscribers, shared groups, retained messages. Pure: no tasks, no clock, no I/O.

Modules that know each other: shared, target.
"""

from trunkline.router.options import Options
from trunkline.router.retained import RetainedStore, RetainResult
from trunkline.router.router import Router
from trunkline.router.shared import Group, Member, ShareStrategy
from trunkline.router.target import Destination, Route, Sink, Target

__all__ = [
    "Destination",
    "Group",
    "Member",
    "Options",
    "RetainResult",
    "RetainedStore",
    "Route",
    "Router",
    "ShareStrategy",
    "Sink",
    "Target",
]
