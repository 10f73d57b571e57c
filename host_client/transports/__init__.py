"""Places that keep archived objects."""
