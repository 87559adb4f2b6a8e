"""The network layer: listeners, the transports of connections and the layers on them. It knows no protocol above; who
opens the listeners says what is spoken there."""
