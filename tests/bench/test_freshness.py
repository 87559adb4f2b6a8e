"""How the ages of events are summed up. The run itself is for a quiet machine."""

import pytest
from bench.freshness import Batch, quantile, summed_up, table


def test_ages_are_summed_up() -> None:
    batches = [Batch(100, 0.1 * number, 0.2 * number) for number in range(1, 11)]
    found = summed_up("1 second", batches, 5.0)
    assert found.events_per_second == 200
    assert found.batches == 10
    assert (found.newest_p50, found.newest_p95) == pytest.approx((0.6, 1.0))
    assert (found.oldest_p50, found.oldest_p95) == pytest.approx((1.2, 2.0))
    assert "1 second" in table([found])


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1), (0.5, 2), (0.99, 3), (1.0, 3)])
def test_quantiles_of_a_few(share: float, expected: int) -> None:
    assert quantile([3, 1, 2], share) == expected
