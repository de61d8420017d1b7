"""From a plan to the final IR, one pass per file."""
