"""OBSCURE: p-norms with a multiclass loss, by stochastic stages and an exact one, with kernel rows on demand."""
