"""Many subscriptions to streams begin and end some at a time."""

from trunkline.broker.session.feeds import FEEDS_AT_ONCE, in_turns


def test_each_has_its_turn_and_no_turn_has_many() -> None:
    items = dict.fromkeys(range(2 * FEEDS_AT_ONCE + 1))
    done: list[int] = []

    def end(item: int) -> None:
        done.append(item)
        del items[item]

    turns = in_turns(items, end)
    for count in (FEEDS_AT_ONCE, 2 * FEEDS_AT_ONCE):
        next(turns)
        assert len(done) == count
    assert list(turns) == []
    assert done == list(range(2 * FEEDS_AT_ONCE + 1))
