"""How two profiles differ, and which verdicts change."""
