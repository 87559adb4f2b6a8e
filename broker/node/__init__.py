"""One broker in one process. `opening` opens it, `parts` puts it together, `life` starts and stops it, `reconfiguring`
changes it; `admin` is all that is seen of it outside of the broker."""
