"""`legato user` and `legato can`: users come and go, no password is shown, and each mistake is a sentence."""

from __future__ import annotations

import os
import pty
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.forked_process import run_legato


def legato(*arguments: str, stdin: str | bytes = "") -> subprocess.CompletedProcess[str]:
    return run_legato(*arguments, stdin=stdin)


def test_users_come_change_and_go(tmp_path: Path) -> None:
    file = ("--users-file", str(tmp_path / "users"))
    assert legato("user", "add", "ann", "--roles", "billing,ops", *file, stdin="first\n").stdout.startswith(
        "added user ann"
    )
    assert legato("user", "add", "robot", "--no-password", *file).returncode == 0
    before = (tmp_path / "users").read_text()
    assert legato("user", "passwd", "ann", *file, stdin="second\n").returncode == 0
    assert (tmp_path / "users").read_text() != before
    assert legato("user", "roles", "robot", "readers", *file).stdout == "robot has the roles readers\n"
    assert legato("user", "list", *file).stdout == "ann    billing, ops\nrobot  readers  (no password)\n"
    assert legato("user", "roles", "ann", *file).stdout == "billing\nops\n"
    assert legato("user", "remove", "ann", *file).returncode == 0
    assert (
        legato("user", "list", "--json", *file).stdout
        == '[{"name": "robot", "roles": ["readers"], "password": false}]\n'
    )


def test_a_password_comes_from_a_file_that_nobody_else_reads(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.touch(mode=0o644)
    secret.write_text("geheim\nnot this\n")
    command = ("user", "add", "ann", "--password-file", str(secret), "--store", str(tmp_path / "store"))
    refused = legato(*command)
    assert (refused.returncode, "chmod 600" in refused.stderr) == (2, True)
    secret.chmod(0o600)
    assert legato(*command).returncode == 0
    assert stat.S_IMODE((tmp_path / "store" / "users").stat().st_mode) == 0o600
    from legato.server.identity.users import Users
    from legato.server.identity.users_file import read

    assert Users(read(tmp_path / "store" / "users")).has_password("ann", "geheim")


def test_who_names_a_store_that_is_not_there_is_told_that_it_is_made(tmp_path: Path) -> None:
    store = tmp_path / "sotre"
    command = ("user", "add", "--no-password", "--store", str(store))
    assert legato(*command, "ann").stdout == f"made {store}, a new store\nadded user ann to {store / 'users'}\n"
    assert legato(*command, "bob").stdout == f"added user bob to {store / 'users'}\n"


def on_terminal(*arguments: str, answers: dict[bytes, bytes]) -> tuple[int, bytes]:
    """Run `legato` on a terminal, where somebody answers its questions; returns its code, and what was shown."""
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "legato.cli", *arguments]
    with subprocess.Popen(command, stdin=child, stdout=child, stderr=child, start_new_session=True) as process:
        os.close(child)
        shown = b""
        for question, answer in answers.items():
            while question not in shown:
                shown += os.read(parent, 1024)
            os.write(parent, answer + b"\n")
        try:
            while more := os.read(parent, 1024):
                shown += more
        except OSError:
            pass
        code = process.wait(60)
    os.close(parent)
    return code, shown


def test_a_password_is_asked_for_twice_and_not_shown(tmp_path: Path) -> None:
    answers = {b"Password of ann: ": b"geheim", b"Repeat for confirmation: ": b"geheim"}
    code, shown = on_terminal("user", "add", "ann", "--users-file", str(tmp_path / "users"), answers=answers)
    assert (code, b"geheim" in shown) == (0, False)


def test_a_user_is_removed_on_a_terminal_only_if_somebody_says_yes(tmp_path: Path) -> None:
    """A script is not asked: `legato user add` brings the user back."""
    file = ("--users-file", str(tmp_path / "users"))
    for name in ("ann", "bob"):
        legato("user", "add", name, *file, stdin="x\n")
    question = b"Remove user ann from %s? [y/N]: " % str(tmp_path / "users").encode()
    assert on_terminal("user", "remove", "ann", *file, answers={question: b"n"})[0] == 1
    assert legato("user", "remove", "ann", *file, "--dry-run").stdout.startswith("would remove user ann")
    assert legato("user", "list", *file, "--json").stdout.count("ann") == 1
    assert on_terminal("user", "remove", "ann", "--yes", *file, answers={})[0] == 0
    assert legato("user", "remove", "bob", *file).returncode == 0
    assert "ann" not in legato("user", "list", *file, "--json").stdout


@pytest.mark.parametrize(
    ("arguments", "stdin", "said"),
    [
        (("add", "ann"), "x\n", "--store"),
        (("add", "a b", "--users-file", "{}"), "x\n", "no user name"),
        (("add", "ann", "--users-file", "{}"), "\n", "empty"),
        (("add", "ann", "--users-file", "{}"), b"\xff\xfe\n", "UTF-8"),
        (("add", "ann", "--users-file", "{}", "--iterations", "1"), "x\n", "4096"),
        (("add", "ann", "--users-file", "{}", "--roles", "a b"), "x\n", "no role"),
        (("add", "ann", "--users-file", "{}/no/such"), "x\n", "Cannot write"),
        (("passwd", "ann", "--users-file", "{}"), "x\n", "legato user add"),
        (("remove", "ann", "--users-file", "{}"), "", "legato user add"),
        (("list", "--users-file", "{}"), "", "legato user add"),
        (("add", "ann", "--users-file", "{}", "--password-file", "{}.txt"), "", "Cannot read"),
    ],
)
def test_a_mistake_is_a_sentence(tmp_path: Path, arguments: tuple[str, ...], stdin: str | bytes, said: str) -> None:
    run = legato("user", *(part.replace("{}", str(tmp_path / "users")) for part in arguments), stdin=stdin)
    assert run.returncode == 2
    assert said in run.stderr
    assert "Traceback" not in run.stderr


def test_a_user_is_added_once(tmp_path: Path) -> None:
    file = ("--users-file", str(tmp_path / "users"))
    legato("user", "add", "ann", *file, stdin="x\n")
    again = legato("user", "add", "ann", *file, stdin="x\n")
    assert again.returncode == 2
    assert "legato user passwd ann" in again.stderr


def test_decisions_are_explained(tmp_path: Path) -> None:
    store, config = tmp_path / "store", tmp_path / "legato.toml"
    config.write_text(
        f'[store]\ndirectory = "{store}"\n[[role]]\nname = "billing"\nmanagement = "view"\n'
        'allow = [{ on = "orders.#", may = ["send"] }]\n'
    )
    assert legato("user", "add", "ann", "--roles", "billing", "--config", str(config), stdin="x\n").returncode == 0

    def can(*question: str) -> tuple[int, str]:
        run = legato("can", *question, "--config", str(config))
        return run.returncode, run.stdout + run.stderr

    assert can("ann", "send", "orders.new") == (0, "yes: the role 'billing' allows send on 'orders.#'\n")
    assert can("ann", "receive", "orders.new") == (
        1,
        "no: The user 'ann', with the roles billing, lacks a permission: receive on 'orders.new'\n",
    )
    assert can("ann", "view")[0] == 0
    assert can("ann", "operate")[0] == 1
    assert can("anonymous", "send", "orders")[0] == 1
    assert can("ann", "fly", "orders")[0] == 2
    assert can("ann", "send")[0] == 2
