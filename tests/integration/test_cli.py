"""The commands of `legato` against a real pair of brokers."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from legato.cli import main
from legato.cli.contents import content
from legato.cli.output import beside
from legato.errors import ConfigError
from legato.testing import BrokerPair, broker_pair
from tests.support.forked_process import run_legato
from tests.support.server import free_port


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerPair]:
    with broker_pair(tmp_path_factory.mktemp("cli")) as running:
        yield running


def legato(pair: BrokerPair | None, *arguments: str, stdin: str | bytes = "") -> subprocess.CompletedProcess[str]:
    """Run a command; its brokers come from the environment."""
    return run_legato(*arguments, stdin=stdin, environment={"LEGATO_URL": pair.url} if pair else {})


def test_what_is_sent_can_be_browsed_and_then_received_once(pair: BrokerPair) -> None:
    assert legato(pair, "send", "tea", "-", stdin="green\nblack\n").stdout == "sent 2 to tea\n"
    assert legato(pair, "browse", "tea").stdout == "green\nblack\n"
    assert legato(pair, "browse", "tea", "--count", "1").stdout == "green\n"
    assert legato(pair, "receive", "tea", "--count", "0", "--wait", "0").stdout == "green\nblack\n"
    empty = legato(pair, "browse", "tea")
    assert (empty.returncode, empty.stdout, empty.stderr) == (0, "", "no message waits in tea\n")
    starred = legato(pair, "send", "tea.*", "white")
    assert (starred.stdout, starred.stderr) == (
        "sent 1 to tea.*\n",
        "tea.* is the name of one queue: in a name * and # are no wildcards.\n",
    )
    again = legato(pair, "receive", "tea", "--wait", "0.5")
    assert (again.returncode, again.stdout) == (1, "")


def test_bytes_that_are_no_text_are_told_in_a_sentence_and_the_lines_before_them_are_sent(pair: BrokerPair) -> None:
    run = legato(pair, "send", "pu erh", "-", stdin=b"raw\nripe\n\xff\nlast\n")
    said = (
        "No text in UTF-8: line 3 of standard input. The lines before it were sent. `legato send --file` sends bytes."
    )
    assert (run.returncode, run.stdout, run.stderr) == (1, "", f"legato: {said}\n")
    assert legato(pair, "browse", "pu erh").stdout == "raw\nripe\n"
    run = legato(pair, "send", "pu erh", os.fsdecode(b"\xff"))
    assert (run.returncode, run.stderr[:40]) == (1, "legato: No text in UTF-8: the argument. "[:40])


def test_a_queue_that_is_not_there_is_told_and_browsing_makes_none(pair: BrokerPair) -> None:
    legato(pair, "queue", "create", "lapsang")
    browsed = legato(pair, "browse", "lapsan")
    sentence = "There is no queue 'lapsan'. Did you mean lapsang?\n"
    assert (browsed.returncode, browsed.stdout, browsed.stderr) == (1, "", f"legato: {sentence}")
    received = legato(pair, "receive", "lapsan", "--wait", "0")
    assert (received.returncode, received.stdout) == (1, "")
    assert received.stderr == (
        "no message came from lapsan within 0 s. There was no such queue: this command made it. Did you mean lapsang? "
        "`legato queue delete` takes it away.\n"
    )
    again = legato(pair, "receive", "lapsan", "--wait", "0")
    assert again.stderr == "no message came from lapsan within 0 s\n"


def test_properties_and_repetition_show_in_json(pair: BrokerPair) -> None:
    legato(pair, "send", "coffee", "strong", "--count", "3", "--property", "origin=Kenya")
    lines = legato(pair, "receive", "coffee", "--count", "3", "--json").stdout.splitlines()
    messages = [json.loads(line) for line in lines]
    assert [message["body"] for message in messages] == ["strong"] * 3
    assert {message["properties"]["origin"] for message in messages} == {"Kenya"}
    assert len({message["message_id"] for message in messages}) == 3


def test_a_file_is_sent_as_its_bytes(pair: BrokerPair, tmp_path: Path) -> None:
    file = tmp_path / "leaf.bin"
    file.write_bytes(bytes(range(256)))
    legato(pair, "send", "leaves", "--file", str(file))
    message = json.loads(legato(pair, "receive", "leaves", "--json").stdout)
    assert message["body_base64"].startswith("AAECAwQF")


def test_status_tells_the_epoch_the_queues_and_the_members(pair: BrokerPair) -> None:
    legato(pair, "send", "status-queue", "x")
    answer = json.loads(legato(pair, "status", "--json", "--store", str(pair.store)).stdout)
    assert answer["epoch"] == pair.primary.epoch
    assert {queue["name"]: queue["depth"] for queue in answer["queues"]}["status-queue"] == 1
    assert {member["role"] for member in answer["members"]} == {"primary", "backup"}
    assert "status-queue" in legato(pair, "status").stdout


def test_status_names_the_processes_of_a_store_whose_primary_is_stopped(pair: BrokerPair) -> None:
    """It showed nothing but that no broker answers: the one case in which an operator needs to know whom to end."""
    store, url = str(pair.store), pair.url + "?connect_wait_s=0.5"
    pair.pause_primary()
    try:
        status = ("status", "--store", store, "--url", url)
        with ThreadPoolExecutor() as both:
            shown, told = both.map(lambda flags: legato(pair, *status, *flags), [(), ("--json",)])
    finally:
        pair.continue_primary()
    assert (shown.returncode, told.returncode) == (1, 1)
    assert f"primary: process {pair.primary.pid} at" in shown.stdout
    assert "it is stopped: continue it (SIGCONT) or end it" in " ".join(shown.stdout.split())
    assert shown.stderr.startswith("legato: ") or "\nlegato: " in shown.stderr
    answer = json.loads(told.stdout)
    assert {member["role"]: member["stopped"] for member in answer["members"]}["primary"] is True
    assert answer["error"]


def test_status_says_if_the_broker_that_answers_serves_another_store(pair: BrokerPair, tmp_path: Path) -> None:
    """It showed the broker of LEGATO_URL above the processes of --store, as if they belonged together."""
    other = " ".join(legato(pair, "status", "--store", str(tmp_path)).stdout.split())
    assert f"The broker above, at 127.0.0.1:{pair.primary.port}, is no process of this store" in other
    assert "No process uses this store." in other
    own = legato(pair, "status", "--store", str(pair.store)).stdout
    assert "The broker above" not in own


def test_status_of_a_store_that_nobody_uses_says_so(tmp_path: Path) -> None:
    answer = legato(None, "status", "--store", str(tmp_path), "--url", "amqp://127.0.0.1:9?connect_attempts=1")
    assert answer.stdout == "No process uses this store.\n"
    assert answer.returncode == 1


def test_a_broker_that_is_not_there_is_a_sentence_not_a_trace() -> None:
    answer = legato(None, "send", "tea", "green", "--url", "amqp://127.0.0.1:9?connect_attempts=1")
    assert answer.returncode == 1
    assert "Traceback" not in answer.stderr
    assert answer.stderr.startswith("legato: ")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["serve"], "--store"),
        (["serve", "--store", "x", "--listen", "nowhere"], "HOST:PORT"),
        (["send", "tea", "green", "--url", "http://localhost"], "amqp://"),
        (["demo", "--flights", "0"], "--flights"),
        (["send", "tea"], "--file"),
        (["audit", "nowhere"], "There is no directory nowhere."),
        (["audit", ".", "--report", "nowhere/audit.html"], "There is no directory nowhere to write audit.html into."),
        (["audit", ".", "--report", "."], ". is a directory. The result needs the name of a file."),
        (["audit", ".", "--from", "2026-02-02", "--to", "2026-01-01"], "2026-02-02 00:00:00"),
        (["story", "ID:1", "nowhere"], "There is no directory nowhere."),
        (["store", "backup", "nowhere", "/proc"], "A file system is mounted at /proc: name a new directory in it."),
        (["store", "restore", "nowhere", "/proc/self"], "/proc/self is a symbolic link: name the directory itself"),
        (["status", "--store", "nowhere"], "There is no directory nowhere:"),
        (["queue", "import", "tea", "nowhere"], "There is no file nowhere."),
        (["console", "--store", "nowhere"], "There is no directory nowhere:"),
        (["user", "list", "--store", "nowhere"], "There is no users file nowhere/users: make it with legato user add"),
    ],
)
def test_a_mistake_of_use_is_named_and_ends_with_2(arguments: list[str], hint: str) -> None:
    answer = legato(None, *arguments)
    assert answer.returncode == 2
    assert hint in answer.stderr
    assert "Traceback" not in answer.stderr


def test_no_broker_serves_from_a_backup_itself(pair: BrokerPair, tmp_path: Path) -> None:
    """It did, and the backup was none afterwards: its digests were those of another content."""
    backup = str(tmp_path / "backup")
    assert legato(None, "store", "backup", str(pair.store), backup).returncode == 0
    for words in (["serve", "--store", backup, "--listen", "127.0.0.1:9"], ["serve", "--store", backup, "--check"]):
        answer = legato(None, *words)
        assert answer.returncode == 2
        assert f"{backup} is a backup: make a store of it first, with legato store restore {backup}" in answer.stderr
    assert legato(None, "store", "verify", backup).returncode == 0


def test_a_broker_of_a_group_does_not_serve_alone_for_want_of_a_log(tmp_path: Path) -> None:
    """A shell's variable that is not set, or a forgotten option, would make each of three machines a primary."""
    (config := tmp_path / "legato.toml").write_text('[replication]\nbeside = "log-1"\n')
    serve = ["serve", "--store", str(tmp_path / "store"), "--listen", "127.0.0.1:9"]
    for words, sentence in (
        (["--replicate", "", "--group", "orders"], "--replicate names no server of a log"),
        (["--group", "orders"], "replication.group is given, and no server of the log"),
        (["--config", str(config)], "replication.beside is given, and no server of the log"),
        (["--config", str(config), "--check"], "replication.beside is given, and no server of the log"),
    ):
        answer = legato(None, *serve, *words)
        assert answer.returncode == 2
        assert sentence in answer.stderr
    assert not (tmp_path / "store").exists()


