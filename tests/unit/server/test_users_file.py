"""The users file: what is in it, how it is written, and what is said of one that cannot be used."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from legato.errors import ConfigError
from legato.server.config.configuration import Config, load
from legato.server.config.secret_files import make_private, refuse_readable
from legato.server.identity import users_file
from legato.server.identity.keys import ITERATIONS_MIN, MECHANISMS
from legato.server.identity.users import Users
from legato.server.identity.users_file import User, changing, check_name, make_keys, read


def add(file: Path, name: str, password: str = "secret", *roles: str) -> None:
    with changing(file) as content:
        content.users[name] = User(name, roles, make_keys(password, ITERATIONS_MIN))


def config(file: Path) -> Config:
    return load(store=file.parent / "store", environment={"LEGATO_AUTH_USERS_FILE": str(file)})


def test_a_user_is_known_by_the_password_that_was_given(tmp_path: Path) -> None:
    file = tmp_path / "users"
    add(file, "ann", "pässword", "billing", "operators")
    users = Users.load(config(file))
    assert users.has_password("ann", "pässword")
    assert not users.has_password("ann", "password")
    assert not users.has_password("bob", "pässword")
    assert users.find("ann") == read(file).users["ann"]
    assert read(file).users["ann"].roles == ("billing", "operators")


def test_no_password_is_in_the_file_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "users"
    add(file, "ann", "correct-horse")
    assert "correct-horse" not in file.read_text()
    assert [stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()] == [0o600, 0o600]
    assert "stored" not in repr(read(file).users["ann"].keys)


def test_a_file_that_others_may_read_is_refused_with_the_command_that_mends_it(tmp_path: Path) -> None:
    file = tmp_path / "users"
    add(file, "ann")
    file.chmod(0o640)
    with pytest.raises(ConfigError, match=r"chmod 600 .*users"):
        read(file)


def test_a_file_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "users"
    add(file, "ann")
    add(file, "bob")
    whole = file.read_bytes()
    for size in range(len(whole)):
        with pytest.raises(ConfigError):
            users_file._parse(file, whole[:size].decode())
    assert len(users_file._parse(file, whole.decode()).users) == 2


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("legato users 1", "legato users 2", "version '2'"),
        ("legato users 1", "root:x:0:0", "no users file"),
        ("SCRAM-SHA-256$", "SCRAM-MD5$", "line 4.*unknown"),
        ("SCRAM-SHA-256$4096", "SCRAM-SHA-256$1", "line 4.*iterations"),
        ("ann:", "ann", "line 4"),
        ("ann:", "a nn:", "line 4.*'a nn'"),
        ("secret: ", "secret: !", "line 3"),
        ("roles=billing", "roles=bil=ling", "'bil=ling' is no role"),
        ("end: 1 user", "end: 2 users", "cut off"),
        ("end: 1 user\n", "end: 1 user\nbob: roles=\n", "cut off"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    file = tmp_path / "users"
    add(file, "ann", "secret", "billing")
    file.write_text(file.read_text().replace(old, new, 1))
    with pytest.raises(ConfigError, match=said):
        read(file)


@pytest.mark.parametrize(
    "name", ["", "a b", "a:b", "a,b", "a\nb", "\x1b[31m", "$backup", "anonymous", "x" * 256, "\u202e"]
)
def test_names_that_nobody_can_have_are_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        check_name(name)


@pytest.mark.parametrize("name", ["ann", "ann@example.org", "zoë", "spiffe.example/orders", "a-b_c.d"])
def test_usual_names_are_taken(name: str) -> None:
    assert check_name(name) == name


def test_two_writers_wait_for_each_other(tmp_path: Path) -> None:
    file = tmp_path / "users"
    names = [f"user{number}" for number in range(8)]
    keys = make_keys("x", ITERATIONS_MIN)

    def write(name: str) -> None:
        with changing(file) as content:
            content.users[name] = User(name, (), keys)

    threads = [threading.Thread(target=write, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(read(file).users) == names


def test_a_change_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "users"
    add(file, "ann")
    before = file.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", full)
        with pytest.raises(ConfigError, match="No space left"):
            add(file, "bob")
    assert file.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"users", "users.lock"}


def test_a_file_of_a_broker_is_followed_where_it_is_a_link(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    add(tmp_path / "etc" / "users", "ann")
    link = tmp_path / "users"
    link.symlink_to(tmp_path / "etc" / "users")
    add(link, "bob")
    assert link.is_symlink()
    assert sorted(read(tmp_path / "etc" / "users").users) == ["ann", "bob"]


@pytest.mark.parametrize("mechanism", list(MECHANISMS))
def test_a_user_that_there_is_not_has_keys_like_any_other(tmp_path: Path, mechanism: str) -> None:
    """Salt and number of iterations are told to whoever asks: they must not tell who is a user."""
    file = tmp_path / "users"
    add(file, "ann")
    first, second = Users.load(config(file)), Users.load(config(file))
    real, fake = first.keys("ann", mechanism)[0], first.keys("nobody", mechanism)[0]
    assert (real.iterations, len(real.salt)) == (fake.iterations, len(fake.salt))
    assert fake == second.keys("nobody", mechanism)[0]
    assert fake.salt != first.keys("nobodys", mechanism)[0].salt
    assert [found.keys(name, mechanism)[1] for found in (first,) for name in ("ann", "nobody")] == [True, False]


def test_users_are_read_again_only_if_something_changed(tmp_path: Path) -> None:
    file = tmp_path / "users"
    add(file, "ann")
    users = Users.load(config(file))
    assert users.renewed(config(file)) is users
    add(file, "bob")
    renewed = users.renewed(config(file))
    assert "bob" in renewed
    assert renewed.same_keys(users, "ann")
    assert not renewed.same_keys(users, "bob")


def test_a_users_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="legato user add"):
        Users.load(config(tmp_path / "users"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_lock_that_root_makes_belongs_to_the_brokers_user_and_no_other_file_is_given_away(tmp_path: Path) -> None:
    """`legato user` as the broker's user could not open a lock file that root had made."""
    store, other = tmp_path / "store", tmp_path / "others"
    store.mkdir()
    os.chown(store, 65534, 65534)
    add(store / "users", "ann")
    assert (store / "users.lock").stat().st_uid == 65534
    other.touch()
    (store / "users.lock").unlink()
    (store / "users.lock").symlink_to(other)
    add(store / "users", "bob")
    assert other.stat().st_uid == 0


