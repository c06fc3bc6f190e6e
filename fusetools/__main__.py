"""The program: `python -m fusetools`, and the command that setup.cfg installs."""

import signal


def run() -> None:
    """Run the command line. Ctrl-C during the imports ends the program without a traceback."""
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if usual:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from fusetools.cli import run as program

    if usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    program()


if __name__ == "__main__":
    run()
