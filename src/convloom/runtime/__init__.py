"""Build, cache, load, launch and time kernels; knows nothing above their source."""
