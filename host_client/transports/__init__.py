"""Places that keep archived objects: a directory, an object store. They know nothing of conversations."""
