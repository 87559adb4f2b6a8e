"""The NATS client, on trio.

- `client`: `connect`, and what can be asked; `subscription` has the messages of a subject, `requests` the answers,
  `services` what answers.
- `running` moves bytes between a connection and its stream; `transport` opens that.
- Without I/O: `connection` is one connection, `servers` the list of those to try, `credentials` who the client is.
- `settings`, `events` and `message` are what all of these use.
"""
