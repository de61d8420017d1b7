"""From a plan to the IR, then one pass per file."""
