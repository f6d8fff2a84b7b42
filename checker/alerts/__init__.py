"""Alert rules with their tests, a dashboard and runbooks, generated from the catalogue and the metrics."""
