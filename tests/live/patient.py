"""Runs fusetools in an emulated machine, where examining a process takes longer than stuck
waits."""

from fusetools.cli import main
from fusetools.stuck import machine

machine.PATIENCE = 30.0
defaults = machine.read.__defaults__
assert defaults
machine.read.__defaults__ = (100.0, *defaults[1:])
main()
