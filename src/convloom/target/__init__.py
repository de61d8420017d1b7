"""What the generator knows about machines: facts and instruction rows, no text generation."""
