"""How one claim is decided in one slice: what is known first, then what is cheap, then what is dear."""
