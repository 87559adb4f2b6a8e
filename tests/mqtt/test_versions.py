from trunkline.mqtt.versions import Version


def test_names() -> None:
    assert [str(version) for version in Version] == ["3.1", "3.1.1", "5.0"]
    assert [int(version) for version in Version] == [3, 4, 5]
