"""How long to wait before another attempt, and when to give up."""

import pytest

from trunkline.client.errors import ConnectFailed, ConnectRefused, Disconnected, SessionLost
from trunkline.client.retry import ExponentialBackoff, NoRetry

LOST = Disconnected("reset")


def test_waits_double_up_to_the_largest() -> None:
    policy = ExponentialBackoff(first=1, largest=10, jitter=0)
    assert [policy.should_retry(attempt, LOST) for attempt in range(1, 7)] == [1, 2, 4, 8, 10, 10]
    assert policy.should_retry(10**9, LOST) == 10


def test_jitter_shortens_by_its_share_at_most() -> None:
    assert ExponentialBackoff(first=8, jitter=0.25, random=lambda: 0.0).should_retry(1, LOST) == 8
    assert ExponentialBackoff(first=8, jitter=0.25, random=lambda: 1.0).should_retry(1, LOST) == 6
    waits = {ExponentialBackoff(first=8, jitter=0.25).should_retry(1, LOST) for _ in range(20)}
    assert len(waits) > 1
    assert all(wait is not None and 6 < wait <= 8 for wait in waits)


def test_after_the_last_attempt_there_is_none() -> None:
    policy = ExponentialBackoff(max_attempts=2)
    assert policy.should_retry(2, LOST) is not None
    assert policy.should_retry(3, LOST) is None


@pytest.mark.parametrize("error", [ConnectRefused(0x89), ConnectFailed("refused"), LOST], ids=repr)
def test_transient_errors_are_retried(error: Exception) -> None:
    assert ExponentialBackoff().should_retry(1, error) is not None
    assert NoRetry().should_retry(1, error) is None


@pytest.mark.parametrize("error", [ConnectRefused(0x87), SessionLost(), ValueError("a bug")], ids=repr)
def test_others_are_not(error: Exception) -> None:
    assert ExponentialBackoff().should_retry(1, error) is None


@pytest.mark.parametrize("values", [{"first": 2, "largest": 1}, {"first": -1}, {"jitter": 1.5}], ids=repr)
def test_impossible_policies_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be between"):
        ExponentialBackoff(**values)  # type: ignore[arg-type]
