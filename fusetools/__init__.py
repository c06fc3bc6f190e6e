"""fusetools: traces FUSE file systems with perf and trace-cmd."""

__version__ = "0.1.0"
