"""OBSCURE: p-norms with a true multiclass loss, rows on demand."""
