"""The replicated log: records that several servers have on disk before anybody is told, and its readers and writers.

`log` has the interface, `memory` a log for tests, `nats` the one of production.
"""
