"""Fuzzing: what reads bytes that others wrote, fed with any bytes at all."""
