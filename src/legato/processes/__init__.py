"""Child processes that report by lines and can be killed: one supervisor for drill, demo and tests."""
