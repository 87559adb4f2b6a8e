"""What the attacks need of this process."""

import multiprocessing.util

# the folder of the process that forks brokers; that of the tests ends before it
multiprocessing.util.get_temp_dir()
