"""Printers from the IR to C-family languages."""
