"""Lights on MQTT as a home automation sees them: announced by discovery, ordered by JSON, and offline by their will.

A class with callbacks and paho's own thread, as most integrations are written.
"""

import json
import logging
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from paho.mqtt import client as mqtt
from paho.mqtt.reasoncodes import ReasonCode

_logger = logging.getLogger("lights")

AVAILABILITY = "lights/availability"
ERRORS = "lights/errors"


class LoginRefused(Exception):
    """The broker does not let us in, and trying again will not help."""


@dataclass
class Light:
    name: str
    on: bool = False
    brightness: int = 255


class Lights:
    def __init__(
        self,
        host: str,
        port: int,
        lights: list[Light],
        username: str = "",
        password: str = "",
        reconnect_delay: float = 1,
    ) -> None:
        self._host, self._port = host, port
        self._lights = {light.name: light for light in lights}
        self._settled = threading.Event()
        self._refused = ""
        self._client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "lights", protocol=mqtt.MQTTv5)
        if username:
            self._client.username_pw_set(username, password)
        self._client.will_set(AVAILABILITY, "offline", qos=1, retain=True)
        self._client.reconnect_delay_set(min_delay=reconnect_delay, max_delay=30)
        self._client.on_connect = self._on_connect
        self._client.on_disconnect = self._on_disconnect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = self._on_message

    def start(self, timeout: float = 5) -> None:
        """
        Raises:
            LoginRefused: the credentials are wrong.
            TimeoutError: nobody answers.
        """
        self._client.connect(self._host, self._port, keepalive=60)
        self._client.loop_start()
        if not self._settled.wait(timeout):
            self.stop()
            raise TimeoutError(f"no answer from {self._host}:{self._port}")
        if self._refused:
            self.stop()
            raise LoginRefused(self._refused)

    def stop(self) -> None:
        with suppress(RuntimeError):  # it is not connected: then the broker has said it for us
            self._client.publish(AVAILABILITY, "offline", qos=1, retain=True).wait_for_publish(1)
        self._client.disconnect()
        self._client.loop_stop()

    def _on_connect(
        self, client: mqtt.Client, data: object, flags: mqtt.ConnectFlags, reason: ReasonCode, properties: object
    ) -> None:
        if reason.is_failure:
            self._refused = str(reason)
            self._settled.set()
            return
        client.subscribe("lights/+/set", qos=1)
        for light in self._lights.values():
            client.publish(f"homeassistant/light/{light.name}/config", json.dumps(_discovery(light)), 1, True)
            self._tell(light)

    def _on_subscribe(self, client: mqtt.Client, *_: Any) -> None:
        client.publish(AVAILABILITY, "online", qos=1, retain=True)
        self._settled.set()

    def _on_disconnect(self, client: mqtt.Client, data: object, flags: object, reason: ReasonCode, _: object) -> None:
        _logger.info("disconnected: %s", reason)
        if self._refused:
            client.disconnect()  # or paho would try again

    def _on_message(self, client: mqtt.Client, data: object, message: mqtt.MQTTMessage) -> None:
        name = message.topic.split("/")[1]
        try:
            order = json.loads(message.payload)
            light = self._lights[name]
            light.on = order.get("state", "ON" if light.on else "OFF") == "ON"
            light.brightness = int(order.get("brightness", light.brightness))
        except (ValueError, TypeError, AttributeError) as error:
            client.publish(ERRORS, f"{name}: {error}", qos=1)
        except KeyError:
            client.publish(ERRORS, f"no light {name}", qos=1)
        else:
            self._tell(light)

    def _tell(self, light: Light) -> None:
        state = {"state": "ON" if light.on else "OFF", "brightness": light.brightness}
        self._client.publish(f"lights/{light.name}/state", json.dumps(state), qos=1, retain=True)


def _discovery(light: Light) -> dict[str, object]:
    return {
        "name": light.name,
        "schema": "json",
        "command_topic": f"lights/{light.name}/set",
        "state_topic": f"lights/{light.name}/state",
        "availability_topic": AVAILABILITY,
        "brightness": True,
    }
