"""The program: `python -m fusetools`, and the command that setup.cfg installs."""

import os
import signal


def run() -> None:
    """Run the command line. Ctrl-C before a command begins ends the program without a traceback."""
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if usual:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from fusetools.cli import run as program

    if usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        program()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    run()
