"""The main job: a year of real flights through a broker that is killed, every message accounted for.

The parent process (`run.py`) starts brokers, producers, workers and a collector as processes of their own, kills
brokers while it watches their reports, and lets Spark judge the result. Nothing in the producers, workers or collector
knows of the kills; they do what docs/reference/contract.md asks of any application.
"""
