"""The image of a GPU pod: names of images, and the bases that a Dockerfile names, pinned by digest."""
