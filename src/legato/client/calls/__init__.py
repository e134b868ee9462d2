"""What an application calls: sessions, producers, consumers and their like, as steps for threads and asyncio."""
