import sys

import pytest

from trunkline.broker.process_memory import memory


@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell less")
def test_memory_is_what_the_process_takes() -> None:
    before, _ = memory()
    held = bytearray(64_000_000)
    held[::4096] = b"x" * len(held[::4096])
    now, most = memory()
    assert before + 60_000_000 < now <= most
    assert len(held) < now
