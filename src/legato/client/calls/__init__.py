"""Calls of applications on sessions, producers, consumers and the rest, as steps for threads and asyncio."""
