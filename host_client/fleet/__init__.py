"""Many sandboxes: restores in this process, or through any executor on many hosts; each target has its outcome."""