def test_a_link_in_the_place_of_the_lock_makes_no_file_elsewhere(tmp_path: Path) -> None:
    """Whoever may write the directory had root make a file anywhere, such as one that lets nobody log in."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "users.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="Cannot write the users file"):
        add(tmp_path / "store" / "users", "ann")
    assert not (tmp_path / "elsewhere").exists()


def test_a_line_that_was_cut_is_told_in_words_and_without_what_is_in_it(tmp_path: Path) -> None:
    """It was `not enough values to unpack (expected 3, got 1)`."""
    file = tmp_path / "users"
    add(file, "ann")
    lines = file.read_text().splitlines()
    [at] = [number for number, line in enumerate(lines) if line.startswith("ann:")]
    file.write_text("\n".join([*lines[:at], lines[at][:-120]]))
    with pytest.raises(ConfigError) as raised:
        read(file)
    assert f"{file}, line {at + 1}: " in str(raised.value)
    assert "as if the line was cut off: put back the whole file" in str(raised.value)
    assert "unpack" not in str(raised.value)
    assert "$5" not in str(raised.value)


def test_a_store_that_is_a_file_is_told_so(tmp_path: Path) -> None:
    (file := tmp_path / "a.toml").touch()
    with pytest.raises(ConfigError, match=r"a\.toml as the store: it has to be a directory, and it is a file\."):
        make_private(file, "the store")


def test_nobody_is_told_to_close_to_others_what_is_no_file_with_a_secret(tmp_path: Path) -> None:
    """`legato user add ann --password-file /tmp` ended with `chmod 600 /tmp`."""
    tmp_path.chmod(0o755)
    for path in (tmp_path, Path("/dev/null")):
        with pytest.raises(ConfigError, match="can be read by others, and is no file: name one") as raised:
            refuse_readable(path, "The password file")
        assert "chmod" not in str(raised.value)
