from trunkline.config.key_path import dotted, nearest


def test_places_are_written_as_a_file_has_them() -> None:
    assert dotted(("mqtt", "max_qos")) == "mqtt.max_qos"
    assert dotted(("listeners", 2, "url")) == "listeners[2].url"
    assert dotted(("plugins", "topic-rewrite", "rules", 0, "to")) == "plugins.topic-rewrite.rules[0].to"
    assert dotted(("session", "priorities", "a/+")) == 'session.priorities."a/+"'
    assert dotted(()) == ""


def test_the_nearest_name_is_a_hint() -> None:
    assert nearest("max_quos", ["max_qos", "url"]) == "; did you mean max_qos?"
    assert nearest("zzz", ["max_qos"]) == ""
