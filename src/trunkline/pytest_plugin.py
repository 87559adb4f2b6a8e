"""The fixtures for pytest. It is imported in every run of pytest where Trunkline is installed, so it imports nothing by itself."""
