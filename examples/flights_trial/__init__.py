"""Puts `flights_pipeline.py` to the trial: sends flights, kills brokers and drivers, and compares what came out."""
