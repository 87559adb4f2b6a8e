"""A Django view that publishes. In a project, `client` stands in a module of its own, and is opened in each process:
in `post_fork` of gunicorn, say."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.test import Client as Browser
from django.urls import path

from trunkline.client import ClientError, ConnectionSettings
from trunkline.client.sync import SessionClient
from trunkline.testing import ThreadBroker

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["testserver"])

client: SessionClient


def switch(request: HttpRequest, name: str) -> HttpResponse:
    try:
        client.publish(f"lamps/{name}", request.body, qos=1, timeout=5)
    except (ClientError, TimeoutError) as error:
        return HttpResponse(str(error), status=503)
    return HttpResponse(status=204)


urlpatterns = [path("lamps/<name>", switch)]


def test_a_lamp_is_switched_on(mqtt_broker: ThreadBroker) -> None:
    global client
    client = SessionClient(ConnectionSettings.from_url(mqtt_broker.url))
    client.open(timeout=5)
    try:
        browser = Browser()
        assert browser.post("/lamps/hall", b"on", content_type="text/plain").status_code == 204
        mqtt_broker.assert_published("lamps/hall", payload=b"on")
        mqtt_broker.faults.refuse_publish("not_authorized")
        response = browser.post("/lamps/hall", b"off", content_type="text/plain")
        assert (response.status_code, b"not authorized" in response.content) == (503, True)
    finally:
        client.close()
