"""What a failing network raises in a client, and what that means."""

from __future__ import annotations

import os
import ssl
from typing import Final, cast

import trio

NETWORK_ERRORS: Final = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)


def reason_of(error: BaseException) -> str:
    """The innermost error says most: trio puts others around those of TLS, and of several addresses."""
    cause = error.__cause__
    if isinstance(cause, ExceptionGroup):
        return reason_of(cast("ExceptionGroup[Exception]", cause).exceptions[0])
    if cause is not None:
        return reason_of(cause)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and (alert := (error.reason or "").partition("_ALERT_")[2]):
        return f"the server ended TLS: {alert.replace('_', ' ').lower()}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed, {error.reason or error}: does the server speak TLS at this port?"
    if isinstance(error, OSError) and error.errno and str(error.strerror).startswith("Error connecting to "):
        return os.strerror(error.errno)  # trio's words name the address, which stands before these
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
