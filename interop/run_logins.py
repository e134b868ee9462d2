"""`interop/run-logins`: Qpid JMS, rhea, python-qpid-proton and go-amqp log in over TLS by each mechanism that they
have, and are denied what no role allows; and Qpid JMS goes over limits."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.support.openid import AUDIENCE, Provider, openid_provider

from interop.broker import ROOT, free_port
from interop.maven import Build, build, pom_version
from interop.outcomes import FAILED, PASSED, SKIPPED, Outcome, Report
from interop.run_clients import JAVASCRIPT, rhea_version
from interop.security import STORE_PASSWORD, write_stores
from legato.server.identity.users_file import User, changing, make_keys

MAIN, LIMITS_MAIN = "legato.interop.Logins", "legato.interop.Limits"
GO = Path(__file__).parent / "go"
GO_PROGRAM = GO / "target" / "login"
TIMEOUT_S = 180.0
SETTINGS = """
[server]
listen = "127.0.0.1:{port}"
# Java virtual machines that share a processor take long to log in.
handshake_timeout_s = 60
[tls]
certificate = "{directory}/server.pem"
key = "{directory}/server.pem"
client_ca = "{directory}/clients.pem"
[auth]
failed_logins = {{ delay_s = 0, most = 1000 }}
[auth.jwt]
issuer = "{issuer}"
audience = "{audience}"
[[role]]
name = "senders"
members = ["ann", "cert"]
allow = [{{ on = "q", may = ["send", "receive", "create"] }}]
[[role]]
name = "limited"
members = ["few", "linked", "slow"]
allow = [{{ on = "limits.#", may = ["send", "receive", "create"] }}]
[limits.users.few]
connections = 2
[limits.users.linked]
links = 6
[limits.users.slow]
messages_per_s = 20
"""
DONE, DENIED, SECURITY_ERROR = "done", "denied", "JMSSecurityException"
LIMITS = {"connections": "few", "links": "linked", "messages": "slow"}
"""What Qpid JMS takes too much of, and as which user."""
SENT_IN_MS_MIN = 1000
"""For 60 messages at 20 a second, of which one second's worth may come at once."""


@dataclass(frozen=True)
class Login:
    """What a client logs in with, and whether it is let in."""

    name: str
    mechanism: str
    user: str
    password: str
    allowed: bool = True
    queue: str = "q"
    shows: bool = False
    """Whether a certificate is shown."""


@dataclass(frozen=True)
class Client:
    """A client library, the mechanisms it has, and what runs it."""

    name: str
    mechanisms: tuple[str, ...]
    command: Callable[[str, Path, Login], list[str]]
    denied: str = DENIED
    directory: Path = ROOT


@contextlib.contextmanager
def broker(directory: Path, provider: Provider) -> Iterator[int]:
    """A broker with users, certificates, tokens and limits; gives its port."""
    port = free_port()
    store = directory / "store"
    store.mkdir(mode=0o700)
    with changing(store / "users") as content:
        for name in ("ann", *LIMITS.values()):
            content.users[name] = User(name, (), make_keys("secret"))
    settings = SETTINGS.format(port=port, directory=directory, issuer=provider.issuer, audience=AUDIENCE)
    (directory / "legato.toml").write_text(settings)
    command = [sys.executable, "-m", "legato.cli", "serve", "--store", str(store), "--no-ledger"]
    command += ["--config", str(directory / "legato.toml")]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if not process.stdout.readline().startswith("active"):
                raise RuntimeError("the broker did not start")
            yield port
            if process.poll() is not None:
                raise RuntimeError("the broker ended")
        finally:
            process.terminate()


def logins(provider: Provider) -> Iterator[Login]:
    """All that a client can try, whichever it is."""
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"):
        yield Login(mechanism, mechanism, "ann", "secret")
        yield Login(f"{mechanism} with a wrong password", mechanism, "ann", "wrong", allowed=False)
        yield Login(f"{mechanism} of nobody", mechanism, "nobody", "secret", allowed=False)
    yield Login("EXTERNAL", "EXTERNAL", "-", "-", shows=True)
    yield Login("EXTERNAL without a certificate", "EXTERNAL", "-", "-", allowed=False)
    token = provider.token("tom", roles=["senders"])
    yield Login("XOAUTH2", "XOAUTH2", "tom", token)
    yield Login("XOAUTH2 with an expired token", "XOAUTH2", "ann", provider.token(lasts_s=-100), allowed=False)
    yield Login("PLAIN with a token", "PLAIN", "tom", token)
    stolen = provider.token("ann", roles=["senders"])
    yield Login("a token that names a user with a password", "XOAUTH2", "ann", stolen, allowed=False)
    yield Login("no mechanism named", "", "ann", "secret")
    for mechanism in ("SCRAM-SHA-256", "PLAIN"):
        name = f"a queue that no role allows, by {mechanism}"
        yield Login(name, mechanism, "ann", "secret", allowed=False, queue="salaries")


def jms_url(address: str, directory: Path, login: Login) -> str:
    """Where Qpid JMS connects, and how."""
    url = f"amqps://{address}?transport.trustStoreLocation={directory}/trust.p12"
    url += f"&transport.trustStorePassword={STORE_PASSWORD}&transport.storeType=PKCS12"
    if login.mechanism:
        url += f"&amqp.saslMechanisms={login.mechanism}"
    if login.shows:
        url += f"&transport.keyStoreLocation={directory}/client.p12"
        url += f"&transport.keyStorePassword={STORE_PASSWORD}"
    return url


