"""A Flask application that publishes and receives. One client serves all its threads."""

from flask import Flask, request

from trunkline.client import ConnectionSettings
from trunkline.client.sync import SessionClient
from trunkline.testing import ThreadBroker


def make_app(client: SessionClient) -> Flask:
    app = Flask(__name__)
    answers = client.subscribe("lamps/+/state", qos=1, timeout=5)

    @app.post("/lamps/<name>")
    def switch(name: str) -> tuple[str, int]:
        client.publish(f"lamps/{name}", request.get_data(), qos=1, timeout=5)  # an error of MQTT is a page 500
        return "", 204

    @app.get("/states/next")
    def state() -> str | tuple[str, int]:
        try:
            message = answers.receive(timeout=float(request.args.get("wait", "10")))
        except TimeoutError:
            return "", 204
        return f"{message.topic} is {message.payload.decode()}"

    return app


def test_a_lamp_is_switched_on(mqtt_broker: ThreadBroker) -> None:
    with SessionClient(ConnectionSettings.from_url(mqtt_broker.url)) as client:
        browser = make_app(client).test_client()
        assert browser.post("/lamps/hall", data=b"on").status_code == 204
        mqtt_broker.assert_published("lamps/hall", payload=b"on")
        mqtt_broker.publish("lamps/hall/state", "on", qos=1)
        assert browser.get("/states/next").text == "lamps/hall/state is on"
        assert browser.get("/states/next?wait=0").status_code == 204
