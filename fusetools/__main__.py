from fusetools.cli import run

run()
