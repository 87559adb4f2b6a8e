"""The published test tables for MQTT session clients: each row, and the test that shows it or the reason why it does
not apply. A row without a test of another name is `test_` and its name.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias


@dataclass(frozen=True, slots=True)
class NotApplicable:
    reason: str


#: The names of tests, or why there is none.
Shown: TypeAlias = tuple[str, ...] | NotApplicable


def by_name(rows: str) -> dict[str, Shown]:
    return {row: (f"test_{row}",) for row in rows.split()}


#: By name, for an implementation whose session client stands on a simpler client.
SESSION_CLIENT: Final = by_name("""
initial_connect_does_not_retry_on_expected_unsuccessful_connect_codes
initial_connect_retries_on_expected_unsuccessful_connect_codes
disconnect_handler_retries_on_expected_unsuccessful_disconnect_reasons
disconnect_handler_does_not_retry_on_fatal_disconnect_reasons
disconnect_handler_retries_on_expected_unsuccessful_connect_exception
disconnect_handler_abandons_retry_if_user_disconnects
connect_async_abandons_retry_if_user_disconnects connect_async_abandons_retry_if_user_cancels_it
connect_calls_connect disconnect_calls_disconnect
publish_calls_publish subscribe_calls_subscribe unsubscribe_calls_unsubscribe
publish_retries_if_mqtt_communication_exception_thrown publish_retries_if_io_exception_thrown
subscribe_retries_if_mqtt_communication_exception_thrown subscribe_retries_if_io_exception_thrown
unsubscribe_retries_if_mqtt_communication_exception_thrown unsubscribe_retries_if_io_exception_thrown
acknowledge_calls_acknowledge
puback_queue_cleared_if_connection_lost_mqtt_communication_exception
puback_queue_cleared_if_connection_lost_io_exception
pubacks_are_ordered
publish_queue_overflow_drop_new_message publish_queue_overflow_drop_old_message
subscribe_queue_overflow_drop_new_message subscribe_queue_overflow_drop_old_message
unsubscribe_queue_overflow_drop_new_message unsubscribe_queue_overflow_drop_old_message
publish_reports_fatal_exception subscribe_reports_fatal_exception unsubscribe_reports_fatal_exception
publish_reports_non_successful_puback_result_code
subscribe_reports_non_successful_suback_result_code
unsubscribe_reports_non_successful_unsuback_result_code
client_reports_session_loss_upon_reconnection client_reports_retry_policy_exhausted_while_reconnecting
publish_checks_cancellation_token subscribe_checks_cancellation_token unsubscribe_checks_cancellation_token
connect_checks_cancellation_token connect_checks_cancellation_token_during_subsequent_attempts
disconnect_checks_cancellation_token
mqtt_session_client_can_change_credentials_during_reconnection
mqtt_session_client_handles_thrown_exceptions_in_publish_received_callback
can_cancel_queued_publish_when_disconnected can_cancel_queued_subscribe_when_disconnected
can_cancel_queued_unsubscribe_when_disconnected
can_access_assigned_client_id
queued_requests_are_cancelled_if_session_is_lost_publish_async
queued_requests_are_cancelled_if_session_is_lost_subscribe_async
queued_requests_are_cancelled_if_session_is_lost_unsubscribe_async
queued_requests_are_cancelled_if_client_is_closed_publish_async
queued_requests_are_cancelled_if_client_is_closed_subscribe_async
queued_requests_are_cancelled_if_client_is_closed_unsubscribe_async
queued_requests_are_cancelled_if_retry_is_exhausted_publish_async
queued_requests_are_cancelled_if_retry_is_exhausted_subscribe_async
queued_requests_are_cancelled_if_retry_is_exhausted_unsubscribe_async
throws_if_accessed_when_disposed throws_if_cancellation_requested
handles_multiple_simultaneous_invocations_to_disconnected_async
throws_on_connect_if_invalid_session_expiry_interval_specified throws_on_connect_if_already_connected
throws_on_disconnect_if_invalid_session_expiry_interval_specified
connect_with_persistence publish_with_persistence
dispose_while_reconnecting_stops_reconnecting_and_does_not_throw
""")

#: Independent of a language: what a session client does on a client that is a fake.
NORMATIVE: Final[dict[str, Shown]] = {
    # all is well
    "connects": ("test_connect_calls_connect",),
    "publishes_a_message": ("test_publish_calls_publish",),
    "subscribes_to_a_topic": ("test_subscribe_calls_subscribe",),
    "unsubscribes_from_a_topic": ("test_unsubscribe_calls_unsubscribe",),
    "receives_a_message": ("test_acknowledge_calls_acknowledge",),
    **by_name("enqueues_a_publish enqueues_a_subscribe enqueues_an_unsubscribe"),
    # the order of acknowledgements
    **by_name("""
    acks_two_messages_in_order acks_two_messages_in_reverse_order acks_only_the_second_message
    acks_a_message_after_a_disconnect
    """),
    "acks_only_the_second_message_then_a_disconnect_occurs": (
        "test_puback_queue_cleared_if_connection_lost_mqtt_communication_exception",
        "test_puback_queue_cleared_if_connection_lost_io_exception",
    ),
    # CONNACK codes that are retried
    "connects_after_a_retriable_refusal": ("test_initial_connect_retries_on_expected_unsuccessful_connect_codes",),
    # codes that are not
    "connects_with_a_bad_configuration": (
        "test_initial_connect_does_not_retry_on_expected_unsuccessful_connect_codes",
    ),
    "publishes_with_a_bad_configuration": ("test_publish_reports_non_successful_puback_result_code",),
    "subscribes_with_a_bad_configuration": ("test_subscribe_reports_non_successful_suback_result_code",),
    "unsubscribes_with_a_bad_configuration": ("test_unsubscribe_reports_non_successful_unsuback_result_code",),
    # a network that is lost in four ways: no such host, a broken stream, no answer in time, a silent server
    "connects_after_a_network_loss": ("test_initial_connect_retries_after_a_network_loss",),
    "publishes_after_a_network_loss": (
        "test_publish_retries_if_mqtt_communication_exception_thrown",
        "test_publish_retries_if_io_exception_thrown",
    ),
    "subscribes_after_a_network_loss": (
        "test_subscribe_retries_if_mqtt_communication_exception_thrown",
        "test_subscribe_retries_if_io_exception_thrown",
    ),
    "unsubscribes_after_a_network_loss": (
        "test_unsubscribe_retries_if_mqtt_communication_exception_thrown",
        "test_unsubscribe_retries_if_io_exception_thrown",
    ),
    "automatically_handles_a_disconnect": (
        "test_automatically_handles_a_disconnect",
        "test_automatically_handles_an_idle_server_that_is_silent",
    ),
    "automatically_handles_a_disconnect_but_cannot_recover_the_session": (
        "test_client_reports_session_loss_upon_reconnection",
    ),
    **by_name("""
    enqueues_a_publish_while_disconnected enqueues_a_subscribe_while_disconnected
    enqueues_an_unsubscribe_while_disconnected
    enqueues_a_publish_a_subscribe_and_an_unsubscribe_while_disconnected
    """),
    # the retry policy, order, and the rest
    **by_name("""
    reconnects_and_the_retry_policy_is_consulted reconnects_and_the_retry_policy_halts_reconnection
    sends_publishes_in_order_on_a_stable_connection sends_publishes_in_order_after_reconnect
    sends_pubacks_in_order_of_when_each_message_was_received clears_pending_pubacks_on_disconnect
    """),
    "notifies_user_if_session_was_lost": ("test_client_reports_session_loss_upon_reconnection",),
}

#: By name, for a client with one connection that orders its acknowledgements, and for the queue of those.
ORDERED_ACKS: Final[dict[str, Shown]] = {
    **{
        row: (f"test_client_{row}",)
        for row in (
            "connect_calls_connect",
            "disconnect_calls_disconnect",
            "publish_calls_publish",
            "subscribe_calls_subscribe",
            "unsubscribe_calls_unsubscribe",
            "puback_queue_cleared_if_connection_lost",
            "pubacks_are_ordered",
            "throws_if_accessed_when_disposed",
            "throws_if_cancellation_requested",
        )
    },
    **by_name("""
    get_client_id_without_an_assigned_client_id_returns_null
    received_publish received_publish_does_not_crash_client_if_callback_throws
    received_publish_still_sends_acknowledgement_if_callback_throws
    throws_if_exceeds_max_packet_size
    dequeue_when_ready dequeue_when_not_ready waking_up_dequeue_with_signal
    queue_order_not_impacted_by_item_ready_order
    """),
}

#: The user properties by which a client requests a fault.
FAULTABLE_BROKER: Final = by_name("""
disconnect_on_publish disconnect_on_subscribe disconnect_on_unsubscribe disconnect_without_a_request_id
delay reject_connect reject_publish reject_subscribe reject_unsubscribe request_id
""")

KUBERNETES: Final = NotApplicable("tokens of a service account are a password file here, which is read at each attempt")

#: By name, for a session and the receivers of its messages.
RECEIVERS: Final[dict[str, Shown]] = {
    **by_name("""
    connect_and_exit_standard_auth connect_failure_rejected_reconnect connection_loss_server_disconnect_reconnect
    try_exit_while_connected try_exit_while_disconnected try_exit_never_run
    force_exit_while_connected force_exit_while_disconnected force_exit_never_run
    connect_reauth_and_exit_enhanced_auth reauth_on_successive_connections force_exit_during_reauth
    dispatch_rules_filter_matching dispatch_rules_filtered_unfiltered
    qos0_single_filtered_receiver qos0_multiple_identical_filtered_receivers
    qos0_single_unfiltered_receiver qos0_multiple_unfiltered_receivers
    qos1_single_filtered_receiver qos1_multiple_identical_filtered_receivers
    qos1_single_unfiltered_receiver qos1_multiple_unfiltered_receivers
    no_receivers
    """),
    "k8s_token_of_a_service_account": KUBERNETES,
}

#: With a server: how a client says who it is, what works, and what a lost connection does.
INTEGRATION: Final[dict[str, Shown]] = {
    **by_name("""
    connects_with_tls_authentication connects_with_client_certificates connects_with_username_and_password
    connects_with_client_certificates_and_tls_authentication
    connects_with_username_and_password_and_tls_authentication
    publishes_a_message_to_a_server subscribes_to_a_topic_of_a_server unsubscribes_from_a_topic_of_a_server
    """),
    "enqueues_a_publish_to_a_server": ("test_enqueues_to_a_server",),
    "enqueues_a_subscribe_to_a_server": ("test_enqueues_to_a_server",),
    "enqueues_an_unsubscribe_to_a_server": ("test_enqueues_to_a_server",),
    "handles_failed_connack_during_connect": ("test_reject_connect",),
    "handles_disconnect_while_idle": ("test_disconnect_while_idle", "test_messages_wait_for_a_later_client"),
    "handles_disconnect_during_publish": ("test_disconnect_on_publish",),
    "handles_disconnect_during_subscribe": ("test_disconnect_on_subscribe",),
    "handles_disconnect_during_unsubscribe": ("test_disconnect_on_unsubscribe",),
    "ordered_ack_mqtt_client_can_send_pubacks_out_of_order": ("test_can_send_pubacks_out_of_order",),
    "shared_subscription_of_two_clients": ("test_shared_subscription_of_two_clients",),
    "connect": ("test_connects_to_a_server", "test_connects_over_websocket"),
    "disconnect_without_connect": ("test_disconnect_without_connect",),
    "subscribe_publish_unsubscribe": (
        "test_subscribes_to_a_topic_of_a_server",
        "test_unsubscribes_from_a_topic_of_a_server",
    ),
    "request_queue": ("test_request_queue",),
    "topic_filter_match": ("test_dispatch_rules_filter_matching",),
}

TABLES: Final = {
    "session client": SESSION_CLIENT,
    "normative": NORMATIVE,
    "ordered acknowledgements": ORDERED_ACKS,
    "faultable broker": FAULTABLE_BROKER,
    "receivers": RECEIVERS,
    "integration": INTEGRATION,
}
