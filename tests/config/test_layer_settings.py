import pytest
from pydantic import ValidationError

from tests.config.problems import refusal
from trunkline.config.layer_settings import ProxyProtocolSettings
from trunkline.config.listener_settings import ListenerSettings


def test_settings_of_websocket_without_websocket_are_refused() -> None:
    table = {"origins": ["https://app.example.com"]}
    assert "does not use it: its URL would be ws://" in refusal({"url": "tcp://127.0.0.1", "websocket": table})
    assert ListenerSettings.model_validate({"url": "ws://127.0.0.1", "websocket": table}).websocket.origins


@pytest.mark.parametrize("origin", ["app.example.com", "https://app.example.com/", "*", "https://"])
def test_an_origin_that_no_browser_sends_is_refused(origin: str) -> None:
    problem = refusal({"url": "ws://127.0.0.1", "websocket": {"origins": [origin]}})
    assert problem.startswith(f'listeners[0].websocket.origins[0]: "{origin}": accepted is an origin such as ')


def test_a_load_balancer_that_names_clients_has_to_be_trusted() -> None:
    with pytest.raises(ValidationError, match="username_from needs trusted"):
        ProxyProtocolSettings(username_from="cn")
    assert ProxyProtocolSettings.model_validate({"username_from": "cn", "trusted": ["::1"]}).username_from == "cn"
