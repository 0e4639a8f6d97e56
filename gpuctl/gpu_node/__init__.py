"""The software stack of a GPU host: driver, fabric services and packages, decided before anything is changed."""
