"""One broker in one process. `opening` opens it, `parts` puts it together, `life` starts and stops it, `reconfiguring`
changes it; `admin` is all that is seen of it outside of the broker, with what `clients`, `messages`, `routing` and
`listening` do. `supervisors`, `storing`, `statistics`, `periodic_tasks` and `system_clock` serve it as a whole."""
