"""Names, versions and texts of services."""

import pytest

from trunkline.nats.client.services.descriptions import (
    EndpointDescription,
    EndpointStatistics,
    ServiceDescription,
    check_group,
    check_group_of_queue,
    check_named,
    check_version,
    frozen,
)
from trunkline.nats.errors import BadService, BadSubject, ServiceError


@pytest.mark.parametrize("name", ["a", "prices", "Prices-2_old", "0"])
def test_names(name: str) -> None:
    check_named(name, "a service")


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a*", "preis€", "a\n"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(BadService, match="the name of a service"):
        check_named(name, "a service")


@pytest.mark.parametrize(
    "version",
    ["0.0.0", "1.0.2", "10.20.30", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-0.3.7", "1.0.0-x-y.z--", "1.0.0+20130313"]
    + ["1.0.0-beta+exp.sha.5114f85", "1.0.0+21AF26D3----117B344092BD", "1.0.0-0a", "1.0.0--", "1.0.0+00"],
)
def test_versions(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize(
    "version",
    ["", "1", "1.0", "1.0.0.0", "v1.0.0", "01.0.0", "1.00.0", "1.0.0-", "1.0.0-01", "1.0.0-a..b", "1.0.0+", "1.0.0+a+b"]
    + ["1.0.0 ", "1.0.0\n", "1.0.0-ä", "-1.0.0", "١.0.0"],
)
def test_what_is_no_version(version: str) -> None:
    with pytest.raises(BadService, match="is no version"):
        check_version(version)


def test_groups() -> None:
    for prefix in ("", "a", "a.b", "a.*"):
        check_group(prefix)
    check_group_of_queue("")
    check_group_of_queue("a.b")
    with pytest.raises(BadService, match="nothing stands behind >"):
        check_group("a.>")
    for prefix in ("a.", "a b", ">.a"):
        with pytest.raises(BadSubject):
            check_group(prefix)
    with pytest.raises(BadSubject):
        check_group_of_queue("a b")


def test_metadata_is_copied_and_stays() -> None:
    own = {"region": "north"}
    found = frozen(own)
    own["region"] = "south"
    assert found == {"region": "north"}
    with pytest.raises(TypeError):
        found["region"] = "west"  # type: ignore[index]
    with pytest.raises(BadService, match="no pair of texts"):
        frozen({"cores": 2})  # type: ignore[dict-item]


def test_what_a_service_says() -> None:
    service = ServiceDescription("prices", "1.0.2", "X1", "2026-01-01T00:00:00.000Z", "of all", frozen({"a": "b"}))
    standard = {"name": "prices", "id": "X1", "version": "1.0.2", "metadata": {"a": "b"}}
    assert service.ping() == standard | {"type": "io.nats.micro.v1.ping_response"}
    endpoint = EndpointDescription("get", "prices.get", "q", frozen({"c": "d"}))
    place = {"name": "get", "subject": "prices.get", "queue_group": "q"}
    assert service.info([endpoint.info()]) == standard | {
        "type": "io.nats.micro.v1.info_response",
        "description": "of all",
        "endpoints": [place | {"metadata": {"c": "d"}}],
    }
    statistics = EndpointStatistics()
    nothing = {"num_requests": 0, "num_errors": 0, "last_error": "", "processing_time": 0, "average_processing_time": 0}
    assert endpoint.stats(statistics) == place | nothing
    statistics.requests, statistics.processing = 3, 0.5
    statistics.failed(ServiceError(404, "no such\nthing"))
    assert service.stats([endpoint.stats(statistics)]) == standard | {
        "type": "io.nats.micro.v1.stats_response",
        "started": "2026-01-01T00:00:00.000Z",
        "endpoints": [
            place
            | {"num_requests": 3, "num_errors": 1, "last_error": "404:no such thing"}
            | {"processing_time": 500_000_000, "average_processing_time": 166_666_666}
        ],
    }
    assert service.subjects("$SRV", "PING") == ("$SRV.PING", "$SRV.PING.prices", "$SRV.PING.prices.X1")
