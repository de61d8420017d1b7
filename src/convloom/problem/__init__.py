"""Problems: convolutions, GEMMs, their notations, their contraction and their slow reference."""
