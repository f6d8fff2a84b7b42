"""Why is my flush stuck? Asks live engines, and says what is wrong and what to do."""
