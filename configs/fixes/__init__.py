"""What helps with which daemon, for fusetools why, installed as fusetools.configs.fixes."""
