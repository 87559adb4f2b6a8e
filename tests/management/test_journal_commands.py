from pathlib import Path

from tests.management.journals import show


def test_packets_topics_and_times_can_be_chosen(journal: Path) -> None:
    def shown(*options: str) -> list[str]:
        return [line.split()[3] + line.split()[4] for line in show(journal, *options).output.splitlines()]

    assert shown("--packet", "publish") == ["->PUBLISH", "->PUBLISH", "<-PUBLISH"]
    assert shown("--packet", "CONNECT", "--packet", "CONNACK") == ["->CONNECT", "<-CONNACK"]
    assert shown("--topic", "t/+", "--client", "ann") == ["->PUBLISH", "->PUBLISH"]
    assert shown("--topic", "u") == []
    assert shown("--after", "0.5", "--before", "1.0") == ["->CONNECT", "<-CONNACK", "->PUBLISH", "->PUBLISH"]
    for wrong, text in ((("--packet", "PUBAK"), "no packet is called"), (("--topic", "a/#/b"), "'#' is not alone")):
        result = show(journal, *wrong)
        assert (result.exit_code, text in result.output) == (2, True)


def test_what_cannot_be_shown_is_told_in_a_line(tmp_path: Path) -> None:
    missing = show(tmp_path / "missing")
    assert missing.exit_code == 1
    assert missing.stderr == f"trunkline: {tmp_path / 'missing'}: No such file or directory\n"
    other = tmp_path / "other"
    other.write_text("something else")
    assert show(other).exit_code == 1
    assert show(other).stderr == f"trunkline: {other} is not a journal of Trunkline\n"
