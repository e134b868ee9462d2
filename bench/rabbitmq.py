"""RabbitMQ as a peer: a private node on loopback with its own directory, port and epmd, removed afterwards."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
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
    with cluster(directory, nodes=1) as port:
        yield port


@contextmanager
def cluster(directory: Path, *, nodes: int) -> Iterator[int]:
    """Nodes that have joined the first; gives its AMQP 0.9.1 port.

    Raises:
        RabbitAbsent: RabbitMQ is not installed.
        RuntimeError: one did not start; the message ends with its log.
    """
    script, mapper_port = _script(), free_port()
    ports = [free_port() for _ in range(nodes)]
    (directory / "rabbitmq.conf").write_text(
        "cluster_formation.peer_discovery_backend = classic_config\n"
        + "".join(
            f"cluster_formation.classic_config.nodes.{number} = {_name(port)}\n" for number, port in enumerate(ports, 1)
        )
        + "cluster_formation.randomized_startup_delay_range.min = 0\n"
        + "cluster_formation.randomized_startup_delay_range.max = 1\n"
    )
    with ExitStack() as stack:
        surroundings = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "LANG": "C.UTF-8",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(mapper_port),
        }
        mapper = subprocess.Popen(["epmd", "-address", "127.0.0.1", "-port", str(mapper_port)], env=surroundings)
        stack.callback(end, mapper, 30)
        for port in ports:
            _start(script, directory, port, surroundings, stack)
        _await_cluster(script, ports[0], nodes, surroundings)
        yield ports[0]


def _name(port: int) -> str:
    return f"legato-bench-{port}@localhost"


def _start(script: str, directory: Path, port: int, surroundings: Mapping[str, str], stack: ExitStack) -> None:
    (own := directory / str(port)).mkdir()
    plugins, log = own / "enabled_plugins", own / "output.log"
    plugins.write_text("[rabbitmq_amqp1_0].\n")
    environment = {
        **surroundings,
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq"),
        "RABBITMQ_NODENAME": _name(port),
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(own / "mnesia"),
        "RABBITMQ_LOG_BASE": str(own / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_PID_FILE": str(own / "pid"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    with log.open("wb") as output:
        server = subprocess.Popen([script], env=environment, cwd=own, stdout=output, stderr=output)
    stack.callback(end, server, 30)
    _await_start(server, port, log)


def _await_cluster(script: str, port: int, nodes: int, surroundings: Mapping[str, str]) -> None:
    """Wait until so many nodes are one cluster.

    Raises:
        RuntimeError: they are not within a minute and a half.
    """
    control = str(Path(script).with_name("rabbitmqctl"))
    command = [control, "--node", _name(port), "--timeout", str(START_S), "await_online_nodes", str(nodes)]
    environment = {**surroundings, "RABBITMQ_CONF_ENV_FILE": "/dev/null"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{nodes} nodes of RabbitMQ are no cluster:\n{done.stdout}{done.stderr}")


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


def measure_raw(kind: str, count: int, size: int, *, nodes: int = 1) -> float:
    """Like `measure`, but with the raw AMQP 1.0 client: the protocol is a plugin of RabbitMQ 3."""
    with temporary_store() as directory, cluster(directory, nodes=nodes) as port:
        # aio-pika declares the queue: AMQP 1.0 cannot ask for its type.
        send_and_receive(port, WARM_UP, size, "--queue-type", kind, module=CLIENT)
        rate = send_and_receive(port, count, size, "--address", "/amq/queue/bench")
    note(f"RabbitMQ {kind} on {nodes} node{'s' * (nodes > 1)}, raw AMQP 1.0 client: {rate:,.0f} msg/s")
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
