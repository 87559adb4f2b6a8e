from math import inf

from trunkline.config.node_settings import StoreSettings, TraceSettings


def test_what_may_wait_fits_into_a_small_store() -> None:
    assert StoreSettings(max_size=1 << 20).max_uncommitted == 1 << 18
    assert StoreSettings(max_size=1 << 40, max_uncommitted_bytes=100).max_uncommitted == 100
    assert StoreSettings(max_uncommitted_bytes=0).max_uncommitted == inf


def test_tracing_is_on_when_something_is_traced() -> None:
    assert not TraceSettings().on
    assert TraceSettings(clients=("c",)).on
    assert TraceSettings(topics=("t/#",)).on
