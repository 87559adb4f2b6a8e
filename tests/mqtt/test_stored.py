from trunkline.mqtt.stored import StoredPublication


def test_a_message_is_found_by_its_distance_from_the_first() -> None:
    stored = StoredPublication(7, 100, object())
    assert stored.place(103, 2) == (7, 3, 2, ())
    stored.entries = ((1, 5), (2, 9))
    assert stored.place(100, 1) == (7, 0, 1, ((1, 5), (2, 9)))


def test_what_was_read_from_the_store_is_written_and_what_is_new_is_not() -> None:
    assert StoredPublication(1, 0, None).written
    assert not StoredPublication(1, 0, object()).written


def test_nobody_refers_to_a_new_one() -> None:
    stored = StoredPublication(1, 0, object())
    assert (stored.pins, stored.references, stored.entries, stored.waiting) == (0, 0, (), [])
