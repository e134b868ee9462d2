"""Makes `python -m legato.cli` the same as `legato`."""

from legato.cli.main import main

main()
