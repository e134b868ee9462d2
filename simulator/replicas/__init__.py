"""Brokers with a replicated log under simulation: log servers, replicas on disks of their own, trouble, checks."""
