"""What is left of a run: JSON with a schema, JUnit XML, one HTML page, and two runs side by side."""
