"""EFA's software, which AWS ships as an installer in a signed archive: state on a host, archive, and installer."""
