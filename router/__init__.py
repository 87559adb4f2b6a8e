"""Topic filters to subscribers, shared groups, retained messages. Pure: no tasks, no clock, no I/O."""

from trunkline.router.options import Options
from trunkline.router.retained import Outcome, RetainedStore
from trunkline.router.router import Router
from trunkline.router.shared import Group, Strategy
from trunkline.router.target import Route, Subscriber, Target

__all__ = ["Group", "Options", "Outcome", "RetainedStore", "Route", "Router", "Strategy", "Subscriber", "Target"]
