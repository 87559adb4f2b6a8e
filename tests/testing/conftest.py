"""The sample projects have configurations of their own, and are run by test_projects.py."""

collect_ignore = ["projects"]
