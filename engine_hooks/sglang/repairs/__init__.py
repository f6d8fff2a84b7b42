"""The remedies as hooks: each changes what one function of the engine does, and nothing until it is switched on."""
