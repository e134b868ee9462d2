"""Words of peers: names that forge lines, drive terminals, lead out of directories, or have no end."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

from legato.amqp.engine.sasl import AMQP_HEADER
from tests.attacks.ground import PASSWORD, Ground, holds, plain_login
from tests.attacks.register import attack
from tests.support.amqp_peer import AmqpPeer, Refused
from tests.support.raw import OPEN, frame, opening, receiving, sending

ESCAPE, BIDI = "\x1b[31m", "\u202e"
LONG = "n" * 240_000
EVIL = (
    f"play.{ESCAPE}red",
    f"play.{BIDI}evil",
    "play.line\nforged: all is well",
    "play.\x00",
    f"play.{LONG}",
    "play.\u200b",
    "play.\x9b31m",
)
LINE_MAX = 2000


@attack(18, "a sink called ..", quick=True)
def sink_outside(ground: Ground) -> None:
    """Rows were staged beside the store's own files."""
    manager = ground.manager()
    before = {path.name for path in ground.store.iterdir()}
    for name in ("..", ".", "../..", "/etc", "a/../../b"):
        manager.ask("TICKET", name, type="stage", batch=7, stage="evil")
        manager.ask("DISCARD", name, type="stage", batch=7, stages="evil,../../evil")
        manager.ask("PUBLISH", name, type="stage", batch=7, stages="")
    found = {path.name for path in ground.store.iterdir()} - before
    holds(found <= {"stages", "staged"}, f"there are {found} in the store")
    holds(not list(ground.store.parent.glob("*.stage")), "rows are beside the store")


@attack(19, "forge lines of the log", quick=True)
def forged_lines(ground: Ground) -> None:
    """Container ids, user names, mechanisms and link names with line feeds, escape sequences, and 200 KB."""
    for word in ("x\n2026-01-01 INFO legato: forged", f"{ESCAPE}red", BIDI, LONG[:200_000]):
        for user in (word,):
            raw = ground.raw()
            with contextlib.suppress(OSError):
                raw.send(plain_login(user[:3000]))
                raw.hear_until(b"\x00\x53\x44")
        raw = ground.logged_in()
        with contextlib.suppress(OSError):
            raw.send(AMQP_HEADER, frame(OPEN, [word]))
            raw.hear_until(b"\x00\x53\x10", b"\x00\x53\x18")
        raw = ground.logged_in()
        with contextlib.suppress(OSError):
            raw.send(opening(ground.container()), receiving(0, word), sending(1, word))
            raw.hear_until(b"\x00\x53\x16", b"\x00\x53\x18")
        ground.leave()
    lines = ground.log.split("\n")
    forged = [line for line in lines if line.startswith("2026-01-01") and line.endswith("forged")]
    holds(not forged, "a line is forged")
    holds("\x1b" not in ground.log and BIDI not in ground.log, "an escape sequence is in the log")
    holds(max(map(len, lines)) < LINE_MAX, f"a line has {max(map(len, lines))} characters")
    trail = (ground.directory / "audit.jsonl").read_text()
    holds(trail.isascii() and max(map(len, trail.split("\n"))) < 3 * LINE_MAX, "the audit trail has them")


@attack(20, "drive the terminal of who looks", own_ground=True)
def terminal(ground: Ground) -> None:
    """Names of queues, containers, products and hosts, as `legato` shows them."""
    for name in EVIL:
        said = dict.fromkeys(("product", "version", "hostname"), name[:200])
        with contextlib.suppress(Refused):
            ground.peer(container="c", properties=said).sender(name)
        with contextlib.suppress(Refused):
            ground.peer(container=f"c{name[:100]}")
    environment = os.environ | {"LEGATO_URL": f"amqp://root:{PASSWORD}@127.0.0.1:{ground.port}"}
    for command in (["queues"], ["status"], ["connections"]):
        line = [sys.executable, "-m", "legato.cli", *command]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=60, check=False)
        shown = done.stdout + done.stderr
        holds(done.returncode == 0, f"legato {command[0]} fails: {done.stderr[-300:]}")
        for sign in ("\x1b", BIDI, "\x9b", "\x00"):
            holds(sign not in shown, f"legato {command[0]} passes {sign!r} on")


@attack(25, "queues with names of any kind and length", quick=True)
def any_names(ground: Ground) -> None:
    """What cannot be read is no name; 30 queues of 200 KB took 12 MB of the store."""
    manager = ground.manager()
    for name in EVIL:
        holds(manager.ask("CREATE", name)[0] in (400, 403), f"there is a queue {name[:40]!r}")
        with contextlib.suppress(Refused):
            AmqpPeer(ground.port, user="mallory", password=PASSWORD, container=name[:200]).drop()
    found = [row["name"] for row in manager.ask("QUERY", match="play.#")[1]["results"]]
    holds(all(name.isprintable() and len(name.encode()) <= 255 for name in found), f"there are {found}")
