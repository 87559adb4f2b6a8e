"""The MQTT client, on trio."""
