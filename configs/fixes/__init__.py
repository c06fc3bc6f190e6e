"""Fixes that fusetools why advises by daemon, installed as fusetools.configs.fixes."""
