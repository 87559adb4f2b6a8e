from pathlib import Path

import pytest

from tests.analytics.source.logs import settings, ticks, write
from trunkline.analytics.source.options import OptionError, understood
from trunkline.analytics.source.places import check_place, open_log, place


def test_a_directory_may_be_named_in_any_way(tmp_path: Path) -> None:
    write(tmp_path, ticks("n1", 0, 3))
    for path in (str(tmp_path), tmp_path.as_uri()):
        (extent,) = open_log(settings(path)).nodes().values()
        assert extent.end == 3


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"path": "{}/none"}, "there is no such directory"),
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
    system, root = place(made)
    assert system is not None
    assert system.type_name == "s3"
    assert root == "bucket/events"


def test_a_secret_is_in_no_error() -> None:
    made = understood({"path": "s3://bucket/x", "fs.secret_key": "hush"})
    with pytest.raises(OptionError) as caught:
        place(made)
    assert "hush" not in str(caught.value)
    assert "secret_key" in str(caught.value)
