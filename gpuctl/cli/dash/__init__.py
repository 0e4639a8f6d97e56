"""`gpuctl dash`: what the commands print, on one screen."""
