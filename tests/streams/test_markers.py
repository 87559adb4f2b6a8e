from trunkline.streams.markers import is_marker, marker


def test_a_marker_says_why_it_is_there_and_how_long() -> None:
    made = marker("a/b", 70.5)
    assert (made.topic, made.payload, made.qos) == ("a/b", b"", 1)
    assert made.properties == {
        "user_property": [("Nats-Marker-Reason", "MaxAge"), ("Nats-TTL", "1m10s"), ("Nats-Rollup", "sub")]
    }
    assert is_marker(made.properties)


def test_whoever_says_a_reason_leaves_a_marker() -> None:
    assert is_marker({"user_property": [("Nats-Marker-Reason", "Purge")]})
    assert not is_marker({"user_property": [("Nats-TTL", "5")]})
    assert not is_marker({})
