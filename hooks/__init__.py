"""Hook points, the chains of callbacks that run there, and the authentication and access rules built in."""

from trunkline.hooks.chain import Hooks
from trunkline.hooks.client import ClientInfo
from trunkline.hooks.decisions import ALLOW, DROP, STOP, TAKEN, Allow, Deny, Stop, Withhold
from trunkline.hooks.exchange import Continue, Exchange, Success
from trunkline.hooks.registration import HookError, Registration

__all__ = [
    "ALLOW",
    "DROP",
    "STOP",
    "TAKEN",
    "Allow",
    "ClientInfo",
    "Continue",
    "Deny",
    "Exchange",
    "HookError",
    "Hooks",
    "Registration",
    "Stop",
    "Success",
    "Withhold",
]
