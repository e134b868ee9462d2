"""Helper that listens inside a network namespace for a relay.

Run as `python -m legato.drill.namespace_listener HOST DESCRIPTOR`.
"""

import socket
import sys


def main(host: str, descriptor: int) -> None:
    """Make the socket, and send it through another one."""
    with socket.socket(fileno=descriptor) as asking, socket.create_server((host, 0)) as listening:
        socket.send_fds(asking, [b"+"], [listening.fileno()])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