def test_a_store_for_which_there_are_no_addresses_names_the_setting(tmp_path: Path) -> None:
    serve = f"{shlex.quote(sys.executable)} -m legato.cli serve --listen 127.0.0.1:9 --store"
    limited = f"ulimit -v 6000000; exec {serve} {shlex.quote(str(tmp_path / 'store'))}"
    answer = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert "store.map_bytes" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_password_file_is_utf_8_in_any_locale(tmp_path: Path) -> None:
    (password := tmp_path / "password").write_text("geheimnisträger\n", encoding="utf-8")
    password.chmod(0o600)
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    (config := tmp_path / "legato.toml").write_text(
        f'[replication]\nservers = "a"\nuser = "brokers"\npassword_file = "{password}"\n'
    )
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    log_login = ["--timeout", "0.2", "--user", "brokers", "--password-file", str(password)]
    for words, code, said in (
        (["user", "add", "ann", "--store", str(store), "--password-file", str(password)], 0, ""),
        (["serve", "--check", "--store", str(store), "--config", str(config)], 0, ""),
        (["log", "status", "127.0.0.1:9", *log_login], 1, "no server of the log answers"),
    ):
        answer = subprocess.run(
            [sys.executable, "-m", "legato.cli", *words],
            env=os.environ | ascii_only,
            capture_output=True,
            text=True,
            check=False,
        )
        assert answer.returncode == code, answer.stderr
        assert said in answer.stderr


