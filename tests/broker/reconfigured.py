"""Configurations for a node that runs."""

from collections.abc import Mapping
from typing import Any

from trunkline.config.config import Config
from trunkline.config.reader import from_mapping


def other(table: Mapping[str, Any]) -> Config:
    ours = {"listeners": [], "store": {"durability": "memory"}, "control": {"enabled": False}, "sys": {"interval": 0}}
    return from_mapping({**ours, **table})
