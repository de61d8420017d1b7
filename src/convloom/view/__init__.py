"""Views: coordinate transforms from kernel coordinates to memory offsets and validity."""
