"""The options of `kompakt standby`: what they mean together, and what is refused with a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.base.command_end import CommandFailed
from cli.standby.command import _broker_config, _follow
from cli.standby.directory import check_whole
from storage.files.errors import ForeignDirectory
from storage.files.local_files import LocalFileSystem
from storage.files.paths import META_PROPERTIES, PROMOTION, STANDBY, STANDBY_PROPERTIES

FILES = LocalFileSystem()


def refusal(*, of: str | None = "127.0.0.1:9095", data: Path | None = None, **options: Any) -> str:
    """Returns why options are refused."""
    chosen = {"as_json": False, "is_whole": True, "rejoins": False, **options}
    config, http = chosen.pop("config", None), chosen.pop("http", "")
    with pytest.raises(CommandFailed) as refused:
        _follow(of, data, http, config, **chosen)
    return str(refused.value)


def test_it_needs_a_broker_and_a_directory(tmp_path: Path) -> None:
    text = "standby needs --of HOST:PORT and --data DIR"
    assert refusal(of=None, data=tmp_path) == refusal(data=None) == text


@pytest.mark.parametrize("options", [{"config": Path("server.properties")}, {"rejoins": True}])
def test_what_belongs_to_a_whole_broker_does_not_go_with_metadata_only(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    text = "--config and --rejoin do not go with --metadata-only"
    assert refusal(data=tmp_path, is_whole=False, **options) == text


def test_a_configuration_that_cannot_work_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    config = tmp_path / "server.properties"
    config.write_text("log.retention.ms=soon\n")
    assert "log.retention.ms" in refusal(data=tmp_path / "copy", config=config)
    assert not (tmp_path / "copy").exists()


def configured(tmp_path: Path, **texts: object) -> Path:
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in texts.items()))
    return file


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the test's logging as it is."""
    monkeypatch.setattr("cli.serve.log_to_stderr", lambda: None)


def test_the_directory_replaces_log_dirs_without_it(tmp_path: Path) -> None:
    file = configured(tmp_path, **{"log.dirs": "/elsewhere,/there", "metadata.log.dir": "/there"})
    found = _broker_config(file, tmp_path / "copy")
    assert found.data_directories == (str(tmp_path / "copy"),)
    assert found.metadata_directory == str(tmp_path / "copy")


def test_all_of_log_dirs_are_used_if_the_directory_is_among_them(tmp_path: Path) -> None:
    disks = [str(tmp_path / each) for each in ("a", "b")]
    file = configured(tmp_path, **{"log.dirs": ",".join(disks)})
    found = _broker_config(file, tmp_path / "a")
    assert list(found.data_directories) == disks
    assert found.metadata_directory == disks[0]


def test_the_directory_must_be_the_one_with_the_metadata(tmp_path: Path) -> None:
    disks = {"log.dirs": f"{tmp_path}/a,{tmp_path}/b", "metadata.log.dir": f"{tmp_path}/b"}
    file = configured(tmp_path, **disks)
    assert _broker_config(file, tmp_path / "b").metadata_directory == f"{tmp_path}/b"
    with pytest.raises(CommandFailed, match=f"directory of the metadata, {tmp_path}/b"):
        _broker_config(file, tmp_path / "a")


@pytest.mark.parametrize("http", ["nowhere", "https://127.0.0.1:9646"])
def test_an_endpoint_that_cannot_be_opened_is_refused(tmp_path: Path, http: str) -> None:
    assert refusal(data=tmp_path, http=http).startswith(f"--http {http}: ")


# ---------------------------------------------------------------- directories


@pytest.mark.parametrize(
    ("names", "rejoins", "text"),
    [
        ([META_PROPERTIES], False, "give another --data, or --rejoin"),
        ([STANDBY_PROPERTIES], False, "metadata only"),
        ([STANDBY_PROPERTIES], True, "metadata only"),
        ([META_PROPERTIES, PROMOTION, STANDBY], False, "kompakt serve finishes that"),
        ([META_PROPERTIES, PROMOTION], True, "kompakt serve finishes that"),
        (["photo.jpg"], False, "not empty (photo.jpg)"),
        (["photo.jpg"], True, "not empty (photo.jpg)"),
        ([], True, "is no broker's data directory"),
    ],
)
def test_a_directory_of_something_else_is_refused(
    tmp_path: Path, names: list[str], rejoins: bool, text: str
) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(ForeignDirectory) as refused:
        check_whole(FILES, str(tmp_path), may_rejoin=rejoins)
    assert text in str(refused.value)


@pytest.mark.parametrize("rejoins", [False, True])
def test_a_standbys_own_directory_follows_on(tmp_path: Path, rejoins: bool) -> None:
    for name in (META_PROPERTIES, STANDBY):
        (tmp_path / name).touch()
    assert not check_whole(FILES, str(tmp_path), may_rejoin=rejoins)


def test_a_new_directory_becomes_a_standbys_and_a_brokers_only_if_it_rejoins(
    tmp_path: Path,
) -> None:
    assert not check_whole(FILES, str(tmp_path / "new"), may_rejoin=False)
    with pytest.raises(ForeignDirectory):
        check_whole(FILES, str(tmp_path / "new"), may_rejoin=True)
    (tmp_path / META_PROPERTIES).touch()
    assert check_whole(FILES, str(tmp_path), may_rejoin=True)
