"""The KV page census: one pass over who holds which page of a KV pool, and which pages are held wrongly."""
