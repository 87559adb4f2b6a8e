from datetime import UTC, datetime, timedelta, timezone

from trunkline.events.times import from_microseconds, to_microseconds

MOMENT = datetime(2026, 3, 1, 12, 0, 0, 123_457, tzinfo=UTC)


def test_there_and_back() -> None:
    assert from_microseconds(to_microseconds(MOMENT)) == MOMENT
    assert to_microseconds(datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)) == -1


def test_a_time_without_zone_is_of_utc() -> None:
    assert to_microseconds(MOMENT.replace(tzinfo=None)) == to_microseconds(MOMENT)
    assert to_microseconds(MOMENT.astimezone(timezone(timedelta(hours=5)))) == to_microseconds(MOMENT)
