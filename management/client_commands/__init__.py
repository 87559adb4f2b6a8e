"""`trunkline pub`, `trunkline sub` and `trunkline rr`: an MQTT client on the command line, with the options of
Mosquitto's commands."""