def test_a_file_is_written_first_under_a_name_that_nobody_foresees(tmp_path: Path) -> None:
    first, second = beside(tmp_path / "messages.arrow"), beside(tmp_path / "messages.arrow")
    assert first != second
    assert first.parent == second.parent == tmp_path


def test_a_mistyped_source_of_a_copy_leaves_no_directory_behind(tmp_path: Path) -> None:
    answer = legato(None, "replica", "seed", str(tmp_path / "store"), "--from", str(tmp_path / "backup"))
    assert (answer.returncode, answer.stderr) == (1, f"legato: there is no store in {tmp_path / 'backup'}\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("source", ["backup", "amqp://127.0.0.1:9?connect_attempts=1"])
def test_a_source_of_a_copy_that_fails_late_leaves_no_directory_behind(tmp_path: Path, source: str) -> None:
    """An empty directory with a lock was left, in which the next broker would begin."""
    (tmp_path / "backup").mkdir()
    wanted = tmp_path / "new" / "store"
    answer = legato(None, "replica", "seed", str(wanted), "--from", source.replace("backup", str(tmp_path / "backup")))
    assert answer.returncode == 1
    assert [each.name for each in tmp_path.iterdir()] == ["backup"]
    wanted.mkdir(parents=True)
    (wanted / "users.toml").write_text("mine")
    answer = legato(None, "replica", "seed", str(wanted), "--from", source.replace("backup", str(tmp_path / "backup")))
    assert answer.returncode == 1
    assert (wanted / "users.toml").read_text() == "mine"


def test_a_copy_that_a_signal_ends_leaves_no_directory_behind(tmp_path: Path) -> None:
    wanted = tmp_path / "new" / "store"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"amqp://127.0.0.1:{silent.getsockname()[1]}"
        program = (sys.executable, "-m", "legato.cli", "replica", "seed", str(wanted), "--from", url)
        with subprocess.Popen(program, stderr=subprocess.PIPE) as process:
            silent.accept()[0].close()
            process.terminate()
    assert process.returncode == -signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


def test_a_device_that_does_not_end_is_no_message(pair: BrokerPair, tmp_path: Path) -> None:
    """It was read until the machine had no memory left."""
    limited = "ulimit -v 4000000; exec "
    send = [sys.executable, "-m", "legato.cli", "send", "endless", "--file", "/dev/zero", "--url", pair.url]
    answer = subprocess.run(
        ["bash", "-c", limited + shlex.join(send)], capture_output=True, text=True, check=False, timeout=120
    )
    assert answer.returncode == 2
    assert "/dev/zero does not end, or has more than a message may have (1.0 GiB)" in answer.stderr


def test_a_pipe_is_read_as_far_as_a_message_may_go(tmp_path: Path) -> None:
    def piped(count: int) -> bytes:
        read, write = os.pipe()
        with open(write, "wb") as file:
            file.write(b"x" * count)
        try:
            return content(Path(f"/dev/fd/{read}"), 1_000)
        finally:
            os.close(read)

    assert piped(1_000) == b"x" * 1_000
    assert piped(0) == b""
    with pytest.raises(ConfigError, match=r"more than a message may have \(1000 B\)"):
        piped(1_001)
    (tmp_path / "file").write_bytes(b"x" * 2_000)
    assert len(content(tmp_path / "file", 1_000)) == 2_000, "which the broker judges"


def test_settings_are_checked_and_nothing_is_started_or_made(tmp_path: Path) -> None:
    config, store, trail = tmp_path / "legato.toml", tmp_path / "store", tmp_path / "audit.jsonl"
    config.write_text(
        f"[store]\ndirectory = '{store}'\n[audit]\nfile = '{trail}'\n[http]\nlisten = '0.0.0.0:9464'\n"
        "[[role]]\nname = 'operators'\nmanagement = 'view'\n"
    )
    usable = legato(None, "serve", "--config", str(config), "--check")
    assert (usable.returncode, usable.stdout) == (0, "these settings can be used\n")
    assert "sees names and figures of queues, without a login" in usable.stderr  # As the log of the broker would say.
    assert list(tmp_path.iterdir()) == [config]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ("[[role]]\nname = 'x'\nmanagement = 'root'", "line 3: the [[role]] 'x': management: 'root' is none of view"),
        (
            "[replication]\nservers = 'tls://a'\ncredentials_file = 'no.creds'",
            "the file with credentials for the log's servers does not exist: no.creds",
        ),
        ("[replication]\nservers = 'a'\ngroup = 'a b'", "the group 'a b' cannot be named so"),
        ("[tls]\ncertificate = 'no.pem'\nkey = 'no.key'", "Cannot read tls.certificate no.pem"),
        ("[auth]\nusers_file = 'no-users'", "There is no users file no-users: make it with legato user add NAME"),
        ("[server]\nlisten = '0.0.0.0:5672'", "The broker would be open to strangers"),
        ("[store]\ndirectory = 'shared'", "Others on this machine can get at the store: shared has mode 0755."),
        ("[store]\ndirectory = 'shared'", "Close it to them: chmod -R go= shared"),
        ("[store]\ndirectory = '.'", "There are other things in it: name a directory of its own, such as legato."),
        ("[store]\ndirectory = 'legato.toml'", "it has to be a directory, and it is a file"),
    ],
)
def test_settings_that_cannot_be_used_fail_the_check_as_they_would_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o755)
    (tmp_path / "shared" / "data.mdb").touch()
    (tmp_path / "legato.toml").write_text(settings)
    answer = legato(
        None, "serve", *(() if "directory" in settings else ("--store", "store")), "--check", "--config", "legato.toml"
    )
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith("legato: ")
    assert sentence in answer.stderr


