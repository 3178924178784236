"""MLX models through mlx-lm: Apple silicon, and the CPU elsewhere."""
