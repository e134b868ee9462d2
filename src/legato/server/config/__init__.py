"""Settings: the configuration, address settings by pattern, and broker discovery."""
