"""Ctrl-C at a moment that a test chooses."""

from typing import Any

import pytest


def interrupt_behind(what: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call that waits, when what it asked for has come."""
    run = what._thread.run

    def interrupted(*args: object) -> None:
        run(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(what._thread, "run", interrupted)
