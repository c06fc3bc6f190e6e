"""Hangs: facts of this moment from /proc and fusectl, and their diagnosis."""
