"""The properties of an MQTT 5.0 packet (section 2.2.2.2)."""

from collections.abc import Sequence
from typing import Any, NoReturn, TypedDict, cast


class Properties(TypedDict, total=False):
    """The contents of a packet's property block: a plain dict, so that a packet without properties costs nothing. A
    missing key is absent from the packet. User properties keep their order and their duplicates.
    """

    payload_format_indicator: int
    message_expiry_interval: int
    content_type: str
    response_topic: str
    correlation_data: bytes
    subscription_identifier: Sequence[int]
    session_expiry_interval: int
    assigned_client_identifier: str
    server_keep_alive: int
    authentication_method: str
    authentication_data: bytes
    request_problem_information: int
    will_delay_interval: int
    request_response_information: int
    response_information: str
    server_reference: str
    reason_string: str
    receive_maximum: int
    topic_alias_maximum: int
    topic_alias: int
    maximum_qos: int
    retain_available: int
    user_property: Sequence[tuple[str, str]]
    maximum_packet_size: int
    wildcard_subscription_available: int
    subscription_identifier_available: int
    shared_subscription_available: int


class _NoProperties(dict[str, object]):
    """A dict that stays empty. It is hashable, so that dataclasses accept it as a default without a factory call for
    each packet."""

    __hash__ = object.__hash__  # type: ignore[assignment]

    def _refuse(self: Any, *_: object, **__: object) -> NoReturn:
        raise TypeError("NO_PROPERTIES is shared by all packets that have none")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse


#: The one empty block, shared by every packet that has none. Never changed.
NO_PROPERTIES = cast("Properties", _NoProperties())
