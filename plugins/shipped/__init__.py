"""The plugins that come with the broker, one module each. They use nothing that a plugin of yours could not use."""
