"""A page for operators, from the results of jobs: one file that loads nothing."""
