"""What servers write in their logs, one file a format."""
