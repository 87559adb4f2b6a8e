from dataclasses import replace

from tests.analytics.report.made import bad_day, nothing
from tests.analytics.report.sections.parts import section
from trunkline.analytics.report.sections.order import sections


def test_sections_without_results_say_so() -> None:
    found = sections(nothing())
    assert len(found) == 16
    assert all(not each.parts and each.nothing for each in found)


def test_what_is_not_recorded_is_not_denied() -> None:
    found = sections(replace(nothing(), recorded=frozenset(("message.publish", "message.delivered"))))
    assert section(found, "drops").nothing == "Not recorded: message.dropped."
    assert section(found, "traffic").nothing == "No message was published or delivered."
    assert section(found, "alarms").nothing == "Not recorded: alarm.activated, alarm.deactivated."
    assert section(found, "queues").nothing == "No message waited for a client."
    unknown = section(sections(nothing()), "drops").nothing
    assert unknown == "The log has nothing of that, and does not say whether it is recorded."
    narrow = sections(replace(nothing(), recorded=frozenset(("message.dropped",)), narrowed=["clients", "topics"]))
    assert section(narrow, "drops").nothing == "No message was dropped. Only some clients and topics are recorded."


def test_every_section_has_parts_with_names_of_their_own() -> None:
    found = sections(bad_day())
    names = [each.id for each in found] + [part.id for each in found for part in each.parts]
    assert all(each.parts for each in found)
    assert len(set(names)) == len(names)
