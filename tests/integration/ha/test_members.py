"""Members of a store are seen as long as their processes live, and swept when they do not."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from legato.ha.members import Member, Membership, list_members
from legato.ha.roles import Role


class StoppedClock:
    """A clock that shows the time it is set to."""

    def __init__(self, now_us: int) -> None:
        self.time_us = now_us

    def now_us(self) -> int:
        return self.time_us

    def monotonic_ms(self) -> int:
        return self.time_us // 1000


MEMBER = """
import os, sys
from legato.ha.members import Member, Membership
membership = Membership(sys.argv[1], Member("backup", os.getpid(), "127.0.0.1:1"))
print("member", flush=True)
sys.stdin.read()
"""


def start_member(directory: Path) -> "subprocess.Popen[str]":
    """Another process that is a member."""
    command = [sys.executable, "-c", MEMBER, str(directory)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "member\n"
    return process


def test_a_store_without_members_has_none(tmp_path: Path) -> None:
    assert list_members(tmp_path / "nowhere") == []


def test_a_member_is_seen_in_its_newest_role_until_it_leaves(tmp_path: Path) -> None:
    clock = StoppedClock(5)
    membership = Membership(tmp_path, Member(Role.BACKUP, os.getpid(), "127.0.0.1:1"), clock)
    (member,) = list_members(tmp_path)
    assert (member.role, member.pid, member.listen, member.epoch, member.since_us) == (
        "backup",
        os.getpid(),
        "127.0.0.1:1",
        0,
        5,
    )
    clock.time_us = 9
    membership.update(role=Role.PRIMARY, epoch=3)
    (changed,) = list_members(tmp_path)
    assert (changed.id, changed.role, changed.epoch, changed.since_us) == (member.id, "primary", 3, 9)
    membership.close()
    membership.close()
    assert list_members(tmp_path) == []
    assert list((tmp_path / "members").iterdir()) == []


def test_members_are_listed_in_the_order_of_their_roles_begin(tmp_path: Path) -> None:
    members = [Membership(tmp_path, Member("backup", pid), StoppedClock(us)) for pid, us in ((1, 30), (2, 10), (3, 20))]
    assert [member.pid for member in list_members(tmp_path)] == [2, 3, 1]
    for member in members:
        member.close()


def test_a_killed_process_is_no_member_and_its_files_are_swept(tmp_path: Path) -> None:
    staying, dying = start_member(tmp_path), start_member(tmp_path)
    assert {member.pid for member in list_members(tmp_path)} == {staying.pid, dying.pid}
    dying.kill()
    dying.wait()
    assert [member.pid for member in list_members(tmp_path)] == [staying.pid]
    assert len(list((tmp_path / "members").iterdir())) == 2
    for process in (staying, dying):
        process.kill()
        process.communicate()


def test_half_a_record_is_passed_over(tmp_path: Path) -> None:
    membership = Membership(tmp_path, Member("backup", 1))
    (record,) = (tmp_path / "members").glob("*.json")
    record.write_text('{"role": "ba')
    assert list_members(tmp_path) == []
    membership.update(role="primary", epoch=1)
    assert [member.role for member in list_members(tmp_path)] == ["primary"]
    membership.close()


def test_of_two_that_say_they_are_the_primary_the_one_of_the_lower_epoch_is_handing_over(tmp_path: Path) -> None:
    """USERS S1: after a switchover `legato status --store` showed two primaries."""
    members = [Membership(tmp_path, Member("backup", pid), StoppedClock(pid)) for pid in (1, 2, 3)]
    members[0].update(role=Role.PRIMARY, epoch=4)
    members[1].update(role=Role.PRIMARY, epoch=5)
    shown = {member.pid: member.role for member in list_members(tmp_path)}
    assert shown == {1: Role.HANDING_OVER, 2: Role.PRIMARY, 3: Role.BACKUP}
    for member in members:
        member.close()


def test_who_has_too_many_files_open_takes_no_member_for_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lists those that it can read, and leaves all as they are."""
    membership = Membership(tmp_path, Member(Role.BACKUP, os.getpid(), "127.0.0.1:1"))

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    try:
        with monkeypatch.context() as short:
            short.setattr("legato.ha.flock.os.open", refuse)
            list_members(tmp_path)
        with monkeypatch.context() as short:
            short.setattr("legato.ha.members.os.listdir", refuse)
            assert list_members(tmp_path) == []
        assert [member.role for member in list_members(tmp_path)] == [Role.BACKUP]
    finally:
        membership.close()
