"""The kernel IR: nodes, well-known symbols, visitors, text, verifier."""
