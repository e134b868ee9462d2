"""The asyncio shell of the broker: thin, boring, replaceable."""
