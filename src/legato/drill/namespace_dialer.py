"""Helper inside the brokers' network namespaces: connects to brokers and passes the sockets out.

Whoever connects to its socket says a line, `HOST PORT`, and gets a byte with the socket, or a sentence without one.
"""

import socket
import sys
import threading

CONNECT_WAIT_S = 30.0
LINE_BYTES_MAX = 200


def serve(path: str) -> None:
    """Answer for ever."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        while True:
            asking, _ = listener.accept()
            # Where the link is cut, connecting takes its time.
            threading.Thread(target=answer, args=(asking,), daemon=True).start()


def answer(asking: socket.socket) -> None:
    """Connect for one who asks."""
    with asking:
        line = b""
        while not line.endswith(b"\n"):
            part = asking.recv(LINE_BYTES_MAX)
            if not part:
                return
            line += part
        host, port = line.decode().split()
        try:
            with socket.create_connection((host, int(port)), timeout=CONNECT_WAIT_S) as sock:
                sock.settimeout(None)
                socket.send_fds(asking, [b"+"], [sock.fileno()])
        except OSError as error:
            asking.sendall(str(error).encode())


if __name__ == "__main__":
    serve(sys.argv[1])
