"""The commands `gpuctl reserve` and `gpuctl reservations`."""
