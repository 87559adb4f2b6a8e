from trunkline.config.mqtt_settings import MqttSettings, SessionSettings, ZoneSettings


def test_a_zone_changes_what_it_sets_in_the_section_that_has_it() -> None:
    zone = ZoneSettings(max_qos=1, max_inflight=3)
    general = MqttSettings(max_qos=2, max_packet_size=1000)
    assert zone.applied_to(general) == MqttSettings(max_qos=1, max_packet_size=1000)
    assert zone.applied_to(SessionSettings(max_queue_length=5)) == SessionSettings(max_queue_length=5, max_inflight=3)


def test_a_zone_that_sets_a_default_still_sets_it() -> None:
    zone = ZoneSettings(max_qos=MqttSettings().max_qos)
    assert zone.applied_to(MqttSettings(max_qos=0)).max_qos == MqttSettings().max_qos


def test_a_dumped_zone_has_only_what_it_sets() -> None:
    zone = ZoneSettings(max_qos=1)
    assert zone.model_dump() == {"max_qos": 1}
    assert ZoneSettings.model_validate(zone.model_dump()).model_fields_set == {"max_qos"}
