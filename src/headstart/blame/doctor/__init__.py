"""What on this machine will make prompts be read again: servers, agents' settings, room and power."""
