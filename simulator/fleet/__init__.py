"""A fleet of many groups in figures: where addresses and members are, what moves, how long clients take to be back.

It runs the code of the product on a fleet that no test has: `legato.groups` places addresses and members, the client's
`Schedule` and the broker's `ReconnectPacing` say when clients come. `python -m simulator.fleet`.
"""
