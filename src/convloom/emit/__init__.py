"""Printers from IR to source text: one C-family base, tables per dialect."""
