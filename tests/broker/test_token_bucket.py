"""A bucket beside the plain rule: tokens come at the rate, up to the burst."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.broker.token_bucket import TokenBucket

RATES = st.floats(0.01, 1e6)
STEPS = st.lists(st.tuples(st.floats(0, 100), st.integers(0, 1000)), max_size=50)


@given(RATES, st.floats(1, 1e6), STEPS)
def test_it_holds_what_the_plain_rule_says(rate: float, burst: float, steps: list[tuple[float, int]]) -> None:
    bucket, tokens, now = TokenBucket(rate, burst), burst, 1000.0
    for pause, amount in steps:
        now += pause
        tokens = min(burst, tokens + pause * rate) - amount
        bucket.take(amount, now)
        assert bucket.available(now) == pytest.approx(tokens, rel=1e-6, abs=1e-3 + rate * 1e-9)


@given(RATES, st.floats(1, 1e4), st.lists(st.tuples(st.floats(0, 10), st.integers(1, 100)), min_size=1, max_size=100))
def test_no_more_than_the_rate_and_the_burst_and_one_step_pass(
    rate: float, burst: float, steps: list[tuple[float, int]]
) -> None:
    """For one that waits while the bucket is in debt, over any time."""
    bucket, now, passed = TokenBucket(rate, burst), 0.0, 0
    for pause, amount in steps:
        now = max(now + pause, bucket.ready_at)
        bucket.take(amount, now)
        passed += amount
    assert passed <= (burst + rate * now + 100) * (1 + 1e-9)


@given(RATES, st.floats(1, 1e4), st.integers(1, 10_000), st.floats(0, 1e6))
def test_when_it_is_said_to_be_ready_one_token_is_there(rate: float, burst: float, amount: int, now: float) -> None:
    bucket = TokenBucket(rate, burst)
    bucket.take(amount, now)
    ready = max(now, bucket.ready_at)
    assert bucket.available(ready) >= 1 - rate * 1e-9 - burst * 1e-9


def test_taking_only_what_is_there() -> None:
    bucket = TokenBucket(2, 3)
    for _ in range(3):
        assert bucket.has(1, 0.0)
        bucket.take(1, 0.0)
    assert not bucket.has(1, 0.0)
    assert not bucket.is_full(0.0)
    assert bucket.has(1, 0.5)
    assert not bucket.has(2, 0.5)
    assert bucket.is_full(1.5)


def test_more_than_the_burst_needs_a_full_bucket() -> None:
    bucket = TokenBucket(1, 10)
    assert bucket.has(100, 0.0)
    bucket.take(1, 0.0)
    assert not bucket.has(100, 0.0)
    assert bucket.has(100, 1.0)


@given(st.integers(1, 10_000), st.integers(1, 100))
def test_with_a_burst_of_one_it_is_a_leaky_bucket_that_shapes(rate: int, events: int) -> None:
    """What comes at once leaves evenly spaced, whatever the pause before it."""
    bucket, now = TokenBucket(rate, 1), 1000.0
    left: list[float] = []
    for _ in range(events):
        now = max(now, bucket.ready_at)
        bucket.take(1, now)
        left.append(now)
    assert left == pytest.approx([1000 + n / rate for n in range(events)])
    assert bucket.shapes
    assert not TokenBucket(rate, 2).shapes
