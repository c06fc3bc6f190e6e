from fusetools.cli import main

main(prog_name="fusetools")
