"""From arrays and networks to problems and calls."""
