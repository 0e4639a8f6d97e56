"""Knowledge of the field that several features need: values and pure functions, no I/O."""
