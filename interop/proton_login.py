"""Logs in with python-qpid-proton, sends a message to a queue and receives it; prints "done", or "denied" and why.

Arguments: `HOST:PORT AUTHORITIES MECHANISM USER PASSWORD QUEUE [CERTIFICATE]`; files are PEM.
"""

from __future__ import annotations

import sys

from proton import Message, ProtonException, SSLDomain
from proton.utils import BlockingConnection

WAIT_S = 60.0


def main() -> None:
    """Log in once."""
    address, authorities, mechanism, user, password, queue, *certificate = sys.argv[1:]
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(authorities)
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME, authorities)
    if certificate:
        domain.set_credentials(certificate[0], certificate[0], None)
    named = {"user": user, "password": password} if mechanism == "PLAIN" else {}
    try:
        connection = BlockingConnection(
            f"amqps://{address}", timeout=WAIT_S, ssl_domain=domain, allowed_mechs=mechanism, **named
        )
        connection.create_sender(queue).send(Message(body="hello"))
        receiver = connection.create_receiver(queue)
        receiver.receive()
        receiver.accept()
        connection.close()
    except ProtonException as error:
        print(f"denied\t{error}")
    else:
        print("done")


if __name__ == "__main__":
    main()
