"""Where a subscription to a stream begins, as its user properties say it."""

import pytest

from trunkline.broker.session.stream_start import InvalidStart, Start, read_start
from trunkline.streams import DeliverPolicy


def test_beginnings() -> None:
    def read(word: str, **more: str) -> Start:
        return read_start({"user_property": [("from", word), *more.items()]})

    assert read_start({}) == Start(DeliverPolicy.NEW)
    assert read("earliest", metadata="yes") == Start(DeliverPolicy.ALL, metadata=True)
    assert read("17") == Start(DeliverPolicy.BY_START_SEQUENCE, sequence=17)
    assert read("1970-01-01T00:01:00Z") == Start(DeliverPolicy.BY_START_TIME, time=60.0)
    assert read("1970-01-01T01:01:00+01:00").time == 60.0
    for word in ("", "soon", "-1", "1.5", "2026-01-31", "2026-01-31T12:00:00", "9" * 30, "2026-13-31T12:00:00Z"):
        with pytest.raises(InvalidStart, match="neither earliest"):
            read(word)
    with pytest.raises(InvalidStart, match="neither yes nor no"):
        read("latest", metadata="perhaps")
