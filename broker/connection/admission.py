"""Which addresses may connect to a listener."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.hooks.client import read_address

if TYPE_CHECKING:
    from trunkline.config.listener_settings import ListenerSettings


def address_refusal(settings: ListenerSettings, peer: tuple[str, int]) -> str:
    """Why a client with this address and port may not connect; empty if it may."""
    if settings.allow or settings.deny:
        address = read_address(peer[0])
        allowed = not settings.allow or any(address in network for network in settings.allow)
        if not allowed or any(address in network for network in settings.deny):
            return "the address is not allowed"
    return ""
