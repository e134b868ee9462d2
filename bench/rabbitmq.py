"""RabbitMQ as a peer: a private node on loopback with its own directory, port and epmd, removed afterwards."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from pathlib import Path

from bench.figures import interleave
from bench.harness import finish_pairs, note, options, temporary_store
from bench.processes import answers, end, free_port, send_and_receive

CLIENT = "bench.rabbitclient"
WARM_UP = 2000
START_S = 90
_UNKNOWN_PROTOCOL = b"AMQP\x00\x00\x00\x00"
"""It is refused by naming the broker's own."""
ABSENT = "RabbitMQ is not installed: `apt-get install rabbitmq-server` brings this peer (it need not run as a service)."


class RabbitAbsent(Exception):
    """There is no RabbitMQ on this machine."""


def _script() -> str:
    """The server's own script: Debian's wrapper in /usr/sbin insists on the service's user and directories."""
    scripts = sorted(glob("/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server"))
    if not scripts or not shutil.which("epmd"):
        raise RabbitAbsent(ABSENT)
    return scripts[-1]


def release() -> str:
    """The version of the installed RabbitMQ.

    Raises:
        RabbitAbsent: there is none.
    """
    return Path(_script()).parent.parent.name.removeprefix("rabbitmq_server-")


@contextmanager
def node(directory: Path) -> Iterator[int]:
    """A running node; gives its AMQP 0.9.1 port.

    Raises:
        RabbitAbsent: RabbitMQ is not installed.
        RuntimeError: it did not start; the message ends with its log.
    """
    script, port, mapper_port = _script(), free_port(), free_port()
    plugins, log = directory / "enabled_plugins", directory / "output.log"
    plugins.write_text("[rabbitmq_amqp1_0].\n")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(directory),
        "LANG": "C.UTF-8",
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(mapper_port),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq"),
        "RABBITMQ_NODENAME": f"legato-bench-{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    mapper = subprocess.Popen(["epmd", "-address", "127.0.0.1", "-port", str(mapper_port)], env=environment)
    try:
        with log.open("wb") as output:
            server = subprocess.Popen([script], env=environment, cwd=directory, stdout=output, stderr=output)
        try:
            _await_start(server, port, log)
            yield port
        finally:
            end(server, 30)
    finally:
        end(mapper, 30)


def _await_start(server: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while not answers(port, _UNKNOWN_PROTOCOL):
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"RabbitMQ did not start:\n{log.read_text()[-2000:]}")
        time.sleep(0.2)


def measure(kind: str, count: int, size: int) -> float:
    """Messages a second through a `quorum` or `classic` durable queue of a fresh node: confirms, persistent, acks."""
    with temporary_store() as directory, node(directory) as port:
        send_and_receive(port, WARM_UP, size, "--queue-type", kind, module=CLIENT)
        rate = send_and_receive(port, count, size, "--queue-type", kind, module=CLIENT)
    note(f"RabbitMQ {kind}: {rate:,.0f} msg/s")
    return rate


def measure_raw(kind: str, count: int, size: int) -> float:
    """Like `measure`, but with the raw AMQP 1.0 client: the protocol is a plugin of RabbitMQ 3."""
    with temporary_store() as directory, node(directory) as port:
        # aio-pika declares the queue: AMQP 1.0 cannot ask for its type.
        send_and_receive(port, WARM_UP, size, "--queue-type", kind, module=CLIENT)
        rate = send_and_receive(port, count, size, "--address", "/amq/queue/bench")
    note(f"RabbitMQ {kind}, raw AMQP 1.0 client: {rate:,.0f} msg/s")
    return rate


def rates_or_none(kind: str, count: int, size: int) -> tuple[float, float] | None:
    """One run with the raw client, one with aio-pika; None, and a sentence to the reader, where RabbitMQ is absent."""
    try:
        return measure_raw(kind, count, size), measure(kind, count, size)
    except RabbitAbsent as absent:
        note(str(absent))
        return None


def main() -> None:
    """Command line: the two durable queue types beside each other; exit code 2 where RabbitMQ is absent."""
    given = options(__doc__, count=30_000).parse_args()
    try:
        installed = release()
    except RabbitAbsent as absent:
        print(absent, file=sys.stderr)
        sys.exit(2)
    pairs = interleave(
        lambda: measure("quorum", given.count, given.size),
        lambda: measure("classic", given.count, given.size),
        given.pairs,
    )
    finish_pairs(
        "rabbitmq",
        f"RabbitMQ {installed} with aio-pika: durable send + receive through one queue, {given.size} bytes",
        ("quorum", "classic"),
        pairs,
        None,
        unit="msg/s",
        rabbitmq=installed,
    )


if __name__ == "__main__":
    main()
