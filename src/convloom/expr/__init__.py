"""Index arithmetic: interned expressions with facts, bounds, divisibility, simplification and proofs."""
