"""Suites against a broker of several workers, with `--workers 3`: shards in the testing kit, processes elsewhere. What
is for one worker alone is listed here, and why."""

from collections.abc import Mapping, Sequence
from typing import Final

import pytest

#: How many the brokers of this run have, where a test does not say.
count = 1


def environment() -> Mapping[str, str]:
    """For a broker in a process of its own."""
    return {} if count == 1 else {"TRUNKLINE_NODE__WORKERS": str(count)}


_NEXT: Final = "it knows which member of a group is the next, and members at several workers have another order"
_FIRST: Final = "it looks at the session, or at what decides about it, inside of the first worker"
_INSIDE: Final = "it breaks parts of one process"
_ALL: Final = "its plugin has to change at all workers, and one of them waits for what another one does"
_ECHO: Final = "the plugins of all workers answer each other: it passes, and takes minutes on a busy machine"
_WAITS: Final = "an answer waits for the other workers, as it does for a store: others may be sent before it"
_CROWD: Final = "what it measures of one process is divided among several"

_V5: Final = "tests/conformance/test_v5_subscribe.py"

#: Test modules, tests, and those with one parameter.
ONE_WORKER: Final[Mapping[str, str]] = {
    "tests/attacks/test_canary.py::test_nobody_else_waits[a_resume_with_a_full_queue]": _FIRST,
    "tests/attacks/test_canary.py::test_nobody_else_waits[retained_floods]": _FIRST,
    "tests/attacks/test_crashes_between_shards.py": "it has shards of its own",
    "tests/attacks/test_hostile_clients.py::test_65_535_messages_without_pubrel": _FIRST,
    "tests/attacks/test_hostile_clients.py::test_a_client_with_100_000_subscriptions": _FIRST,
    "tests/attacks/test_hostile_clients.py::test_a_greedy_publisher": _FIRST,
    "tests/attacks/test_hostile_clients.py::test_a_slow_consumer": _FIRST,
    "tests/attacks/test_hostile_clients.py::test_many_connections_with_one_client_id": _FIRST,
    "tests/attacks/test_hostile_clients.py::test_topics_of_1_000_levels": _CROWD,
    "tests/attacks/test_injected_crashes.py": _INSIDE,
    "tests/attacks/test_plugins.py::test_a_crash_makes_a_client_suffer_until_the_plugin_runs_again": _FIRST,
    "tests/attacks/test_plugins.py::test_a_task_that_does_not_let_itself_be_cancelled": _ALL,
    "tests/attacks/test_plugins.py::test_circles": _ECHO,
    "tests/attacks/test_plugins.py::test_disabling_from_a_command_and_a_hook": _ALL,
    "tests/attacks/test_waiting.py::test_a_flood_behind_a_decision_is_not_read": _FIRST,
    "tests/attacks/test_waiting.py::test_nobody_slips_in_between_a_hook_and_the_rules": _FIRST,
    "tests/attacks/test_waiting.py::test_receive_maximum": _FIRST,
    "tests/attacks/test_waiting.py::test_rules_that_change_while_a_decision_waits": _FIRST,
    "tests/attacks/test_waiting.py::test_who_decides_comes_and_goes_while_a_decision_waits": _FIRST,
    "tests/conformance/test_two_clients.py::test_two_clients_and_a_broker": _WAITS,
    "tests/conformance/test_v311_connect.py::test_a_client_that_says_all_it_has_to_say_at_once": _WAITS,
    "tests/conformance/test_v5_connect.py::test_a_client_that_says_all_it_has_to_say_at_once": _WAITS,
    "tests/conformance/test_timers.py::test_a_shared_qos_2_delivery_ends_with_its_session": _NEXT,
    "tests/conformance/test_v311_subscribe.py::test_a_3_1_1_client_can_share_a_subscription": _NEXT,
    f"{_V5}::test_a_qos_2_delivery_that_had_begun_goes_to_nobody_else": _NEXT,
    f"{_V5}::test_a_qos_2_delivery_that_had_begun_is_completed_with_the_same_member": _NEXT,
    f"{_V5}::test_a_shared_message_has_the_qos_granted_to_its_member": _NEXT,
    f"{_V5}::test_a_shared_message_that_is_refused_goes_to_nobody_else": _NEXT,
    f"{_V5}::test_members_take_turns_in_the_order_of_their_subscriptions": _NEXT,
    "tests/interop/test_paho_overload.py": _CROWD,
}


@pytest.hookimpl
def pytest_configure(config: pytest.Config) -> None:
    global count
    count = config.getoption("--workers")
    if count != 1:
        from trunkline.testing import running

        running.DEFAULTS["workers"] = count


@pytest.hookimpl
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    for item in items if count != 1 else ():
        test, module = item.nodeid.partition("[")[0], item.nodeid.partition("::")[0]
        for name in ONE_WORKER.keys() & {item.nodeid, test, module}:
            item.add_marker(pytest.mark.skip(reason=ONE_WORKER[name]))