@pytest.mark.parametrize("words", [["--help"], ["can", "ann", "send", "tea"]])
def test_output_that_nobody_reads_is_no_success_and_no_noise(words: list[str]) -> None:
    """As behind `| head -1`. Of `can` the exit code is the answer: it must not be that of a yes."""
    read, write = os.pipe()
    os.close(read)
    try:
        program = [sys.executable, "-m", "legato.cli", *words]
        answer = subprocess.run(program, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(write)
    assert (answer.returncode, answer.stderr) == (1, "")


def test_the_command_alone_prints_its_help_and_a_noun_alone_is_a_mistake() -> None:
    alone, helped = legato(None), legato(None, "--help")
    assert (alone.returncode, alone.stdout, alone.stderr) == (0, helped.stdout, "")
    assert "legato serve --store ./store" in alone.stdout
    assert legato(None, "queue").returncode == 2


def test_every_command_explains_itself_with_an_example() -> None:
    for command in ("serve", "demo", "send", "receive", "browse", "status", "audit"):
        answer = legato(None, command, "--help")
        assert answer.returncode == 0
        assert "Example" in answer.stdout, command


def test_addresses_of_queues_and_topics_are_no_missing_queues(pair: BrokerPair) -> None:
    """A topic, and a queue by its address, was said to have been made, and could not be browsed."""
    legato(pair, "send", "queue://oolong", "tea")
    assert legato(pair, "browse", "queue://oolong").stdout == "tea\n"
    assert legato(pair, "receive", "queue://oolong").stdout == "tea\n"
    for address in ("queue://oolong", "topic://oolong"):
        empty = legato(pair, "receive", address, "--wait", "0")
        assert (empty.returncode, empty.stderr) == (1, f"no message came from {address} within 0 s\n")
    refused = legato(pair, "browse", "topic://oolong")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "topic://oolong is a topic: its messages wait in its subscriptions" in refused.stderr


OTHER_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""In which texts are ASCII."""


def test_a_locale_without_the_characters_of_a_name_ends_no_command(pair: BrokerPair) -> None:
    """`legato queues` ended with a stack trace as soon as there was one such queue, and `send` after it had sent."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "legato.cli", *words]
        environment = os.environ | {"PYTHONIOENCODING": "latin-1", "LEGATO_URL": pair.url}
        return subprocess.run(command, env=environment, capture_output=True, encoding="latin-1", check=False)

    sent = run("send", "tee.5€", "green")
    assert (sent.returncode, sent.stdout, sent.stderr) == (0, "sent 1 to tee.5\\u20ac\n", "")
    assert "tee.5\\u20ac" in run("queues").stdout
    assert legato(pair, "receive", "tee.5€").stdout == "green\n"


def test_a_terminal_of_no_columns_is_one_of_an_unknown_width(pair: BrokerPair) -> None:
    """`legato status` ended with a stack trace, and `legato queues` printed empty lines."""
    legato(pair, "queue", "create", "narrow")
    for command in ("status", "queues"):
        program = [sys.executable, "-m", "legato.cli", command]
        environment = os.environ | {"COLUMNS": "0", "LEGATO_URL": pair.url}
        run = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
        assert (run.returncode, run.stderr) == (0, "")
        assert "narrow" in run.stdout


def test_a_configuration_is_in_utf_8_in_every_locale(tmp_path: Path) -> None:
    file = tmp_path / "legato.toml"
    file.write_text('[[address]]\nmatch = "grüner.tee"\nmax_messages = 10\n', encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "legato.cli",
        "serve",
        "--check",
        "--config",
        str(file),
        "--store",
        str(tmp_path / "store"),
    ]
    run = subprocess.run(command, env=os.environ | OTHER_LOCALE, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "these settings can be used\n"), run.stderr


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_a_broker_serves_with_standard_streams_closed(tmp_path: Path, closed: str) -> None:
    """libuv aborted it: sockets of its had the numbers of standard streams."""
    program = [sys.executable, "-m", "legato.cli", "serve", "--store", str(tmp_path / "store"), "--no-ledger"]
    command = ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *program, "--listen", f"localhost:{free_port()}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "active epoch=1\n"
        process.terminate()
    assert process.returncode == 0


WHAT_HELP_LOADS = """
import sys
from legato.cli.main import main

sys.argv = ["legato", "--help"]
try:
    main()
finally:
    print(" ".join(sys.modules))
"""


def test_help_needs_no_extra_and_no_engine() -> None:
    answer = subprocess.run([sys.executable, "-c", WHAT_HELP_LOADS], capture_output=True, text=True, check=True)
    loaded = set(answer.stdout.splitlines()[-1].split())
    assert "legato.cli.main" in loaded
    assert not loaded & {"lmdb", "uvloop", "pyspark", "pyarrow", "cproton"}


def test_the_command_line_can_be_started_by_its_path_as_spark_submit_does() -> None:
    """Its modules must not hide those of the standard library, such as `queue`."""
    program = Path(main.__file__).parent / "__main__.py"
    answer = subprocess.run([sys.executable, str(program), "--version"], capture_output=True, text=True, check=True)
    assert answer.stdout.startswith("legato ")
