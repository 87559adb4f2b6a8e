"""A node of several processes: a supervisor, and workers that are a broker each.

- `supervising` is the supervisor's process, `fleet` its workers all together, `worker_process` one of them.
- `enrolment` is a worker's own side.
- `channel` is what joins the two, and `messages` what they say.
- `shared_sockets` are the listening sockets, `terms` the file that counts starts, `runtime_folder` the place of the
  sockets that are nobody else's, and `backoff` how long a worker that crashes has to wait.
"""
