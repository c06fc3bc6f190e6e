"""Runs fusetools so that `stuck` waits long for an answer about a process: patient.py OLDER ...

A busy or emulated machine must not change what the tests see. OLDER: the seconds after which a
caller counts as stuck; "-": stuck's own threshold.
"""

import sys

from fusetools.cli import main
from fusetools.stuck import children, diagnosis, machine

machine.PATIENCE = 30.0
children.AWAKE = 2.0
defaults = machine.read.__defaults__
assert defaults
machine.read.__defaults__ = (100.0, *defaults[1:])
older = sys.argv.pop(1)
if older != "-":
    assert diagnosis.stuck.__defaults__ == ((), diagnosis.OLDER)
    diagnosis.stuck.__defaults__ = ((), float(older))
main()
