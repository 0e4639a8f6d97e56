"""How a machine or a pod is reached, and how programs there are started and supervised."""
