from pathlib import Path

import pytest
from pyarrow import parquet
from pyarrow.fs import S3FileSystem

from tests.analytics.events_made import INCARNATION
from tests.analytics.source.logs import by_number, read, schema_of, settings, ticks, write
from trunkline.analytics.options import OptionError
from trunkline.analytics.source.batch import EventReader
from trunkline.analytics.source.options import understood
from trunkline.analytics.source.places import check_place, open_log, place

NODE = f"node=n1@{INCARNATION}"


def test_a_directory_may_be_named_in_any_way(tmp_path: Path) -> None:
    write(tmp_path, ticks("n1", 0, 3))
    for path in (str(tmp_path), tmp_path.as_uri()):
        (extent,) = open_log(settings(path)).nodes().values()
        assert extent.end == 3


def test_logs_that_match_a_pattern_are_read_as_one(tmp_path: Path) -> None:
    for region, node in (("a", "n1"), ("b", "n2")):
        write(tmp_path / f"region-{region}", ticks(node, 0, 3))
    reader = EventReader(settings(tmp_path / "region-*"), schema_of())
    assert [row["node"] for row in by_number(read(reader, reader.partitions()))] == ["n1"] * 3 + ["n2"] * 3


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"path": "{}/none"}, "there is no such directory"),
        ({"path": "{}/region-*"}, "option path='.*/region-.': there is no such directory"),
        ({"paths": "{0},{0}/none"}, "option paths='.*/none': there is no such directory"),
        ({"paths": "{0},{0}", "consumer": "me"}, "option consumer='me': each log keeps positions of its own; name one"),
        ({"paths": "s3://a/x,gs://b/x", "fs.user": "me"}, "they are for one kind of storage, and the logs are in s3:"),
        ({"path": "{}*", "consumer": "me"}, "option consumer='me': each log keeps positions of its own; name one"),
        ({"path": "{}", "fs.region": "x"}, "option fs.region: it is for object stores, and path='.*' is a directory"),
        ({"path": "hdfs://somewhere/x", "fs.user": "me"}, "options fs.* go with s3://"),
        (
            {"path": "s3://bucket/x", "consumer": "me"},
            "option consumer='me': only a log in a directory keeps positions",
        ),
        ({"path": "s3://bucket/x", "fs.colour": "red"}, "options fs.{colour}: S3FileSystem: .*colour"),
    ],
)
def test_a_place_that_cannot_be_is_refused(tmp_path: Path, options: dict[str, str], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        place(understood({name: value.format(tmp_path) for name, value in options.items()}))


def test_options_of_the_storage_are_handed_to_it() -> None:
    made = understood(
        {
            "path": "s3://bucket/events",
            "fs.endpoint_override": "127.0.0.1:9",
            "fs.scheme": "http",
            "fs.access_key": "1234567890",
            "fs.secret_key": "hush",
            "fs.connect_timeout": "2.5",
            "fs.allow_bucket_creation": "false",
        }
    )
    check_place(made)
    system, roots = place(made)
    assert system is not None
    assert system.type_name == "s3"
    assert roots == ["bucket/events"]


def test_a_secret_is_in_no_error() -> None:
    made = understood({"path": "s3://bucket/x", "fs.secret_key": "hush"})
    with pytest.raises(OptionError) as caught:
        place(made)
    assert "hush" not in str(caught.value)
    assert "secret_key" in str(caught.value)


def test_a_log_in_an_object_store_is_read_with_the_options_of_the_storage() -> None:
    server = pytest.importorskip("moto.server", reason="moto[server] is not installed")
    store = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    store.start()
    try:
        host, port = store.get_host_and_port()
        options = {"region": "us-east-1", "scheme": "http", "access_key": "somebody", "secret_key": "hush"}
        system = S3FileSystem(endpoint_override=f"{host}:{port}", allow_bucket_creation=True, **options)
        system.create_dir("bucket")
        parquet.write_table(ticks("n1", 0, 50), f"bucket/log/{NODE}/{0:020d}-{50:020d}.parquet", filesystem=system)
        given = {f"fs.{name}": value for name, value in options.items()}
        reader = EventReader(
            settings("s3://bucket/log", **given, **{"fs.endpoint_override": f"{host}:{port}"}), schema_of()
        )
        assert by_number(read(reader, reader.partitions())) == by_number(ticks("n1", 0, 50))
    finally:
        store.stop()
