"""Decisions as data: how a contraction runs on a target."""
