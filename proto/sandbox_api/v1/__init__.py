"""Generated code of the contract `sandbox_api.v1`; regenerate with `make proto`."""
