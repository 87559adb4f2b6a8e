from trunkline.broker.metrics import LimitKind
from trunkline.broker.node_use import ALONE, SESSIONS
from trunkline.broker.rate_limits import RateLimit, limit_of
from trunkline.config.mqtt_settings import RateSettings


def test_a_node_of_one_shard_has_all_of_its_limits_itself() -> None:
    ALONE.has(SESSIONS, 5, 10)
    assert ALONE.elsewhere(SESSIONS) == 0
    assert type(limit_of(LimitKind.NODE_BYTES, RateSettings(bytes="1/s"), ALONE)) is RateLimit
