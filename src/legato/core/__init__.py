"""The broker, pure: what Jakarta Messaging means, without sockets, clocks, chance or files."""
