"""Thresholds of fusetools why, installed as fusetools.configs.rules."""
