"""Sharded attention timed on the GPUs of one host, beside the bytes that were counted beforehand."""
