"""Plugins: their context, how they are found and run, and those that come with the broker.

Modules that know each other: context, declaring, running.
"""

from trunkline.config.section import Scope
from trunkline.plugins.context import Client, Context
from trunkline.plugins.declaring import Settings, Table, hook, setting
from trunkline.plugins.errors import PluginError
from trunkline.plugins.figures import Counter

__all__ = ["Client", "Context", "Counter", "PluginError", "Scope", "Settings", "Table", "hook", "setting"]
