"""Which archive of classes a JVM is told of. Java is real, Spark is not started."""

import os
import subprocess
from pathlib import Path

from legato.spark.runtime.class_archive import archive_options, leaves_archive


def java(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["java", *options, "-version"], capture_output=True, text=True, check=True)


def test_a_jvm_leaves_an_archive_and_the_next_one_takes_it(tmp_path: Path) -> None:
    version = java().stderr
    first = archive_options(version, write=True, directory=tmp_path)
    assert leaves_archive(first)
    left = java(*first)
    assert not left.stdout, "it is the user's"

    second = archive_options(version, write=True, directory=tmp_path)
    assert not leaves_archive(second)
    java("-Xshare:on", *second)
    assert [path.suffix for path in tmp_path.iterdir()] == [".jsa"]

    other = archive_options(f"{version} of another machine", write=True, directory=tmp_path)
    assert leaves_archive(other), "an archive is for one Java and one Spark"


def test_an_archive_that_is_cut_off_is_written_anew(tmp_path: Path) -> None:
    version = java().stderr
    java(*archive_options(version, write=True, directory=tmp_path))
    assert not leaves_archive(archive_options(version, write=True, directory=tmp_path))
    (archive,) = tmp_path.iterdir()
    archive.chmod(0o600)
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    options = archive_options(version, write=True, directory=tmp_path)
    assert leaves_archive(options), "a JVM would die of it"
    java(*options)
    assert not leaves_archive(archive_options(version, write=True, directory=tmp_path))


def test_what_is_half_written_is_left_to_its_writer_and_in_the_end_removed(tmp_path: Path) -> None:
    (writing,) = (
        Path(option.partition("=")[2])
        for option in archive_options("", write=True, directory=tmp_path)
        if "Archive" in option
    )
    writing.write_bytes(bytes(4096))
    assert leaves_archive(archive_options("", write=True, directory=tmp_path)), "its head is not there yet"
    assert writing.exists()

    os.utime(writing, (0, 0))
    archive_options("", write=False, directory=tmp_path)
    assert not writing.exists()


def test_archives_that_nobody_uses_any_more_are_removed(tmp_path: Path) -> None:
    old, new = tmp_path / "spark-old.jsa", tmp_path / "spark-new.jsa"
    for path in (old, new):
        path.write_bytes(b"x")
    os.utime(old, (0, 0))
    archive_options("", write=False, directory=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [new.name]


def test_where_no_archive_can_be_there_is_none(tmp_path: Path) -> None:
    assert not archive_options("", write=False, directory=tmp_path / "missing")
    assert not archive_options("", write=True, directory=tmp_path / "with a blank")
    (tmp_path / "file").write_text("in the way")
    assert not archive_options("", write=True, directory=tmp_path / "file")
