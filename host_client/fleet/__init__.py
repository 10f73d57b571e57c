"""Many sandboxes: restores in this process, or through any executor on many hosts. Each target has an outcome of its own."""
