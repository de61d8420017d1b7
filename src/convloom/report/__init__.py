"""Explanations, tables and pictures for people."""
