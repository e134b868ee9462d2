"""The console: pages on which people watch brokers and repair dead letters, as an ASGI application.

It asks brokers by the management address and as any client, with the login of whoever looks: roles hold as elsewhere.
"""
