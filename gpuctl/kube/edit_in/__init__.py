"""Open an editor on the files of a pod."""
