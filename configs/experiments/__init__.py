"""Ready experiments for fusetools sweep, installed as fusetools.configs.experiments."""