def arguments_of(address: str, directory: Path, login: Login) -> list[str]:
    """What the programs for the other clients are told."""
    found = [address, f"{directory}/servers.pem", login.mechanism, login.user, login.password, login.queue]
    return [*found, f"{directory}/client.pem"] if login.shows else found


def clients(java: Build) -> list[Client]:
    """All clients, each with what it speaks."""

    def jms(address: str, directory: Path, login: Login) -> list[str]:
        return java.command(MAIN, jms_url(address, directory, login), login.user, login.password, login.queue)

    def program(*begin: str) -> Callable[[str, Path, Login], list[str]]:
        return lambda *arguments: [*begin, *arguments_of(*arguments)]

    scram = ("SCRAM-SHA-256", "SCRAM-SHA-512")
    return [
        Client("qpid-jms", (*scram, "PLAIN", "EXTERNAL", "XOAUTH2", ""), jms, SECURITY_ERROR),
        Client("rhea", ("PLAIN", "EXTERNAL", "XOAUTH2"), program("node", "login.js"), directory=JAVASCRIPT),
        # The wheel is built without Cyrus: it has no SCRAM.
        Client("proton", ("PLAIN", "EXTERNAL"), program(sys.executable, "-m", "interop.proton_login")),
        Client("go-amqp", ("PLAIN", "EXTERNAL", "XOAUTH2"), program(str(GO_PROGRAM))),
    ]


def run(java: Build, only: str = "") -> Iterator[Outcome]:
    """Each scenario of each client, one after the other."""
    directory = Path(tempfile.mkdtemp(prefix="legato-logins-"))
    try:
        write_stores(directory)
        with openid_provider() as provider, broker(directory, provider) as port:
            address = f"localhost:{port}"
            for client in clients(java):
                for login in logins(provider):
                    name = f"{client.name}.{login.name}"
                    if login.mechanism not in client.mechanisms or only not in name:
                        continue
                    if client.name == "go-amqp" and not GO_PROGRAM.exists():
                        yield Outcome(name, SKIPPED, 0, "there is no Go")
                        continue
                    expected = DONE if login.allowed else client.denied
                    command = client.command(address, directory, login)
                    yield _outcome(name, command, client.directory, partial(_begins, expected))
            for what, user in LIMITS.items():
                name = f"qpid-jms.too many {what}"
                if only in name:
                    url = jms_url(address, directory, Login(name, "PLAIN", user, "secret"))
                    command = java.command(LIMITS_MAIN, url, user, "secret", what)
                    yield _outcome(name, command, ROOT, partial(_met, what, user))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _begins(expected: str, said: str) -> bool:
    return said.startswith(expected)


def _met(what: str, user: str, said: str) -> bool:
    """Whether Qpid JMS met a limit as it should: with an exception that names it, and everything else goes on."""
    if not said.endswith(DONE):
        return False
    if what == "messages":
        sent = re.search(r"sent in (\d+) ms", said)
        return sent is not None and int(sent[1]) >= SENT_IN_MS_MIN
    return re.match(rf"ResourceAllocationException\t.*The user '{user}' may have \d+ {what}", said) is not None


def _outcome(name: str, command: Sequence[str], directory: Path, is_right: Callable[[str], bool]) -> Outcome:
    began = time.monotonic()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S, cwd=directory, env=_environment()
        )
        said, errors = done.stdout.strip(), done.stderr.strip()
    except subprocess.TimeoutExpired:
        said, errors = "", f"nothing came for {TIMEOUT_S} s"
    passed = is_right(said)
    milliseconds = int((time.monotonic() - began) * 1000)
    return Outcome(name, PASSED if passed else FAILED, milliseconds, "" if passed else f"{said}\n{errors}".strip())


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}


def _prepare() -> None:
    """Get rhea, and build the program for go-amqp if there is Go."""
    if not (JAVASCRIPT / "node_modules" / "rhea").exists():
        subprocess.run(["npm", "ci", "--silent"], cwd=JAVASCRIPT, check=True)
    if shutil.which("go"):
        subprocess.run(["go", "build", "-o", str(GO_PROGRAM), "."], cwd=GO, check=True)


def _go_amqp_version() -> str:
    found = re.search(r"go-amqp (v[\d.]+)", (GO / "go.mod").read_text())
    assert found is not None, "go.mod names no go-amqp"
    return found[1]


def main() -> int:
    """Run the scenarios, and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="scenarios with this in their name")
    parser.add_argument("--classpath", default="", help="of Qpid JMS and our own classes; built with Maven if empty")
    arguments = parser.parse_args()
    java = Build(tuple(arguments.classpath.split(":"))) if arguments.classpath else build()
    _prepare()
    started = time.monotonic()
    outcomes = []
    for outcome in run(java, arguments.only):
        print(outcome.outcome, outcome.test, outcome.reason, flush=True)
        outcomes.append(outcome)
    versions = {"qpid-jms": pom_version("qpid-jms"), "rhea": rhea_version(), "go-amqp": _go_amqp_version()}
    report = Report("logins", outcomes, time.monotonic() - started, versions)
    if not arguments.only:
        report.write("logins")
    return report.show()


if __name__ == "__main__":
    sys.exit(main())
