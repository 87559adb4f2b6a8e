"""A page for operators, made from the results of jobs: one file, nothing fetched from anywhere."""
