"""Test over TLS, with certificates that the broker brings along.

Run it with `pytest examples/test_tls.py`.
"""

import pytest
from paho.mqtt import client as mqtt

from trunkline.testing import ThreadBroker


@pytest.mark.mqtt_broker(listeners=["tls://127.0.0.1:0?tls.client_certificates=required&tls.username_from=cn"])
def test_a_certificate_is_enough_to_log_in(mqtt_broker: ThreadBroker) -> None:
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "pump")
    client.tls_set_context(mqtt_broker.client_context("pump-7"))  # without a name: without a certificate
    client.connect(mqtt_broker.host, mqtt_broker.port)
    client.loop_start()
    assert mqtt_broker.wait_for_client("pump").username == "pump-7"
    client.disconnect()
    client.loop_stop()


@pytest.mark.mqtt_broker(listeners=["wss://127.0.0.1:0"])
def test_over_websocket_with_the_authority_as_a_file(mqtt_broker: ThreadBroker) -> None:
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "page", transport="websockets")
    client.tls_set(str(mqtt_broker.certificates.authority))
    client.connect(mqtt_broker.host, mqtt_broker.port)
    client.loop_start()
    mqtt_broker.wait_for_client("page")
    client.disconnect()
    client.loop_stop()
